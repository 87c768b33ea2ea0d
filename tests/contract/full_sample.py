"""The sample contract with every part of the schema in it: speculation, vision, tuning, state rows, ranks, syntax data."""

from __future__ import annotations

from helios.contract.manifest_rules import distribution_nbytes
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from tests.contract.sample import (
    COMPLETION,
    I32,
    ROW,
    SCALAR,
    SLOTS,
    TOKEN,
    U32,
    WEIGHT,
    sample_contract,
    sample_manifest,
)

SPECULATIVE, SCORED, RESTORE, SNAPSHOT, ENCODE, TUNE = (
    "spec.b4",
    "scored.b1",
    "restore.b2",
    "snapshot.b2",
    "encode",
    "tune",
)
DRAFTS, WIDTH, PACKED, PATCHES, N_STATE_ROWS = 3, 4, 12, 16, 8
CONFIDENCE, TUNED, ROWS, CURSOR, MORE = range(8, 13)
SUBMISSION, F32 = pb.INDEXING_SUBMISSION_ROW, execution.ELEMENT_TYPE_F32
STATE, INPUT = execution.BUFFER_KIND_STATE, execution.BUFFER_KIND_INPUT

_BUFFERS = [
    ("confidence", STATE, 2 * SLOTS * DRAFTS * 4, ""),
    ("tuned", STATE, 64, TUNE),
    ("rows", STATE, N_STATE_ROWS * 64, ""),
    ("cursor", STATE, SLOTS * 4, ""),
    ("more", INPUT, 16384, ""),
]
# Programs: name, operation, B, D, W, P.
_PROGRAMS = [
    (SPECULATIVE, execution.OPERATION_SPECULATIVE, SLOTS, DRAFTS, WIDTH, PACKED),
    (SCORED, execution.OPERATION_SCORED_PREFILL, 1, 0, 32, 32),
    (RESTORE, execution.OPERATION_RESTORE, 2, 0, 0, 0),
    (SNAPSHOT, execution.OPERATION_SNAPSHOT, 2, 0, 0, 0),
    (ENCODE, execution.OPERATION_ENCODE_IMAGE, 1, 0, 0, PATCHES),
]
# Staged values: name, source (or image tensor), indexing, element type, indices, words of one index, programs.
_VALUES = [
    ("limits", "SPECULATIVE_PREFIX_LIMIT", ROW, I32, SLOTS, 1, (SPECULATIVE,)),
    ("copied", "PROPOSAL_TOKENS", ROW, I32, SLOTS, DRAFTS, (SPECULATIVE,)),
    ("copied_count", "PROPOSAL_COUNT", ROW, I32, SLOTS, 1, (SPECULATIVE,)),
    ("copied_generation", "PROPOSAL_GENERATION", ROW, I32, SLOTS, 1, (SPECULATIVE,)),
    ("copied_consumed", "PROPOSAL_CONSUMED", ROW, I32, SLOTS, 1, (SPECULATIVE,)),
    ("copied_masks", "PROPOSAL_GRAMMAR_MASKS", ROW, U32, SLOTS, 3 * WIDTH, (SPECULATIVE,)),
    ("live_row", "LIVE_STATE_ROW", ROW, I32, SLOTS, 1, (SPECULATIVE,)),
    ("one", "CONSTANT", SCALAR, I32, 1, 1, (SPECULATIVE,)),
    ("idle", "INACTIVE_PADDING", SUBMISSION, I32, SLOTS, 1, (SPECULATIVE,)),
    ("seeds", "SEED_BITS", ROW, U32, SLOTS, 2, (SPECULATIVE,)),
    ("limit", "OUTPUT_LIMIT", ROW, I32, SLOTS, 1, (SPECULATIVE,)),
    ("ends", "EOS_TOKENS", ROW, I32, SLOTS, 16, (SPECULATIVE,)),
    ("targets", "SCORED_TARGETS", TOKEN, I32, 32, 1, (SCORED,)),
    ("positions", "TOKEN_POSITION", TOKEN, I32, 32, 1, (SCORED,)),
    ("features", "IMAGE_FEATURE_INDEX", TOKEN, I32, 32, 1, (SCORED,)),
    ("contexts", "IMAGE_CONTEXT_INDEX", TOKEN, I32, 32, 1, (SCORED,)),
    ("restore_source", "RESTORE_SOURCE", ROW, I32, 2, 1, (RESTORE,)),
    ("snapshot_row", "SNAPSHOT_DESTINATION", ROW, I32, 2, 1, (SNAPSHOT,)),
    ("feature_slot", "IMAGE_FEATURE_SLOT", ROW, I32, SLOTS, 1, (ENCODE, SCORED)),
    ("patches", "patches", TOKEN, F32, PATCHES, 3 * 2 * 2, (ENCODE,)),
    ("grid", "grid", ROW, I32, 1, 3, (ENCODE,)),
    ("axis_positions", "axis_positions", TOKEN, I32, 32, 3, (SCORED,)),
]


def full_manifest() -> execution.ExecutionManifest:
    """The sample manifest, with two ranks, a tuning catalog and proposal confidence."""
    manifest = sample_manifest()
    for name, kind, nbytes, producer in _BUFFERS:
        manifest.buffers.add(id=len(manifest.buffers), name=name, kind=kind, nbytes=nbytes, producer=producer)
    for name, operation, batch, drafts, tokens, packed in _PROGRAMS:
        manifest.programs.add(
            name=name,
            operation=operation,
            batch_capacity=batch,
            draft_tokens=drafts,
            token_capacity=tokens,
            packed_token_capacity=packed,
            confidence_width=drafts,
        )
    tuning = manifest.tuning_programs.add(name=TUNE, operation=execution.OPERATION_TUNE)
    tuning.nodes.add(fill=execution.FillNode(destination=TUNED, value=1, nbytes=64))
    offset = 0
    for name, _, _, element_type, n_indices, words, _ in _VALUES:
        manifest.destinations.add(
            name=name,
            buffer=MORE,
            offset=offset,
            element_type=element_type,
            count=n_indices * words,
            element_words=words,
        )
        offset += -(-4 * n_indices * words // 16) * 16
    manifest.completion.score_nbytes, manifest.completion.scores_capacity = 176, 32
    manifest.completion.distribution_nbytes = distribution_nbytes(sample_contract().model.vocabulary)
    manifest.completion.distributions_capacity, manifest.completion.prompt_distributions_capacity = 2, 3
    manifest.buffers[COMPLETION].nbytes += 32 * 176 + 5 * manifest.completion.distribution_nbytes
    manifest.proposal_confidence.CopyFrom(execution.ConfidenceLayout(buffer=CONFIDENCE, draft_capacity=DRAFTS))
    for rank in range(2):
        manifest.ranks.add(rank=rank).weights.add(buffer=WEIGHT, resource=f"embedding.{rank}")
    return manifest


def full_contract() -> pb.ServingContract:
    """The contract over `full_manifest`."""
    serving = sample_contract()
    serving.speculative_widths.append(WIDTH)
    model = serving.model
    model.input_vocabulary = model.vocabulary + 1
    model.state_views.add(name="rows", buffer=ROWS, row_stride=64, row_nbytes=64, rows=N_STATE_ROWS)
    model.state_views.add(name="cursor", buffer=CURSOR, row_stride=4, row_nbytes=4, rows=SLOTS)
    model.cache.regions.add(kind=pb.REGION_KIND_CONTINUATION, views=["rows"])
    model.cache.draft_cursor.CopyFrom(pb.CompletionCursor(view="cursor", lag_tokens=1))
    for name, operation in (program[:2] for program in _PROGRAMS):
        graph = model.graphs.add(program=name, operation=operation, state_rows_per_request=2)
        if operation in (execution.OPERATION_SPECULATIVE, execution.OPERATION_SCORED_PREFILL):
            graph.pending_view = "pending"
            graph.accesses.add(view="pending", access=pb.ACCESS_READ_WRITE)
        for destination, source, indexing, *_, programs in _VALUES:
            if name in programs:
                graph.bindings.add(destination=destination, indexing=indexing, **_source(source))
    model.graphs[4].tuned_bindings.add(buffer=TUNED, producer=TUNE)
    model.vision.CopyFrom(
        pb.VisionContract(feature_slots=2, window_features=8, patches_per_feature=4, patch_capacities=[PATCHES])
    )
    model.frontend.CopyFrom(full_frontend())
    return serving


def _source(name: str) -> dict[str, object]:
    if name.islower():
        return {"source": pb.VALUE_SOURCE_IMAGE_TENSOR, "image_tensor": name}
    constant = {"constant": 1} if name == "CONSTANT" else {}
    return {"source": pb.ValueSource.Value(f"VALUE_SOURCE_{name}"), **constant}


def full_frontend() -> pb.FrontendContract:
    """Function tags with think tags, which a call may end, and images with positions on three axes."""
    return pb.FrontendContract(
        tool_syntax=pb.TOOL_SYNTAX_FUNCTION_TAGS,
        reasoning_syntax=pb.REASONING_SYNTAX_THINK_TAGS,
        image_preparation=pb.IMAGE_PREPARATION_FIT_GRID,
        image_layout=pb.IMAGE_LAYOUT_AXES,
        eos_tokens=[2, 5],
        eos_text="</s>",
        tool_markers=pb.ToolMarkers(
            call=pb.Markers(opener="<call>", closer="</call>", newlines_after_opener=1, newlines_before_closer=1),
            tag_separator="\n",
            call_separator="\n",
        ),
        reasoning_markers=pb.ReasoningMarkers(
            reasoning=pb.Markers(opener="<think>", closer="</think>", newlines_after_closer=2),
            terminal_markers=["<call>"],
        ),
        assistant=pb.AssistantBoundary(opener="<a>", message_end="</a>"),
        prefix_boundaries=[
            pb.PrefixBoundary(role=pb.MESSAGE_ROLE_USER, constraint=pb.RENDERING_CONSTRAINT_CLOSED),
            pb.PrefixBoundary(role=pb.MESSAGE_ROLE_ASSISTANT, constraint=pb.RENDERING_CONSTRAINT_WITHOUT_REASONING),
        ],
        image_tokens=pb.ImageTokens(
            feature_tokens=[96],
            atomic_spans=[pb.AtomicSpan(opener=10, closer=11)],
            patch_pixels=2,
            merged_patches=2,
            min_pixels=16,
            max_pixels=64,
            channel_mean=[0.5, 0.5, 0.5],
            channel_deviation=[0.25, 0.25, 0.25],
        ),
    )
