"""What a program's nodes really touch, measured against the accesses that its graph declares (CON-8, CON-10).

It knows views, relocations and what a kernel may do through a pointer, which the caller asks of the kernel library; it knows no
device. After `check_accesses`, no node reads or writes persistent bytes that the contract does not speak of.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import BufferKind
from helios.contract.manifest_rules import touches
from helios.contract.prepared import Graph, PreparedContract, StateView
from helios.contract.schema import execution_pb2 as execution
from helios.errors import ContractError


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer argument of a launch: at which byte of the arguments, and what the kernel may do from there on."""

    argument_offset: int
    nbytes: int
    reads: bool
    writes: bool


# All pointers of a kernel node, by the kernel library's own table.
Pointers = Callable[[execution.KernelNode], Sequence[Pointer]]


class Touch(NamedTuple):  # there are tens of thousands, and a tuple's hash and equality are native
    """Bytes [start, end) of a buffer that a node reads or writes."""

    buffer_id: int
    start: int
    end: int
    is_write: bool


def check_accesses(contract: PreparedContract, manifest: execution.ExecutionManifest, pointers: Pointers) -> None:
    """Raise ContractError for the first node that touches what its graph does not declare."""
    for graph in contract.graphs:
        _check_serving(contract, graph, manifest.programs[graph.index], pointers)
    for program in manifest.tuning_programs:
        for index, touch in _unique_touches(program, pointers):
            buffer = contract.buffers[touch.buffer_id]
            is_own = buffer.kind is BufferKind.SCRATCH or buffer.producer == program.name
            if not is_own and (touch.is_write or buffer.kind is not BufferKind.WEIGHT):
                verb = "writes" if touch.is_write else "reads"
                raise ContractError(f"tuning program {program.name!r}, node {index} {verb} buffer {buffer.name!r}")


def _check_serving(contract: PreparedContract, graph: Graph, program: execution.Program, pointers: Pointers) -> None:
    reads = _Cover(view for view, access in graph.accesses if access.reads)
    writes = _Cover(view for view, access in graph.accesses if access.writes)
    confidence = contract.proposal_confidence.buffer_id if contract.proposal_confidence else None
    for index, touch in _unique_touches(program, pointers):
        buffer = contract.buffers[touch.buffer_id]
        if buffer.kind is not BufferKind.STATE:
            continue
        if buffer.producer:
            is_declared = buffer.id in graph.tuned_buffer_ids and not touch.is_write
        elif buffer.id == confidence:
            is_declared = graph.confidence_width > 0
        else:
            is_declared = (writes if touch.is_write else reads).holds(touch)
        if not is_declared:
            verb = "writes" if touch.is_write else "reads"
            raise ContractError(
                f"graph {graph.name!r}, node {index} {verb} bytes {touch.start:,} to {touch.end:,} of buffer "
                f"{buffer.name!r}, field 'accesses' declares no such {verb[:-1]}"
            )


class _Cover:
    """The bytes of some views, as sorted ranges that neither touch nor overlap."""

    def __init__(self, views: Iterable[StateView]) -> None:
        by_buffer: dict[int, list[StateView]] = defaultdict(list)
        for view in views:
            by_buffer[view.buffer_id].append(view)
        self._ranges = {buffer_id: _merged(tuple(group)) for buffer_id, group in by_buffer.items()}

    def holds(self, touch: Touch) -> bool:
        if touch.buffer_id not in self._ranges:
            return False
        starts, ends = self._ranges[touch.buffer_id]
        index = int(np.searchsorted(starts, touch.start, side="right")) - 1
        return index >= 0 and bool(touch.end <= ends[index])


@functools.lru_cache(maxsize=16)  # the graphs of a model access much the same views
def _merged(views: tuple[StateView, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends of the ranges that the views' rows make up together."""
    starts = np.concatenate([view.offset + np.arange(view.rows, dtype=np.int64) * view.row_stride for view in views])
    ends = starts + np.repeat([view.row_nbytes for view in views], [view.rows for view in views])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    is_first = np.concatenate([[True], starts[1:] > ends[:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    return starts[is_first], ends[is_last]


def _unique_touches(program: execution.Program, pointers: Pointers) -> Iterator[tuple[int, Touch]]:
    """Each touch of a program once, with the first node that has it: layers share their state."""
    seen: set[Touch] = set()
    for index, node in enumerate(program.nodes):
        for touch in _touches_of(node, pointers):
            if touch not in seen:
                seen.add(touch)
                yield index, touch


def _touches_of(node: execution.Node, pointers: Pointers) -> Iterator[Touch]:
    if node.WhichOneof("work") != "kernel":
        for buffer_id, offset, nbytes, is_write in touches(node):
            yield Touch(buffer_id, offset, offset + nbytes, is_write)
        return
    places = {relocation.argument_offset: relocation for relocation in node.kernel.relocations}
    for pointer in pointers(node.kernel):
        place = places.get(pointer.argument_offset)
        if place is None or not pointer.nbytes:
            continue
        for is_touched, is_write in ((pointer.reads, False), (pointer.writes, True)):
            if is_touched:
                yield Touch(place.buffer, place.offset, place.offset + pointer.nbytes, is_write)
