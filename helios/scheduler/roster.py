"""Who is where: the queue, the sequences in slots, and the slots themselves.

It knows phases and order, nothing of what rounds compute. A sequence is in exactly one of three lists (queued, active, leaving)
until it is done, and a slot is free or has one owner. A slot and its pages are given up in one call, `vacate`.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable

from helios.cache.books import CacheBooks
from helios.cache.holding import Holding
from helios.errors import InternalError
from helios.scheduler.sequence import Order, Phase, Sequence

MAX_GENERATION = 2**31 - 1  # staged as int32; then it starts again at 0

ACTIVE = frozenset({Phase.RELOADING, Phase.PREFILL, Phase.DECODE})
LEAVING = frozenset({Phase.PREEMPTING, Phase.SAVING, Phase.DRAINING})


def order_of(sequence: Sequence) -> Order:
    """Lower priority numbers first, arrival order within one."""
    return sequence.order


class Roster:
    """`queued` and `active` are sorted by order; `leaving` waits for fences. `has_news`: something changed that may admit
    someone."""

    def __init__(self, n_slots: int, cache: CacheBooks, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock
        self._n_slots = n_slots
        self._free_slots = list(range(n_slots - 1, -1, -1))
        self._generations = [0] * n_slots
        self.by_key: dict[int, Sequence] = {}
        self.queued: list[Sequence] = []
        self.active: list[Sequence] = []
        self.leaving: list[Sequence] = []
        self.has_news = False

    @property
    def n_free_slots(self) -> int:
        return len(self._free_slots)

    def enqueue(self, sequence: Sequence) -> None:
        """A new sequence, or one that was preempted, takes its place in the queue."""
        self.by_key[sequence.key] = sequence
        insort(self.queued, sequence, key=order_of)
        self.has_news = True

    def seat(self, sequence: Sequence, holding: Holding) -> None:
        """A queued sequence gets a slot; its pages are those of `holding`."""
        self.queued.remove(sequence)
        slot = self._free_slots.pop()
        self._generations[slot] = (self._generations[slot] + 1) & MAX_GENERATION
        sequence.take_seat(slot, self._generations[slot], holding)
        sequence.move(Phase.PREFILL if holding.is_ready else Phase.RELOADING)
        insort(self.active, sequence, key=order_of)

    def leave(self, sequence: Sequence, phase: Phase) -> None:
        """An active or leaving sequence goes on leaving in `phase`."""
        if sequence.phase in ACTIVE:
            self.active.remove(sequence)
            self.leaving.append(sequence)
        sequence.move(phase)

    def forget(self, sequence: Sequence) -> None:
        """A queued sequence has ended without a slot."""
        self.queued.remove(sequence)
        sequence.move(Phase.DONE)
        del self.by_key[sequence.key]
        self.has_news = True

    def vacate(self, sequence: Sequence) -> None:
        """The fence of its last round has passed: pages and slot of a leaving sequence are free; it is done, or queued again."""
        self.leaving.remove(sequence)
        self._retain(sequence)
        self._cache.release(sequence.held)
        self._free_slots.append(sequence.slot)
        self.has_news = True
        if sequence.phase is Phase.PREEMPTING:
            sequence.requeue()
            self.enqueue(sequence)
        else:
            sequence.move(Phase.DONE)
            sequence.holding = None
            del self.by_key[sequence.key]

    def _retain(self, sequence: Sequence) -> None:
        """A sequence that is over may wish that its pages are kept ahead of others."""
        wish = sequence.request.retention
        if wish is None or sequence.phase is Phase.PREEMPTING:
            return
        expires_s = math.inf if wish.duration_s is None else self._clock() + wish.duration_s
        self._cache.retain(sequence.held, wish.key, wish.n_most_tokens, expires_s)

    def n_before(self, sequence: Sequence) -> int:
        """Active sequences that come before it in order."""
        n_before = 0
        for other in self.active:
            if other.order >= sequence.order:
                break
            n_before += 1
        return n_before

    def check(self) -> None:
        """Raise InternalError unless lists, phases and slots agree."""
        seated = self.active + self.leaving
        slots = [s.slot for s in seated]
        if sorted(slots + self._free_slots) != list(range(self._n_slots)):
            raise InternalError("slots are lost or held twice")
        if sorted(s.key for s in self.queued + seated) != sorted(self.by_key):
            raise InternalError("sequences are lost or listed twice")
        for name, members, phases in (
            ("queued", self.queued, frozenset({Phase.QUEUED})),
            ("active", self.active, ACTIVE),
            ("leaving", self.leaving, LEAVING),
        ):
            if strays := [s.phase.value for s in members if s.phase not in phases]:
                raise InternalError(f"among the {name} sequences one is {strays[0]}")
        for members in (self.queued, self.active):
            if members != sorted(members, key=order_of):
                raise InternalError("sequences are out of order")
        if any(s.holding is not None or s.n_in_flight for s in self.queued):
            raise InternalError("a queued sequence holds pages or is in flight")
        if any(s.holding is None or s.generation != self._generations[s.slot] for s in seated):
            raise InternalError("a seated sequence holds no pages, or another generation than its slot's")
        if any(s.ending is not None for s in self.queued + self.active):
            raise InternalError("an ended sequence is still waiting or active")
        if any((s.ending is None) != (s.phase is Phase.PREEMPTING) for s in self.leaving):
            raise InternalError("a leaving sequence has no ending, or a preempted one has")
