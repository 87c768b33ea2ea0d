"""Rules over start-up tuning: which persistent buffers a tuning program fills, and who may read them (CON-8).

They know the manifest's copies and fills; what kernels touch is for `accesses.py`, where the kernel table is known. A tuned buffer
that passes is written by its producer alone.
"""

from __future__ import annotations

from helios.contract.enums import Access
from helios.contract.manifest_rules import touches
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import execution_pb2 as execution


@rule("tuned-buffers", "a tuned buffer persists, and its producer is in the tuning catalog")
def tuned_buffers(subject: Subject) -> Violations:
    for buffer in subject.manifest.buffers:
        if not buffer.producer:
            continue
        where = f"buffer {buffer.name!r}, field 'producer' is {buffer.producer!r}"
        if buffer.kind != execution.BUFFER_KIND_STATE:
            yield f"{where}, it is no state buffer"
        if buffer.producer not in subject.tuning_programs:
            yield f"{where}, which is no tuning program"


@rule("tuned-bindings", "a graph says of a tuned buffer exactly what the manifest says")
def tuned_bindings(subject: Subject) -> Violations:
    for graph in subject.model.graphs:
        for tuned in graph.tuned_bindings:
            buffer = subject.buffer(tuned.buffer)
            where = f"graph {graph.program!r}, tuned buffer {tuned.buffer}"
            if tuned.producer not in subject.tuning_programs:
                yield f"{where}, field 'producer' names {tuned.producer!r}, which is no tuning program"
            if buffer is None or buffer.producer != tuned.producer:
                says = "no buffer" if buffer is None else repr(buffer.producer)
                yield f"{where}, field 'producer' is {tuned.producer!r}, the manifest says {says}"
        for buffer_id in repeated(tuned.buffer for tuned in graph.tuned_bindings):
            yield f"graph {graph.program!r}, tuned buffer {buffer_id} is declared twice"


@rule("tuned-outputs", "what tuning fills is no request's state, and only tuning writes it")
def tuned_outputs(subject: Subject) -> Violations:
    tuned = {buffer.id: buffer for buffer in subject.manifest.buffers if buffer.producer}
    for buffer_id in sorted(subject.page_table_ids & tuned.keys()):
        yield f"buffer {tuned[buffer_id].name!r}, field 'producer' is given, it is a page table"
    if subject.manifest.proposal_confidence.buffer in tuned and subject.manifest.HasField("proposal_confidence"):
        yield f"buffer {tuned[subject.manifest.proposal_confidence.buffer].name!r} is tuned, it holds confidence"
    for graph in subject.model.graphs:
        for access in graph.accesses:
            if Access(access.access).writes and subject.views[access.view].buffer in tuned:
                yield f"graph {graph.program!r}, access {access.view!r} writes a tuned buffer"
    for region in subject.model.cache.regions:
        for name in region.views:
            if subject.views[name].buffer in tuned:
                yield f"state view {name!r} of a cache region lies in a tuned buffer"


@rule("tuning-writes", "a tuning program writes its own buffers and scratch")
def tuning_writes(subject: Subject) -> Violations:
    for program in subject.manifest.tuning_programs:
        for index, node in enumerate(program.nodes):
            for buffer_id, _, _, is_write in touches(node):
                buffer = subject.manifest.buffers[buffer_id]
                is_own = buffer.producer == program.name or buffer.kind == execution.BUFFER_KIND_SCRATCH
                if is_write and not is_own:
                    yield f"tuning program {program.name!r}, node {index} writes buffer {buffer.name!r}"


RULES: tuple[Rule, ...] = (tuned_buffers, tuned_bindings, tuned_outputs, tuning_writes)
