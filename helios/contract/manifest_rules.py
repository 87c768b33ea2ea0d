"""Rules over the execution manifest: buffers, programs and their nodes, destinations, the completion record.

They know no meaning of values and no kernel: whether a launch stays inside its buffers is for the loader, who has the
kernel library. Every buffer id, offset and length in a manifest that passes lies inside a buffer of the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator

from helios.contract.enums import ElementType
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import execution_pb2 as execution

MAX_BUFFER_NBYTES = 1 << 40
MAX_PAGE_NBYTES = 1 << 32
MAX_ROWS = 1 << 20
MAX_RANKS = 64
MAX_PROGRAMS = 4096
COMPLETION_HEADER_NBYTES = 32  # HeliosCompletionHeader and HeliosCompletionLane of kernels.h (ABI 6)
COMPLETION_LANE_NBYTES = 224
SCORE_NBYTES = 176  # HeliosSample
DISTRIBUTION_HEAD_NBYTES = 16  # before the logits of a distribution

# Operations that turn rows of tokens into keys and values.
TOKEN_OPERATIONS = (
    execution.OPERATION_PREFILL,
    execution.OPERATION_DECODE,
    execution.OPERATION_MIXED,
    execution.OPERATION_SCORED_PREFILL,
    execution.OPERATION_SPECULATIVE,
)


@rule("buffer-ids", "a buffer is named by its index")
def buffer_ids(subject: Subject) -> Violations:
    for index, buffer in enumerate(subject.manifest.buffers):
        if buffer.id != index:
            yield f"buffer {buffer.name!r}, field 'id' is {buffer.id}, its index is {index}"
    names = [buffer.name for buffer in subject.manifest.buffers]
    if "" in names:
        yield f"buffer {names.index('')}, field 'name' is empty"
    for name in repeated(names):
        yield f"buffer {name!r} is declared twice"


@rule("buffer-sizes", "memory is bounded before it is allocated")
def buffer_sizes(subject: Subject) -> Violations:
    for buffer in subject.manifest.buffers:
        is_plane = buffer.kind == execution.BUFFER_KIND_CACHE_PLANE
        low, high = (0, 0) if is_plane else (1, MAX_BUFFER_NBYTES)
        if not low <= buffer.nbytes <= high:
            yield f"buffer {buffer.name!r}, field 'nbytes' is {buffer.nbytes:,}, not {low:,} to {high:,}"
        low, high = (1, MAX_PAGE_NBYTES) if is_plane else (0, 0)
        if not low <= buffer.page_nbytes <= high:
            yield f"buffer {buffer.name!r}, field 'page_nbytes' is {buffer.page_nbytes:,}, not {low:,} to {high:,}"


@rule("buffer-resources", "weights, and they alone, are filled from a resource of the core")
def buffer_resources(subject: Subject) -> Violations:
    for buffer in subject.manifest.buffers:
        if bool(buffer.resource) != (buffer.kind == execution.BUFFER_KIND_WEIGHT):
            says = f"names {buffer.resource!r}, it is no weight" if buffer.resource else "is empty, it is a weight"
            yield f"buffer {buffer.name!r}, field 'resource' {says}"


@rule("program-names", "graphs and completions find their program by name and index")
def program_names(subject: Subject) -> Violations:
    manifest = subject.manifest
    names = [program.name for program in (*manifest.programs, *manifest.tuning_programs)]
    if len(names) > MAX_PROGRAMS:
        yield f"{len(names):,} programs are captured, at most {MAX_PROGRAMS:,} are served"
    if "" in names:
        yield f"program {names.index('')}, field 'name' is empty"
    for name in repeated(names):
        yield f"program {name!r} is declared twice"
    for program in manifest.programs:
        if program.operation == execution.OPERATION_TUNE:
            yield f"program {program.name!r}, field 'operation' is TUNE, which belongs to the tuning catalog"
    for program in manifest.tuning_programs:
        if program.operation != execution.OPERATION_TUNE:
            yield f"tuning program {program.name!r}, field 'operation' is not TUNE"


@rule("program-extents", "B, D, W and P bound every round that the scheduler may build")
def program_extents(subject: Subject) -> Violations:
    for program in subject.manifest.programs:
        for problem in _extent_problems(program, subject.manifest.request_slots):
            yield f"graph {program.name!r}, {problem}"


def _extent_problems(program: execution.Program, n_slots: int) -> Iterator[str]:
    batch, draft = program.batch_capacity, program.draft_tokens
    tokens, packed = program.token_capacity, program.packed_token_capacity
    is_speculative = program.operation == execution.OPERATION_SPECULATIVE
    if not 0 < batch <= n_slots:
        yield f"field 'batch_capacity' is {batch:,}, not 1 to {n_slots:,} (the request slots)"
    if draft and not is_speculative:
        yield f"field 'draft_tokens' is {draft:,} without speculation"
    if program.operation == execution.OPERATION_ENCODE_IMAGE and not 0 < packed <= MAX_ROWS:
        yield f"field 'packed_token_capacity' is {packed:,}, not 1 to {MAX_ROWS:,} patches"
    if program.operation not in TOKEN_OPERATIONS:
        return
    if not 0 < packed <= MAX_ROWS:
        yield f"field 'packed_token_capacity' is {packed:,}, not 1 to {MAX_ROWS:,}"
    if not 0 < tokens <= packed:
        yield f"field 'token_capacity' is {tokens:,}, not 1 to {packed:,} (the packed tokens)"
    if program.operation == execution.OPERATION_DECODE and tokens != 1:
        yield f"field 'token_capacity' is {tokens:,}, a decode feeds 1 token of each request"
    if program.operation not in (execution.OPERATION_PREFILL, execution.OPERATION_SCORED_PREFILL) and packed < batch:
        yield f"field 'packed_token_capacity' is {packed:,}, {batch:,} rows have a pending token each"
    if is_speculative and packed > batch * tokens:
        yield f"field 'packed_token_capacity' is {packed:,}, more than {batch:,} x {tokens:,}"
    if draft and tokens == 1:
        yield f"field 'draft_tokens' is {draft:,}, a program of width 1 draws nothing"


@rule("node-order", "a program is a graph without cycles: a node depends on earlier ones")
def node_order(subject: Subject) -> Violations:
    for program, index, node in nodes(subject):
        if node.WhichOneof("work") is None:
            yield f"graph {program.name!r}, node {index} does nothing"
        for earlier in node.depends_on:
            if earlier >= index:
                yield f"graph {program.name!r}, node {index}, field 'depends_on' names node {earlier}"
        for earlier in repeated(node.depends_on):
            yield f"graph {program.name!r}, node {index}, field 'depends_on' names node {earlier} twice"


@rule("relocations", "a kernel's pointers lead into buffers of the manifest")
def relocations(subject: Subject) -> Violations:
    limits = _limits(subject)
    for program, index, node in nodes(subject):
        offsets = []
        for relocation in node.kernel.relocations:
            where = relocation.buffer
            offsets.append(relocation.argument_offset)
            if where >= len(limits):
                yield f"graph {program.name!r}, node {index} names buffer {where}, the manifest has {len(limits)}"
            elif relocation.offset >= limits[where]:
                yield (
                    f"graph {program.name!r}, node {index} points to byte {relocation.offset:,} of buffer {where}, "
                    f"which has {limits[where]:,}"
                )
        for offset in repeated(offsets):
            yield f"graph {program.name!r}, node {index}, field 'argument_offset' is {offset} twice"


@rule("node-ranges", "a node touches bytes of its buffers only, and weights are never written")
def node_ranges(subject: Subject) -> Violations:
    limits = _limits(subject)
    read_only = {buffer.id for buffer in subject.manifest.buffers if buffer.kind == execution.BUFFER_KIND_WEIGHT}
    for program, index, node in nodes(subject):
        for buffer, offset, nbytes, is_write in touches(node):
            where = f"graph {program.name!r}, node {index}"
            if buffer >= len(limits):
                yield f"{where} names buffer {buffer}, the manifest has {len(limits)}"
            elif offset + nbytes > limits[buffer] or nbytes == 0:
                yield f"{where} touches {nbytes:,} bytes at {offset:,} of buffer {buffer}, which has {limits[buffer]:,}"
            elif is_write and buffer in read_only:
                yield f"{where} writes buffer {buffer}, a weight"


def _limits(subject: Subject) -> list[int]:
    """The bytes of each buffer; of a cache plane, those of page 0."""
    return [buffer.nbytes or buffer.page_nbytes for buffer in subject.manifest.buffers]


def nodes(subject: Subject) -> Iterator[tuple[execution.Program, int, execution.Node]]:
    for program in (*subject.manifest.programs, *subject.manifest.tuning_programs):
        for index, node in enumerate(program.nodes):
            yield program, index, node


def touches(node: execution.Node) -> Iterator[tuple[int, int, int, bool]]:
    """(buffer, offset, bytes, whether written) of a node that is no kernel."""
    work = node.WhichOneof("work")
    if work == "copy":
        yield node.copy.source, node.copy.source_offset, node.copy.nbytes, False
        yield node.copy.destination, node.copy.destination_offset, node.copy.nbytes, True
    elif work == "fill":
        yield node.fill.destination, node.fill.destination_offset, node.fill.nbytes, True
    elif work == "collective":
        itemsize = ElementType(node.collective.element_type).dtype.itemsize
        yield node.collective.buffer, node.collective.offset, node.collective.count * itemsize, True


@rule("fill-values", "a fill repeats one byte")
def fill_values(subject: Subject) -> Violations:
    for program, index, node in nodes(subject):
        if node.fill.value > 255:
            yield f"graph {program.name!r}, node {index}, field 'value' is {node.fill.value}, not 0 to 255"


@rule("destination-places", "staging is copied from byte 0 on, so destinations stand in order and apart")
def destination_places(subject: Subject) -> Violations:
    ends: dict[int, int] = {}
    for destination in subject.manifest.destinations:
        where = f"destination {destination.name!r}"
        buffer = subject.buffer(destination.buffer)
        itemsize = ElementType(destination.element_type).dtype.itemsize
        if buffer is None or buffer.kind != execution.BUFFER_KIND_INPUT:
            yield f"{where}, field 'buffer' is {destination.buffer}, which is no input buffer"
            continue
        words = destination.element_words
        if not words or not destination.count or destination.count % words:
            yield f"{where}, field 'count' is {destination.count:,}, no multiple of the {words:,} words of one index"
        if destination.offset % itemsize:
            yield f"{where}, field 'offset' is {destination.offset:,}, not a multiple of its {itemsize}-byte elements"
        end = ends.get(buffer.id, 0)
        if destination.offset < end:
            yield f"{where}, field 'offset' is {destination.offset:,}, the destination before it ends at {end:,}"
        ends[buffer.id] = destination.offset + destination.count * itemsize
        if ends[buffer.id] > buffer.nbytes:
            yield f"{where} ends at byte {ends[buffer.id]:,}, its buffer {buffer.name!r} at {buffer.nbytes:,}"


@rule("destination-names", "bindings find their destination by name")
def destination_names(subject: Subject) -> Violations:
    names = [destination.name for destination in subject.manifest.destinations]
    if "" in names:
        yield f"destination {names.index('')}, field 'name' is empty"
    for name in repeated(names):
        yield f"destination {name!r} is declared twice"


@rule("completion-layout", "the completion record has the layout of ABI 6 and a lane for every row of a batch")
def completion_layout(subject: Subject) -> Violations:
    layout = subject.manifest.completion
    buffer = subject.buffer(layout.buffer)
    if not subject.manifest.HasField("completion"):
        yield "field 'completion' is missing"
    elif buffer is None or buffer.kind != execution.BUFFER_KIND_COMPLETION:
        yield f"completion, field 'buffer' is {layout.buffer}, which is no completion buffer"
    elif (layout.header_nbytes, layout.lane_nbytes) != (COMPLETION_HEADER_NBYTES, COMPLETION_LANE_NBYTES):
        yield (
            f"completion has {layout.header_nbytes} bytes of header and {layout.lane_nbytes} a lane, "
            f"not {COMPLETION_HEADER_NBYTES} and {COMPLETION_LANE_NBYTES}"
        )
    else:
        n_lanes = max((program.batch_capacity for program in subject.manifest.programs), default=0)
        if layout.lanes_capacity < n_lanes:
            yield f"completion, field 'lanes_capacity' is {layout.lanes_capacity:,}, a program has {n_lanes:,} lanes"
        yield from _score_problems(subject, layout)
        yield from _distribution_problems(subject, layout)
        lanes_nbytes = layout.lanes_capacity * layout.lane_nbytes
        scores_nbytes = layout.scores_capacity * layout.score_nbytes
        n_distributions = layout.distributions_capacity + layout.prompt_distributions_capacity
        distributions_nbytes = n_distributions * layout.distribution_nbytes
        nbytes = layout.header_nbytes + lanes_nbytes + scores_nbytes + distributions_nbytes
        if nbytes > buffer.nbytes:
            yield f"completion needs {nbytes:,} bytes, its buffer {buffer.name!r} has {buffer.nbytes:,}"


def _score_problems(subject: Subject, layout: execution.CompletionLayout) -> Violations:
    scored = [p for p in subject.manifest.programs if p.operation == execution.OPERATION_SCORED_PREFILL]
    n_rows = max((program.packed_token_capacity for program in scored), default=0)
    if 0 < layout.scores_capacity < n_rows:
        yield f"completion, field 'scores_capacity' is {layout.scores_capacity:,}, a program scores {n_rows:,} tokens"
    if layout.score_nbytes != (SCORE_NBYTES if layout.scores_capacity else 0):
        yield f"completion, field 'score_nbytes' is {layout.score_nbytes}, a score has {SCORE_NBYTES}"


def distribution_nbytes(vocabulary: int) -> int:
    """HELIOS_DISTRIBUTION_NBYTES: a head and a float of each token, up to a whole number of 16 bytes."""
    return DISTRIBUTION_HEAD_NBYTES + -(-vocabulary // 4) * 16


def _distribution_problems(subject: Subject, layout: execution.CompletionLayout) -> Violations:
    has_distributions = layout.distributions_capacity or layout.prompt_distributions_capacity
    expected = distribution_nbytes(subject.model.vocabulary) if has_distributions else 0
    if layout.distribution_nbytes != expected:
        yield f"completion, field 'distribution_nbytes' is {layout.distribution_nbytes:,}, not {expected:,}"


@rule("ranks", "every rank finds its own weights, and the ranks are counted without a gap")
def ranks(subject: Subject) -> Violations:
    sections = subject.manifest.ranks
    if len(sections) > MAX_RANKS:
        yield f"{len(sections):,} ranks are described, at most {MAX_RANKS} are served"
    for index, section in enumerate(sections):
        if section.rank != index:
            yield f"rank section {index}, field 'rank' is {section.rank}"
        for weight in section.weights:
            where = f"rank {index}, buffer {weight.buffer}"
            buffer = subject.buffer(weight.buffer)
            if buffer is None or buffer.kind != execution.BUFFER_KIND_WEIGHT:
                yield f"{where}, field 'buffer' names no weight"
            if not weight.resource:
                yield f"{where}, field 'resource' is empty"
        for buffer_id in repeated(weight.buffer for weight in section.weights):
            yield f"rank {index}, buffer {buffer_id} has two resources"


RULES: tuple[Rule, ...] = (
    buffer_ids,
    buffer_sizes,
    buffer_resources,
    program_names,
    program_extents,
    node_order,
    relocations,
    node_ranges,
    fill_values,
    destination_names,
    destination_places,
    completion_layout,
    ranks,
)
