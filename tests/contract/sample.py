"""A small contract with every part that first light has, valid as it stands; tests break one field at a time."""

from __future__ import annotations

from collections.abc import Sequence

from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution

SLOTS, PAGES_PER_SLOT, PAGE_TOKENS = 4, 8, 16
VOCABULARY, PREFILL_TOKENS = 96, 32
INITIALIZE, PREFILL, DECODE, MIXED = "initialize.b2", "prefill.b1", "decode.b4", "mixed.b4"

I32, U32 = execution.ELEMENT_TYPE_I32, execution.ELEMENT_TYPE_U32
ROW, SCALAR, TOKEN = pb.INDEXING_ACTIVE_ROW, pb.INDEXING_SCALAR, pb.INDEXING_PACKED_TOKEN

# Buffers by index: name, kind, bytes, page bytes, resource.
_BUFFERS = [
    ("weight", execution.BUFFER_KIND_WEIGHT, 5000, 0, "embedding"),
    ("inputs", execution.BUFFER_KIND_INPUT, 4096, 0, ""),
    ("admission", execution.BUFFER_KIND_INPUT, 65536, 0, ""),
    ("requests", execution.BUFFER_KIND_STATE, SLOTS * 32, 0, ""),
    ("page_table", execution.BUFFER_KIND_STATE, SLOTS * PAGES_PER_SLOT * 4, 0, ""),
    ("kv", execution.BUFFER_KIND_CACHE_PLANE, 0, 2048, ""),
    ("scratch", execution.BUFFER_KIND_SCRATCH, 1024, 0, ""),
    ("completion", execution.BUFFER_KIND_COMPLETION, 32 + SLOTS * 224, 0, ""),
]
WEIGHT, INPUTS, ADMISSION, REQUESTS, PAGE_TABLE, KV, SCRATCH, COMPLETION = range(8)

# Staged values: name, source, indexing, element type, elements, elements of one index.
_ROUND = [
    ("n_lanes", pb.VALUE_SOURCE_LIVE_ROW_COUNT, SCALAR, I32, 1, 1),
    ("submission", pb.VALUE_SOURCE_SUBMISSION, SCALAR, U32, 4, 1),
    ("lane_slot", pb.VALUE_SOURCE_SLOT, ROW, I32, SLOTS, 1),
    ("lane_query_length", pb.VALUE_SOURCE_QUERY_LENGTH, ROW, I32, SLOTS, 1),
    ("prompt_tokens", pb.VALUE_SOURCE_PROMPT_TOKENS, TOKEN, I32, PREFILL_TOKENS, 1),
    ("page_updates", pb.VALUE_SOURCE_PAGE_TABLE_UPDATES, ROW, I32, 2 * SLOTS * PAGES_PER_SLOT, 2),
    ("mask", pb.VALUE_SOURCE_GRAMMAR_MASK, ROW, U32, SLOTS * 3, 3),
]
_ADMISSION = [
    ("admission_slot", pb.VALUE_SOURCE_SLOT, ROW, I32, 2, 1),
    ("admission_sampling", pb.VALUE_SOURCE_SAMPLING_ROW, ROW, U32, 2 * 64, 64),
    ("admission_bias", pb.VALUE_SOURCE_LOGIT_BIAS, ROW, I32, 2 * 2048, 2048),
    ("admission_histogram", pb.VALUE_SOURCE_PROMPT_HISTOGRAM, ROW, U32, 2 * VOCABULARY, VOCABULARY),
]
# Programs: name, operation, B, W, P.
_PROGRAMS = [
    (INITIALIZE, execution.OPERATION_INITIALIZE, 2, 0, 0),
    (PREFILL, execution.OPERATION_PREFILL, 1, PREFILL_TOKENS, PREFILL_TOKENS),
    (DECODE, execution.OPERATION_DECODE, SLOTS, 1, SLOTS),
    (MIXED, execution.OPERATION_MIXED, SLOTS, PREFILL_TOKENS, PREFILL_TOKENS),
]


def sample_manifest() -> execution.ExecutionManifest:
    """Four programs of one kernel node, one copy and one fill each."""
    manifest = execution.ExecutionManifest(
        abi_label="test", target="host", request_slots=SLOTS, pages_per_slot=PAGES_PER_SLOT
    )
    for index, (name, kind, nbytes, page_nbytes, resource) in enumerate(_BUFFERS):
        manifest.buffers.add(id=index, name=name, kind=kind, nbytes=nbytes, page_nbytes=page_nbytes, resource=resource)
    for name, operation, batch, tokens, packed in _PROGRAMS:
        program = manifest.programs.add(
            name=name, operation=operation, batch_capacity=batch, token_capacity=tokens, packed_token_capacity=packed
        )
        kernel = program.nodes.add().kernel
        kernel.kernel, kernel.arguments = "embed.f32.g8.1", bytes(48)
        kernel.relocations.add(argument_offset=16, buffer=WEIGHT, offset=0)
        copy = execution.CopyNode(destination=SCRATCH, source=REQUESTS, nbytes=64)
        program.nodes.add(depends_on=[0], copy=copy)
        program.nodes.add(depends_on=[0, 1], fill=execution.FillNode(destination=SCRATCH, value=255, nbytes=64))
    _stage(manifest, INPUTS, _ROUND)
    _stage(manifest, ADMISSION, _ADMISSION)
    manifest.completion.CopyFrom(
        execution.CompletionLayout(buffer=COMPLETION, header_nbytes=32, lane_nbytes=224, lanes_capacity=SLOTS)
    )
    return manifest


def _stage(
    manifest: execution.ExecutionManifest, buffer: int, values: Sequence[tuple[str, int, int, int, int, int]]
) -> None:
    offset = 0
    for name, _, _, element_type, count, words in values:
        manifest.destinations.add(
            name=name, buffer=buffer, offset=offset, element_type=element_type, count=count, element_words=words
        )
        offset += -(-4 * count // 16) * 16


def sample_contract() -> pb.ServingContract:
    """The contract over `sample_manifest`."""
    model = pb.ModelContract(version=3, vocabulary=VOCABULARY, input_vocabulary=VOCABULARY)
    model.cache.page_tokens = PAGE_TOKENS
    model.cache.regions.add(kind=pb.REGION_KIND_PAGED_KEY_VALUE, planes=[KV], tokens_per_record=1)
    model.cache.page_tables.add(buffer=PAGE_TABLE)
    model.state_views.add(name="requests", buffer=REQUESTS, row_stride=32, row_nbytes=32, rows=SLOTS)
    model.state_views.add(name="pending", buffer=REQUESTS, row_stride=32, row_nbytes=4, rows=SLOTS)
    for name, operation, *_ in _PROGRAMS:
        values = _ADMISSION if operation == execution.OPERATION_INITIALIZE else _ROUND
        if operation == execution.OPERATION_DECODE:
            values = [value for value in values if value[0] != "prompt_tokens"]
        graph = model.graphs.add(program=name, operation=operation, pending_view="pending", state_rows_per_request=1)
        for destination, source, indexing in (value[:3] for value in values):
            graph.bindings.add(destination=destination, source=source, indexing=indexing)
        graph.accesses.add(view="requests", access=pb.ACCESS_READ_WRITE)
        graph.accesses.add(view="pending", access=pb.ACCESS_READ_WRITE)
    model.frontend.CopyFrom(
        pb.FrontendContract(
            tool_syntax=pb.TOOL_SYNTAX_NONE,
            reasoning_syntax=pb.REASONING_SYNTAX_NONE,
            image_preparation=pb.IMAGE_PREPARATION_NONE,
            image_layout=pb.IMAGE_LAYOUT_NONE,
            eos_tokens=[2, 5],
            eos_text="</s>",
        )
    )
    return pb.ServingContract(
        served_id="sample",
        aliases=["sample-latest"],
        cache_identity=bytes(range(32)),
        context_tokens=PAGES_PER_SLOT * PAGE_TOKENS,
        prefill_tokens=PREFILL_TOKENS,
        concurrency=SLOTS,
        sampling=pb.SamplingDefaults(temperature=0.5, top_p=0.9),
        model=model,
    )
