"""Value bindings resolved once into a flat plan of array writes; packing a round then only copies numbers.

It knows where destinations lie in their buffers, nothing about requests. Invariant: what a round does not supply is neither
written nor transferred, so the device keeps its bytes (CON-7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helios.contract.prepared import Destination, Graph
from helios.packing.values import Values
from helios.packing.writes import Write, resolve

# The bytes of a short tail of inactive rows cost less than a transfer of their own for what follows them.
MAX_TAIL_NBYTES = 1024


@dataclass(slots=True)
class Span:
    """Bytes [start, end) of an input buffer that have to be copied to the device."""

    buffer_id: int
    start: int
    end: int


class Packer:
    """The plan of one program over one frame's staging. `staging` maps an input buffer's id to its pinned bytes."""

    def __init__(
        self, graph: Graph, destinations: Mapping[str, Destination], staging: Mapping[int, NDArray[np.uint8]]
    ) -> None:
        before = _neighbours(destinations.values())
        bound = sorted(graph.bindings, key=lambda binding: _order(destinations[binding.destination]))
        self._plan: list[
            tuple[Write, bool]
        ] = []  # does it follow the write before it, with no other destination between?
        previous = None
        for binding in bound:
            destination = destinations[binding.destination]
            write = resolve(graph, binding, destination, staging[destination.buffer_id])
            self._plan.append((write, previous is not None and before.get(destination.name) == previous))
            previous = destination.name

    def pack(self, values: Values) -> list[Span]:
        """Write every supplied value; the spans to transfer, in ascending order. `values` holds one array a source."""
        spans: list[Span] = []
        may_join = False
        for write, follows in self._plan:
            rows = write.put(values)
            place = write.place
            for first, last in rows:
                start, end = place.start + first * place.row_nbytes, place.start + last * place.row_nbytes
                if follows and may_join and not first and start - spans[-1].end <= MAX_TAIL_NBYTES:
                    spans[-1].end = end
                else:
                    spans.append(Span(place.buffer_id, start, end))
            may_join = bool(rows) and write.has_free_tail
        return spans


def _order(destination: Destination) -> tuple[int, int]:
    return destination.buffer_id, destination.offset


def _neighbours(destinations: Iterable[Destination]) -> dict[str, str | None]:
    """The name of the destination right before each one in its buffer; None for a buffer's first."""
    ordered = sorted(destinations, key=_order)
    before: dict[str, str | None] = {}
    for previous, destination in zip([None, *ordered], ordered, strict=False):
        is_same = previous is not None and previous.buffer_id == destination.buffer_id
        before[destination.name] = previous.name if previous is not None and is_same else None
    return before
