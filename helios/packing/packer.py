"""Value bindings resolved once into a flat plan of array writes; packing a round then only copies numbers.

It knows where destinations lie in their buffers, nothing about requests. Invariant: what a round does not supply is neither
written nor transferred, so the device keeps its bytes (CON-7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from helios.contract.prepared import Destination, Graph
from helios.packing.gather import Gather, Span, is_gathered
from helios.packing.values import RoundWords, Values
from helios.packing.writes import Write, resolve

# The bytes of a short tail of inactive rows cost less than a transfer of their own for what follows them.
MAX_TAIL_NBYTES = 1024


class Packer:
    """The plan of one program over one frame's staging. `staging` maps an input buffer's id to its pinned bytes."""

    def __init__(
        self, graph: Graph, destinations: Mapping[str, Destination], staging: Mapping[int, NDArray[np.uint8]]
    ) -> None:
        before = _neighbours(destinations.values())
        bound = [(binding, destinations[binding.destination]) for binding in graph.bindings]
        bound.sort(key=lambda pair: _order(pair[1]))
        self._plan: list[
            tuple[Write, bool]
        ] = []  # does it follow the write before it, with no other destination between?
        n_gathered = 0
        previous: Destination | None = None
        for binding, destination in bound:
            follows = previous is not None and before.get(destination.name) == previous.name
            is_joined = previous is None or (follows and destination.offset - previous.offset <= MAX_TAIL_NBYTES)
            if n_gathered == len(self._plan) and is_joined and is_gathered(binding):
                n_gathered += 1
            self._plan.append((resolve(graph, binding, destination, staging[destination.buffer_id]), follows))
            previous = destination
        self._gather = Gather(bound[:n_gathered], staging[bound[0][1].buffer_id]) if n_gathered else None
        self._behind = self._plan[n_gathered:]

    def pack(self, values: Values, words: RoundWords | None = None) -> list[Span]:
        """Write every supplied value; the spans to transfer, in ascending order. `values` holds one array a source; what of them is
        in `words` too is taken from there in one go, as far as nothing else lies between."""
        spans: list[Span] = []
        plan, may_join = self._plan, False
        if words is not None and self._gather is not None:
            spans.append(self._gather.put(words))
            plan, may_join = self._behind, True
        for write, follows in plan:
            rows = write.put(values)
            place = write.place
            for first, last in rows:
                start, end = place.start + first * place.row_nbytes, place.start + last * place.row_nbytes
                if follows and may_join and not first and start - spans[-1].end <= MAX_TAIL_NBYTES:
                    spans[-1] = Span(place.buffer_id, spans[-1].start, end)
                else:
                    spans.append(Span(place.buffer_id, start, end))
            may_join = bool(rows) and write.has_free_tail
        return spans


def _order(destination: Destination) -> tuple[int, int]:
    return destination.buffer_id, destination.offset


def _neighbours(destinations: Iterable[Destination]) -> dict[str, str]:
    """The name of the destination right before each one in its buffer; a buffer's first has none."""
    pairs = pairwise(sorted(destinations, key=_order))
    return {place.name: previous.name for previous, place in pairs if previous.buffer_id == place.buffer_id}
