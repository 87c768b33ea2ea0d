"""The beginning of a program's inputs as one gather from a round's words.

It knows which word of a round each word of the staging is, resolved once for each number of lanes; what lies between two
destinations, and the rows behind the live ones, become zero. Nothing else of the staging is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing
from helios.contract.prepared import Binding, Destination
from helios.errors import InternalError
from helios.packing.values import WORD_SOURCES, ZERO_WORD, RoundWords


class Span(NamedTuple):
    """Bytes [start, end) of an input buffer that have to be copied to the device."""

    buffer_id: int
    start: int
    end: int


class Gather:
    """`bound` are neighbours in one buffer, whose pinned bytes are `staging`: each one's source is of RoundWords."""

    def __init__(self, bound: Sequence[tuple[Binding, Destination]], staging: NDArray[np.uint8]) -> None:
        self._bound = bound
        self._staging = staging
        self._resolved: dict[int, tuple[NDArray[np.intp], NDArray[Any], Span]] = {}  # by the number of lanes

    def put(self, words: RoundWords) -> Span:
        """Write a round's words; what has to be copied. InternalError, with nothing written, where a destination is too small."""
        resolved = self._resolved.get(words.n_lanes)
        if resolved is None:
            resolved = self._resolved[words.n_lanes] = self._resolve(words)
        indices, target, span = resolved
        words.array.take(indices, None, target, "clip")
        return span

    def _resolve(self, words: RoundWords) -> tuple[NDArray[np.intp], NDArray[Any], Span]:
        numbers = np.arange(len(words.array))
        indices: list[int] = []
        start = self._bound[0][1].offset
        for binding, destination in self._bound:
            found = numbers[words.positions(binding.source, words.n_lanes)].tolist()
            if len(found) * 4 > destination.nbytes:
                raise InternalError(f"{len(found)} words for {destination.name}, it has {destination.nbytes} bytes")
            indices += [ZERO_WORD] * ((destination.offset - start) // 4 - len(indices)) + found
        end = start + 4 * len(indices)
        target = self._staging[start:end].view("<i4")
        return np.array(indices, np.intp), target, Span(self._bound[0][1].buffer_id, start, end)


def is_gathered(binding: Binding) -> bool:
    """Whether a binding's words are taken from RoundWords as they are. A contract gives each of these sources integers, and one for
    each index (`sources.py`)."""
    has_no_gaps = binding.indexing in (Indexing.SCALAR, Indexing.ACTIVE_ROW)
    return binding.source in WORD_SOURCES and has_no_gaps and not binding.offset
