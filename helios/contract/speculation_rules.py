"""Rules over speculative programs: widths, length sources, confidence, copied proposals, the draft cursor (SPEC-1 to SPEC-5).

They rely on the rules over graphs and state. A speculative graph that passes says where its lengths come from and how wide its
confidence is, so ownership of the allocation follows from the bindings alone.
"""

from __future__ import annotations

from helios.contract.enums import ValueSource
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import contract_pb2 as contract
from helios.contract.schema import execution_pb2 as execution

CONFIDENCE_FRAMES = 2
CONFIDENCE_ITEM_NBYTES = 4  # float32
CURSOR_NBYTES = 4  # int32
_COPIED = (
    ValueSource.PROPOSAL_TOKENS,
    ValueSource.PROPOSAL_COUNT,
    ValueSource.PROPOSAL_GENERATION,
    ValueSource.PROPOSAL_CONSUMED,
)


@rule("speculative-widths", "a width is selected among captured programs")
def speculative_widths(subject: Subject) -> Violations:
    captured = {program.token_capacity for _, program in subject.graphs(execution.OPERATION_SPECULATIVE)}
    for width in subject.serving.speculative_widths:
        if width not in captured:
            yield f"field 'speculative_widths' has {width}, no speculative program has that token capacity"
    for width in repeated(subject.serving.speculative_widths):
        yield f"field 'speculative_widths' has {width} twice"


@rule("length-source", "lengths of a speculative round come from one place (SPEC-3)")
def length_source(subject: Subject) -> Violations:
    for graph, program in subject.graphs(execution.OPERATION_SPECULATIVE):
        sources = {binding.source for binding in graph.bindings}
        bound = sources & {contract.VALUE_SOURCE_QUERY_LENGTH, contract.VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT}
        if len(bound) != 1:
            yield f"graph {graph.program!r} binds {len(bound)} length sources, not 1"
        if contract.VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT in bound and not program.confidence_width:
            yield f"graph {graph.program!r} allocates prefixes, field 'confidence_width' is 0"


@rule("confidence-width", "a program has one confidence for each proposal that it draws (SPEC-5)")
def confidence_width(subject: Subject) -> Violations:
    for program in (*subject.manifest.programs, *subject.manifest.tuning_programs):
        if program.confidence_width not in (0, program.draft_tokens):
            yield (
                f"graph {program.name!r}, field 'confidence_width' is {program.confidence_width:,}, "
                f"it draws {program.draft_tokens:,} proposals"
            )


@rule("proposal-confidence", "confidence is float32 [2][request slots][draft capacity] in a buffer of its own (SPEC-5)")
def proposal_confidence(subject: Subject) -> Violations:
    manifest = subject.manifest
    widest = max((program.confidence_width for program in manifest.programs), default=0)
    if manifest.HasField("proposal_confidence") != (widest > 0):
        yield f"field 'proposal_confidence' is {'missing' if widest else 'given'}, the widest program has {widest:,}"
    if not widest:
        return
    layout = manifest.proposal_confidence
    buffer = subject.buffer(layout.buffer)
    if buffer is None or buffer.kind != execution.BUFFER_KIND_STATE or buffer.id in subject.page_table_ids:
        yield f"proposal_confidence, field 'buffer' is {layout.buffer}, which is no state buffer of its own"
        return
    if layout.draft_capacity < widest:
        yield f"proposal_confidence, field 'draft_capacity' is {layout.draft_capacity:,}, a program has {widest:,}"
    nbytes = CONFIDENCE_FRAMES * manifest.request_slots * layout.draft_capacity * CONFIDENCE_ITEM_NBYTES
    if buffer.nbytes != nbytes:
        yield f"proposal_confidence has {nbytes:,} bytes, its buffer {buffer.name!r} has {buffer.nbytes:,}"


@rule("copied-proposals", "copied tokens come with what says whether they still hold (SPEC-9)")
def copied_proposals(subject: Subject) -> Violations:
    for graph, program in subject.graphs(execution.OPERATION_SPECULATIVE):
        sources = {ValueSource(binding.source) for binding in graph.bindings}
        if not sources & {*_COPIED, ValueSource.PROPOSAL_GRAMMAR_MASKS}:
            continue
        for source in _COPIED:
            if source not in sources:
                yield f"graph {graph.program!r} binds copied proposals without {source.name}"
        if not program.draft_tokens:
            yield f"graph {graph.program!r} binds copied proposals, field 'draft_tokens' is 0"


@rule("draft-cursor", "a cursor is committed state that a view names (CACHE-4)")
def draft_cursor(subject: Subject) -> Violations:
    cache = subject.model.cache
    if not cache.HasField("draft_cursor"):
        return
    cursor = cache.draft_cursor
    view = subject.views.get(cursor.view)
    if view is None:
        yield f"draft cursor, field 'view' names {cursor.view!r}, which is no state view"
    elif view.rows < subject.manifest.request_slots or view.row_nbytes < CURSOR_NBYTES:
        yield f"draft cursor, field 'view' names {cursor.view!r}: {view.rows:,} rows of {view.row_nbytes:,} bytes"
    if cursor.lag_tokens >= subject.serving.context_tokens:
        yield f"draft cursor, field 'lag_tokens' is {cursor.lag_tokens:,} of {subject.serving.context_tokens:,} tokens"
    if not any(True for _ in subject.graphs(execution.OPERATION_SPECULATIVE)):
        yield "cache, field 'draft_cursor' is given, no graph speculates"


RULES: tuple[Rule, ...] = (
    speculative_widths,
    length_source,
    confidence_width,
    proposal_confidence,
    copied_proposals,
    draft_cursor,
)
