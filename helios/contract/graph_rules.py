"""Rules over graphs: each program's contract, its value bindings, its accesses and its pending token.

They rely on the rules over the manifest and over state, and know no kernel. A graph that passes can be packed: every value
fits the destination that its binding names.
"""

from __future__ import annotations

from helios.contract.enums import Access, Operation, ValueSource
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import contract_pb2 as contract
from helios.contract.schema import execution_pb2 as execution
from helios.contract.sources import Geometry, mismatches

REQUIRED_OPERATIONS = (execution.OPERATION_INITIALIZE, execution.OPERATION_PREFILL, execution.OPERATION_DECODE)
TOKEN_NBYTES = 4  # int32
_CONSUMERS = (execution.OPERATION_DECODE, execution.OPERATION_MIXED, execution.OPERATION_SPECULATIVE)
# Operations that produce the pending token of a lane.
_PRODUCERS = (
    *_CONSUMERS,
    execution.OPERATION_INITIALIZE,
    execution.OPERATION_PREFILL,
    execution.OPERATION_SCORED_PREFILL,
    execution.OPERATION_RESUME,
    execution.OPERATION_RESTORE,
)
# Sources that only these operations have, and sources that an operation cannot do without.
_ONLY_IN: dict[ValueSource, tuple[Operation, ...]] = {
    ValueSource.SCORED_TARGETS: (Operation.SCORED_PREFILL,),
    ValueSource.COMPLETED_PENDING_TOKEN: (Operation.DECODE, Operation.MIXED, Operation.SPECULATIVE),
    **dict.fromkeys(
        (
            ValueSource.SPECULATIVE_PREFIX_LIMIT,
            ValueSource.PROPOSAL_TOKENS,
            ValueSource.PROPOSAL_COUNT,
            ValueSource.PROPOSAL_GENERATION,
            ValueSource.PROPOSAL_CONSUMED,
            ValueSource.PROPOSAL_GRAMMAR_MASKS,
        ),
        (Operation.SPECULATIVE,),
    ),
}
_NEEDED_BY: dict[Operation, tuple[ValueSource, ...]] = {
    Operation.SCORED_PREFILL: (ValueSource.SCORED_TARGETS,),
    Operation.RESTORE: (ValueSource.RESTORE_SOURCE,),
    Operation.SNAPSHOT: (ValueSource.SNAPSHOT_DESTINATION,),
    Operation.ENCODE_IMAGE: (ValueSource.IMAGE_FEATURE_SLOT, ValueSource.IMAGE_TENSOR),
}
_STATE_ROWS = (
    contract.VALUE_SOURCE_LIVE_STATE_ROW,
    contract.VALUE_SOURCE_RESTORE_SOURCE,
    contract.VALUE_SOURCE_SNAPSHOT_DESTINATION,
)
_PREFILLING = (execution.OPERATION_PREFILL, execution.OPERATION_MIXED, execution.OPERATION_SCORED_PREFILL)


@rule("graph-programs", "each captured program has exactly one contract")
def graph_programs(subject: Subject) -> Violations:
    names = [graph.program for graph in subject.model.graphs]
    for name in names:
        if name not in subject.programs:
            yield f"graph {name!r}, field 'program' names no program of the manifest"
    for name in repeated(names):
        yield f"graph {name!r} is declared twice"
    for name in sorted(subject.programs.keys() - set(names)):
        yield f"program {name!r} has no graph contract"


@rule("graph-operations", "the contract and the execution catalog agree on what a program does")
def graph_operations(subject: Subject) -> Violations:
    for graph, program in subject.graphs():
        if graph.operation != program.operation:
            says, catalog = Operation(graph.operation).name, Operation(program.operation).name
            yield f"graph {graph.program!r}, field 'operation' is {says}, the manifest says {catalog}"


@rule("required-operations", "a request is initialised, prefilled and decoded")
def required_operations(subject: Subject) -> Violations:
    present = {graph.operation for graph in subject.model.graphs}
    for operation in REQUIRED_OPERATIONS:
        if operation not in present:
            yield f"no graph has the operation {Operation(operation).name}"


@rule("prefill-extent", "a prefill chunk fits a program")
def prefill_extent(subject: Subject) -> Violations:
    largest = max(program.packed_token_capacity for _, program in subject.graphs(*_PREFILLING))
    if subject.serving.prefill_tokens > largest:
        yield f"field 'prefill_tokens' is {subject.serving.prefill_tokens:,}, the largest program feeds {largest:,}"


@rule("decode-extent", "a program decodes every request that may be active")
def decode_extent(subject: Subject) -> Violations:
    largest = max(program.batch_capacity for _, program in subject.graphs(execution.OPERATION_DECODE))
    if subject.serving.concurrency > largest:
        yield f"field 'concurrency' is {subject.serving.concurrency:,}, the largest decode has {largest:,} rows"


@rule("binding-destinations", "a value has one place in a graph, and it is registered")
def binding_destinations(subject: Subject) -> Violations:
    for graph in subject.model.graphs:
        for binding in graph.bindings:
            if binding.destination not in subject.destinations:
                yield (
                    f"graph {graph.program!r}, binding {binding.destination!r}, "
                    "field 'destination' names no destination of the manifest"
                )
        for name in repeated(binding.destination for binding in graph.bindings):
            yield f"graph {graph.program!r}, binding {name!r}, field 'destination' is bound twice"


@rule("binding-shapes", "a value fits the destination that it is written to")
def binding_shapes(subject: Subject) -> Violations:
    for graph, program in subject.graphs():
        geometry = Geometry.of(subject.model, subject.manifest, program)
        for binding in graph.bindings:
            for problem in mismatches(binding, subject.destinations[binding.destination], geometry):
                yield f"graph {graph.program!r}, binding {binding.destination!r}, {problem}"


@rule("binding-values", "a number that would be ignored is a mistake")
def binding_values(subject: Subject) -> Violations:
    for graph in subject.model.graphs:
        for binding in graph.bindings:
            where = f"graph {graph.program!r}, binding {binding.destination!r}"
            if binding.constant and binding.source != contract.VALUE_SOURCE_CONSTANT:
                yield f"{where}, field 'constant' is {binding.constant} for {ValueSource(binding.source).name}"
            if binding.image_tensor and binding.source != contract.VALUE_SOURCE_IMAGE_TENSOR:
                yield f"{where}, field 'image_tensor' is {binding.image_tensor!r} for {ValueSource(binding.source).name}"
            for name in ("constant", "padding", "offset"):
                if not -(1 << 31) <= getattr(binding, name) < 1 << 31:
                    yield f"{where}, field {name!r} is {getattr(binding, name):,}, it does not fit 32 bits"


@rule("source-operations", "a value is bound by the operations that have it, and by those that cannot do without")
def source_operations(subject: Subject) -> Violations:
    for graph in subject.model.graphs:
        where, operation = f"graph {graph.program!r}", Operation(graph.operation)
        sources = {ValueSource(binding.source) for binding in graph.bindings}
        for source in sorted(sources):
            if operation not in _ONLY_IN.get(source, (operation,)):
                yield f"{where}, field 'source' is {source.name}, which {operation.name} does not have"
        for source in _NEEDED_BY.get(operation, ()):
            if source not in sources:
                yield f"{where} binds no {source.name}, which {operation.name} needs"


@rule("state-row-sources", "rows of state exist where a cache region keeps them")
def state_row_sources(subject: Subject) -> Violations:
    if any(region.views for region in subject.model.cache.regions):
        return
    for graph in subject.model.graphs:
        for binding in graph.bindings:
            if binding.source in _STATE_ROWS:
                name = ValueSource(binding.source).name
                yield f"graph {graph.program!r}, binding {binding.destination!r} has the source {name}, no region has rows"


@rule("access-views", "an access names a state view, once")
def access_views(subject: Subject) -> Violations:
    for graph in subject.model.graphs:
        for access in graph.accesses:
            if access.view not in subject.views:
                yield f"graph {graph.program!r}, access {access.view!r}, field 'view' names no state view"
        for name in repeated(access.view for access in graph.accesses):
            yield f"graph {graph.program!r}, access {name!r} is declared twice"


@rule("pending-token", "a graph that continues a request knows where its pending token is (CON-10)")
def pending_token(subject: Subject) -> Violations:
    for graph in subject.model.graphs:
        where = f"graph {graph.program!r}"
        owner = graph.WhichOneof("pending_token")
        if owner is None:
            if graph.operation in _CONSUMERS:
                yield f"{where}, field 'pending_token' is missing, {Operation(graph.operation).name} consumes it"
        elif owner == "pending_destination":
            sources = [b.source for b in graph.bindings if b.destination == graph.pending_destination]
            if sources != [contract.VALUE_SOURCE_COMPLETED_PENDING_TOKEN]:
                yield f"{where}, field 'pending_destination' is {graph.pending_destination!r}, not bound to that token"
        elif (view := subject.views.get(graph.pending_view)) is None:
            yield f"{where}, field 'pending_view' names {graph.pending_view!r}, which is no state view"
        elif view.rows < subject.manifest.request_slots or view.row_nbytes < TOKEN_NBYTES:
            says = f"{view.rows:,} rows of {view.row_nbytes:,} bytes"
            yield f"{where}, field 'pending_view' names {graph.pending_view!r}, which has {says}"


@rule("pending-accesses", "who consumes a device-owned token reads its view, and who produces it writes it (CON-10)")
def pending_accesses(subject: Subject) -> Violations:
    consumed = {graph.pending_view for graph, _ in subject.graphs(*_CONSUMERS) if graph.pending_view}
    for graph in subject.model.graphs:
        where = f"graph {graph.program!r}"
        accesses = {access.view: Access(access.access) for access in graph.accesses}
        if graph.pending_view:
            access = accesses.get(graph.pending_view)
            if graph.operation in _CONSUMERS and (access is None or not access.reads):
                yield f"{where}, field 'pending_view' names {graph.pending_view!r}, which it does not read"
            if graph.operation in _PRODUCERS and (access is None or not access.writes):
                yield f"{where}, field 'pending_view' names {graph.pending_view!r}, which it does not write"
        if graph.operation == execution.OPERATION_PREFILL:
            for view in sorted(consumed):
                if view not in accesses or not accesses[view].writes:
                    yield f"{where}, field 'accesses' lacks a write of {view!r}, the pending token that decoding reads"


RULES: tuple[Rule, ...] = (
    graph_programs,
    graph_operations,
    required_operations,
    prefill_extent,
    decode_extent,
    binding_destinations,
    binding_shapes,
    binding_values,
    source_operations,
    state_row_sources,
    access_views,
    pending_token,
    pending_accesses,
)
