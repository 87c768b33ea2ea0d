"""The order in which residents may go: least recently used first, and those that are to be kept after all others.

It knows what each is worth, not why a resident is in the queue. A resident's worth does not change while it is queued, so the
queue is a heap; what left it early is skipped when it comes up. A pop costs O(log n), whatever the size of the cache.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from helios.cache.resident import Resident

R = TypeVar("R", bound=Resident)

_STALE_ENTRIES = 64  # how many may lie about before they are swept, besides as many as there are live ones


class EvictionQueue(Generic[R]):
    """Residents by worth."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[bool, int], int, R]] = []
        self._serials: dict[R, int] = {}
        self._n_serials = 0

    @property
    def n_entries(self) -> int:
        """Entries of the heap, those that are out of date included."""
        return len(self._heap)

    def place(self, resident: R, is_queued: bool) -> None:
        """Put it in or take it out."""
        if not is_queued:
            self._serials.pop(resident, None)
        elif resident not in self._serials:
            self._n_serials += 1
            self._serials[resident] = self._n_serials
            heapq.heappush(self._heap, (resident.worth, self._n_serials, resident))
            if len(self._heap) > 2 * len(self._serials) + _STALE_ENTRIES:
                self._sweep()

    def oldest(self) -> R | None:
        """The one that goes first; it stays."""
        while self._heap:
            _, serial, resident = self._heap[0]
            if self._serials.get(resident) == serial:
                return resident
            heapq.heappop(self._heap)
        return None

    def first(self, n_most: int) -> list[R]:
        """The `n_most` that go first, in order; they stay."""
        found: list[R] = []
        while len(found) < n_most and (resident := self.oldest()) is not None:
            found.append(resident)
            self.place(resident, False)
        for resident in found:
            self.place(resident, True)
        return found

    def members(self) -> set[tuple[R, tuple[bool, int]]]:
        """Who is queued, and at which worth."""
        return {(r, worth) for worth, serial, r in self._heap if self._serials.get(r) == serial}

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if self._serials.get(entry[2]) == entry[1]]
        heapq.heapify(self._heap)
