"""Edits of the full sample contract, each with the rule that it breaks and words of the error."""

from __future__ import annotations

from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from tests.contract import sample
from tests.contract.editing import (
    Edit,
    Manifest,
    Serving,
    binding,
    destination,
    graph,
    no_vision,
    program,
    put,
    unbind,
)
from tests.contract.full_sample import (
    CONFIDENCE,
    CURSOR,
    ENCODE,
    RESTORE,
    ROWS,
    SCORED,
    SNAPSHOT,
    SPECULATIVE,
    TUNE,
    TUNED,
)
from tests.contract.sample import DECODE, MIXED, PREFILL

NONE = pb.TOOL_SYNTAX_NONE


def recipient_frames(serving: Serving) -> pb.FrontendContract:
    """Turn the frontend into recipient frames, valid as they stand."""
    frontend = serving.model.frontend
    frontend.tool_syntax = pb.TOOL_SYNTAX_RECIPIENT_FRAMES
    frontend.reasoning_syntax = pb.REASONING_SYNTAX_RECIPIENT_HEADERS
    frontend.tool_markers.generic_recipient = "functions"
    frontend.reasoning_markers.ClearField("reasoning")
    put(frontend.assistant, header_end="<m>", internal_end="<eom>")
    return frontend


def tuned_view(serving: Serving, access: int) -> pb.StateView:
    """A view of the tuned buffer that the decode graph accesses."""
    graph(serving, DECODE).accesses.add(view="tuned", access=access)
    return serving.model.state_views.add(name="tuned", buffer=TUNED, row_stride=64, row_nbytes=64, rows=1)


def no_speculation(serving: Serving, manifest: Manifest) -> None:
    serving.model.graphs.remove(graph(serving, SPECULATIVE))
    manifest.programs.remove(program(manifest, SPECULATIVE))
    manifest.ClearField("proposal_confidence")
    del serving.speculative_widths[:]


def no_tools_and_an_empty_terminal(serving: Serving, manifest: Manifest) -> None:
    frontend = serving.model.frontend
    frontend.tool_syntax = NONE
    frontend.ClearField("tool_markers")
    frontend.reasoning_markers.terminal_markers[:] = [""]


def beyond_32_bits(name: str, number: int) -> Edit:
    return lambda serving, manifest: put(binding(serving, SPECULATIVE, "one"), **{name: number})


def no_program(serving: Serving, manifest: Manifest, name: str) -> None:
    serving.model.graphs.remove(graph(serving, name))
    manifest.programs.remove(program(manifest, name))


BREAKS: list[tuple[str, str, Edit]] = [
    ("completion-layout", "'scores_capacity' is 31", lambda s, m: put(m.completion, scores_capacity=31)),
    ("completion-layout", "'score_nbytes' is 175", lambda s, m: put(m.completion, score_nbytes=175)),
    (
        "completion-layout",
        "'distribution_nbytes' is 8, not",
        lambda s, m: put(m.completion, distribution_nbytes=8),
    ),
    (
        "completion-layout",
        "'distribution_nbytes'",
        lambda s, m: put(m.completion, distributions_capacity=0, prompt_distributions_capacity=0),
    ),
    ("completion-layout", "needs 8,736 bytes", lambda s, m: put(m.completion, scores_capacity=33)),
    ("snapshots", "operation SNAPSHOT, none has RESTORE", lambda s, m: no_program(s, m, RESTORE)),
    ("snapshots", "operation RESTORE, none has SNAPSHOT", lambda s, m: no_program(s, m, SNAPSHOT)),
    ("snapshots", "'snapshot_count' is 1, the slots leave 0", lambda s, m: put(s, snapshot_count=1)),
    ("sampling-defaults", "'frequency_penalty' is 3", lambda s, m: put(s.sampling, frequency_penalty=3)),
    ("sampling-defaults", "'presence_penalty' is -3", lambda s, m: put(s.sampling, presence_penalty=-3)),
    # frontend
    (
        "syntax-pairs",
        "needs the tool syntax XTML",
        lambda s, m: put(s.model.frontend, reasoning_syntax=pb.REASONING_SYNTAX_XTML_THINK),
    ),
    (
        "syntax-pairs",
        "needs the tool syntax RECIPIENT_FRAMES",
        lambda s, m: put(recipient_frames(s), tool_syntax=pb.TOOL_SYNTAX_DSML),
    ),
    (
        "syntax-pairs",
        "needs the reasoning syntax RECIPIENT_HEADERS",
        lambda s, m: put(recipient_frames(s), reasoning_syntax=pb.REASONING_SYNTAX_THINK_TAGS),
    ),
    (
        "syntax-pairs",
        "the tool syntax XTML cannot carry",
        lambda s, m: put(s.model.frontend, tool_syntax=pb.TOOL_SYNTAX_XTML),
    ),
    ("syntax-data", "'tool_markers' is given", lambda s, m: put(s.model.frontend, tool_syntax=NONE)),
    ("syntax-data", "'tool_markers' is missing", lambda s, m: s.model.frontend.ClearField("tool_markers")),
    ("syntax-data", "'reasoning_markers' is mis", lambda s, m: s.model.frontend.ClearField("reasoning_markers")),
    ("syntax-data", "'assistant' is missing", lambda s, m: s.model.frontend.ClearField("assistant")),
    ("markers", "call, field 'opener' has 0", lambda s, m: put(s.model.frontend.tool_markers.call, opener="")),
    ("markers", "the opener too", lambda s, m: put(s.model.frontend.tool_markers.call, closer="<call>")),
    ("markers", "'tag_separator' has 201", lambda s, m: put(s.model.frontend.tool_markers, tag_separator="x" * 201)),
    ("markers", "is 'x' for FUNCTION_TAGS", lambda s, m: put(s.model.frontend.tool_markers, generic_recipient="x")),
    ("markers", "is '' for REC", lambda s, m: put(recipient_frames(s).tool_markers, generic_recipient="")),
    (
        "markers",
        "'newlines_after_closer' is 5",
        lambda s, m: put(s.model.frontend.reasoning_markers.reasoning, newlines_after_closer=5),
    ),
    (
        "markers",
        "headers delimit reasoning",
        lambda s, m: recipient_frames(s).reasoning_markers.reasoning.SetInParent(),
    ),
    ("markers", "'opener' has 0", lambda s, m: put(s.model.frontend.assistant, opener="")),
    ("markers", "without recipient headers", lambda s, m: put(s.model.frontend.assistant, header_end="<m>")),
    ("markers", "'internal_end' has 0", lambda s, m: put(recipient_frames(s).assistant, internal_end="")),
    (
        "reasoning-terminals",
        "the tool call's opener is '<call>'",
        lambda s, m: s.model.frontend.reasoning_markers.terminal_markers.append("<other>"),
    ),
    (
        "reasoning-terminals",
        "'<call>' twice",
        lambda s, m: s.model.frontend.reasoning_markers.terminal_markers.append("<call>"),
    ),
    (
        "reasoning-terminals",
        "no tool syntax is declared",
        lambda s, m: (put(s.model.frontend, tool_syntax=NONE), s.model.frontend.ClearField("tool_markers")),
    ),
    ("reasoning-terminals", "has '', no tool syntax is declared", no_tools_and_an_empty_terminal),
    (
        "prefix-boundaries",
        "role USER twice",
        lambda s, m: s.model.frontend.prefix_boundaries.append(s.model.frontend.prefix_boundaries[0]),
    ),
    # vision
    ("vision-parts", "'image_layout' selects nothing", lambda s, m: put(s.model.frontend, image_layout=1)),
    ("vision-parts", "'image_preparation' selects", lambda s, m: put(s.model.frontend, image_preparation=1)),
    ("vision-parts", "'image_tokens' selects", lambda s, m: s.model.frontend.ClearField("image_tokens")),
    ("vision-parts", "is given without vision", lambda s, m: s.model.ClearField("vision")),
    ("vision-capacities", "'feature_slots' is 0", lambda s, m: put(s.model.vision, feature_slots=0)),
    ("vision-capacities", "'window_features' is 0", lambda s, m: put(s.model.vision, window_features=0)),
    ("vision-capacities", "'patches_per_feature' is 0", lambda s, m: put(s.model.vision, patches_per_feature=0)),
    ("vision-capacities", "is empty", lambda s, m: s.model.vision.ClearField("patch_capacities")),
    ("vision-capacities", "has 16 behind 16", lambda s, m: s.model.vision.patch_capacities.append(16)),
    ("vision-capacities", "has 18, not 1", lambda s, m: s.model.vision.patch_capacities.append(18)),
    ("vision-capacities", "has 16, not 1 to 3", lambda s, m: put(s.model.vision, window_features=3)),
    ("vision-programs", "has 20, no program", lambda s, m: s.model.vision.patch_capacities.append(20)),
    (
        "vision-programs",
        "encodes 12 patches",
        lambda s, m: m.programs.add(
            name="x", batch_capacity=1, operation=execution.OPERATION_ENCODE_IMAGE, packed_token_capacity=12
        ),
    ),
    ("image-tokens", "'feature_tokens' is empty", lambda s, m: s.model.frontend.image_tokens.feature_tokens.pop()),
    ("image-tokens", "has token 97, input", lambda s, m: s.model.frontend.image_tokens.feature_tokens.append(97)),
    ("image-tokens", "token 96 is named twice", lambda s, m: s.model.frontend.image_tokens.feature_tokens.append(96)),
    (
        "image-tokens",
        "'atomic_spans' has token 99",
        lambda s, m: put(s.model.frontend.image_tokens.atomic_spans[0], closer=99),
    ),
    ("image-geometry", "'patch_pixels' is 0", lambda s, m: put(s.model.frontend.image_tokens, patch_pixels=0)),
    ("image-geometry", "'merged_patches' is 3", lambda s, m: put(s.model.frontend.image_tokens, merged_patches=3)),
    ("image-geometry", "encodes 64", lambda s, m: put(s.model.frontend.image_tokens, max_pixels=65)),
    ("image-geometry", "'channel_mean' is not", lambda s, m: s.model.frontend.image_tokens.channel_mean.pop()),
    (
        "image-geometry",
        "3 numbers above 0",
        lambda s, m: s.model.frontend.image_tokens.channel_deviation.__setitem__(0, 0.0),
    ),
    ("image-sources", "binding 'features', field 'source' is IMAGE_FEATURE", no_vision),
    (
        "binding-shapes",
        "no output of the image layout AXES",
        lambda s, m: put(binding(s, ENCODE, "grid"), image_tensor="other"),
    ),
    (
        "binding-shapes",
        "layout SEQUENTIAL",
        lambda s, m: put(s.model.frontend, image_layout=pb.IMAGE_LAYOUT_SEQUENTIAL),
    ),
    ("binding-shapes", "makes 44 bytes", lambda s, m: put(destination(m, "patches"), count=176, element_words=11)),
    ("binding-shapes", "room for 15 values", lambda s, m: put(destination(m, "patches"), count=180)),
    (
        "binding-values",
        "'image_tensor' is 'grid' for SLOT",
        lambda s, m: put(binding(s, DECODE, "lane_slot"), image_tensor="grid"),
    ),
    *(
        ("binding-values", f"{name!r} is {number:,}, it does not fit", beyond_32_bits(name, number))
        for name in ("constant", "padding", "offset")
        for number in (-(1 << 31) - 1, 1 << 31)
    ),
    ("program-extents", "not 1 to 1,048,576 patches", lambda s, m: put(program(m, ENCODE), packed_token_capacity=0)),
    # sources and state rows
    ("source-operations", "binds no SCORED_TARGETS", lambda s, m: unbind(s, SCORED, "targets")),
    ("source-operations", "binds no RESTORE_SOURCE", lambda s, m: unbind(s, RESTORE, "restore_source")),
    ("source-operations", "binds no SNAPSHOT_DEST", lambda s, m: unbind(s, SNAPSHOT, "snapshot_row")),
    (
        "source-operations",
        "binds no IMAGE_TENSOR",
        lambda s, m: (unbind(s, ENCODE, "patches"), unbind(s, ENCODE, "grid")),
    ),
    (
        "source-operations",
        "is SCORED_TARGETS, which PREFILL does not have",
        lambda s, m: put(binding(s, PREFILL, "prompt_tokens"), source=pb.VALUE_SOURCE_SCORED_TARGETS),
    ),
    (
        "source-operations",
        "is SPECULATIVE_PREFIX_LIMIT, which MIXED does not have",
        lambda s, m: put(binding(s, MIXED, "lane_query_length"), source=pb.VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT),
    ),
    ("state-row-sources", "LIVE_STATE_ROW, no region has rows", lambda s, m: s.model.cache.regions.pop()),
    ("cache-regions", "region 1, field 'views' is empty", lambda s, m: s.model.cache.regions[1].views.pop()),
    ("cache-regions", "region 1, field 'views' names 'x'", lambda s, m: s.model.cache.regions[1].views.append("x")),
    ("cache-regions", "region 1, field 'planes' is given", lambda s, m: s.model.cache.regions[1].planes.append(5)),
    ("cache-regions", "'tokens_per_record' is given", lambda s, m: put(s.model.cache.regions[1], tokens_per_record=1)),
    ("cache-regions", "region 0, field 'views' names", lambda s, m: s.model.cache.regions[0].views.append("rows")),
    (
        "cache-regions",
        "'window_tokens' is 0 for SLIDING_WINDOW",
        lambda s, m: put(s.model.cache.regions[0], kind=pb.REGION_KIND_SLIDING_WINDOW),
    ),
    ("state-rows", "two cache regions", lambda s, m: s.model.cache.regions.append(s.model.cache.regions[1])),
    ("state-rows", "the slots need 12", lambda s, m: put(graph(s, SPECULATIVE), state_rows_per_request=3)),
    (
        "state-rows",
        "no graph has 'state_rows_per_request'",
        lambda s, m: [put(graph_, state_rows_per_request=0) for graph_ in s.model.graphs],
    ),
    (
        "pending-token",
        "'cursor', which has 3 rows of 4",
        lambda s, m: (put(s.model.state_views[3], rows=3), put(graph(s, DECODE), pending_view="cursor")),
    ),
    # speculation
    (
        "program-extents",
        "of width 1 draws nothing",
        lambda s, m: put(program(m, SPECULATIVE), token_capacity=1, packed_token_capacity=4),
    ),
    ("length-source", "binds 0 length", lambda s, m: unbind(s, SPECULATIVE, "limits")),
    ("length-source", "'confidence_width' is 0", lambda s, m: put(program(m, SPECULATIVE), confidence_width=0)),
    ("confidence-width", "is 2, it draws 3", lambda s, m: put(program(m, SPECULATIVE), confidence_width=2)),
    ("confidence-width", "is 1, it draws 0", lambda s, m: put(program(m, DECODE), confidence_width=1)),
    ("proposal-confidence", "is missing", lambda s, m: m.ClearField("proposal_confidence")),
    ("proposal-confidence", "no state buffer", lambda s, m: put(m.proposal_confidence, buffer=sample.SCRATCH)),
    ("proposal-confidence", "no state buffer", lambda s, m: put(m.proposal_confidence, buffer=sample.PAGE_TABLE)),
    ("proposal-confidence", "'draft_capacity' is 2", lambda s, m: put(m.proposal_confidence, draft_capacity=2)),
    ("proposal-confidence", "has 128 bytes", lambda s, m: put(m.proposal_confidence, draft_capacity=4)),
    ("proposal-confidence", "has 100", lambda s, m: put(m.buffers[CONFIDENCE], nbytes=100)),
    ("copied-proposals", "without PROPOSAL_COUNT", lambda s, m: unbind(s, SPECULATIVE, "copied_count")),
    ("copied-proposals", "without PROPOSAL_TOKENS", lambda s, m: unbind(s, SPECULATIVE, "copied")),
    ("draft-cursor", "names 'x'", lambda s, m: put(s.model.cache.draft_cursor, view="x")),
    ("draft-cursor", "3 rows of 4", lambda s, m: put(s.model.state_views[3], rows=3)),
    ("draft-cursor", "'lag_tokens' is 128", lambda s, m: put(s.model.cache.draft_cursor, lag_tokens=128)),
    ("draft-cursor", "no graph speculates", no_speculation),
    # tuning
    ("tuned-buffers", "no state buffer", lambda s, m: put(m.buffers[sample.SCRATCH], producer=TUNE)),
    ("tuned-buffers", "no tuning program", lambda s, m: put(m.buffers[TUNED], producer=DECODE)),
    ("tuned-bindings", "no tuning program", lambda s, m: put(graph(s, SPECULATIVE).tuned_bindings[0], producer="x")),
    ("tuned-bindings", "the manifest says ''", lambda s, m: put(graph(s, SPECULATIVE).tuned_bindings[0], buffer=ROWS)),
    ("tuned-bindings", "says no buffer", lambda s, m: put(graph(s, SPECULATIVE).tuned_bindings[0], buffer=99)),
    (
        "tuned-bindings",
        "declared twice",
        lambda s, m: graph(s, SPECULATIVE).tuned_bindings.append(graph(s, SPECULATIVE).tuned_bindings[0]),
    ),
    ("tuned-outputs", "it is a page table", lambda s, m: put(m.buffers[sample.PAGE_TABLE], producer=TUNE)),
    ("tuned-outputs", "it holds confidence", lambda s, m: put(m.buffers[CONFIDENCE], producer=TUNE)),
    ("tuned-outputs", "writes a tuned buffer", lambda s, m: tuned_view(s, pb.ACCESS_WRITE)),
    ("tuned-outputs", "region lies in a tuned", lambda s, m: put(m.buffers[ROWS], producer=TUNE)),
    (
        "tuning-writes",
        "node 0 writes buffer 'cursor'",
        lambda s, m: put(m.tuning_programs[0].nodes[0].fill, destination=CURSOR, nbytes=4),
    ),
    # manifest
    (
        "program-names",
        "4,107 programs",
        lambda s, m: m.programs.extend(execution.Program(operation=execution.OPERATION_DECODE) for _ in range(4097)),
    ),
    ("ranks", "'rank' is 5", lambda s, m: put(m.ranks[1], rank=5)),
    ("ranks", "names no weight", lambda s, m: put(m.ranks[1].weights[0], buffer=sample.KV)),
    ("ranks", "'resource' is empty", lambda s, m: put(m.ranks[1].weights[0], resource="")),
    ("ranks", "two resources", lambda s, m: m.ranks[1].weights.append(m.ranks[1].weights[0])),
    ("ranks", "65 ranks", lambda s, m: m.ranks.extend(execution.RankSection() for _ in range(63))),
    ("node-order", "names node 0 twice", lambda s, m: program(m, DECODE).nodes[1].depends_on.append(0)),
    (
        "relocations",
        "'argument_offset' is 16 twice",
        lambda s, m: program(m, DECODE).nodes[0].kernel.relocations.add(argument_offset=16),
    ),
]
