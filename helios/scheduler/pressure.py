"""Room for the next round's positions, and who gives up pages when there is none.

It knows page counts and order, nothing of rounds. The books evict first. Then the youngest sequence of the lowest priority is
preempted, never one that comes before the requester; so the first in order always goes on, and with one sequence left everything
else can be evicted: a request that fits the model's limits finishes.
"""

from __future__ import annotations

from helios.cache.books import CacheBooks
from helios.scheduler.copies import CopyBook
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.roster import Roster
from helios.scheduler.sequence import Phase, Sequence


class Pressure:
    """Gives pages to sequences, and takes them away."""

    def __init__(self, cache: CacheBooks, roster: Roster, copies: CopyBook, counters: SchedulerCounters) -> None:
        self._cache = cache
        self._roster = roster
        self._copies = copies
        self._counters = counters
        self._page_tokens = cache.shape.page_tokens

    @property
    def n_available_pages(self) -> int:
        """Pages that `extend` can give out."""
        return self._cache.n_free_pages + self._cache.n_evictable_pages

    def room(self, sequence: Sequence, n_wanted: int, n_spared_pages: int = 0) -> int:
        """How many positions it may fill in the next round, at most `n_wanted`; they have pages then. 0: it waits for a fence, a
        copy or another's end. `n_spared_pages` are left to the sequences before it, which would take them away again."""
        while True:
            n_room = min(n_wanted, self._n_positions_left(sequence, n_spared_pages))
            if n_room > 0 and self._extend(sequence, sequence.n_scheduled + n_room):
                return n_room
            # Pages that count as evictable and cannot go are being copied: nobody else's help.
            is_copied = n_room > 0 and self._copies.n_under_way > 0
            if is_copied or not self._relieve(sequence):
                return 0

    def _n_positions_left(self, sequence: Sequence, n_spared_pages: int) -> int:
        n_pages = max(0, self.n_available_pages - n_spared_pages)
        n_held = -(-sequence.n_positions // self._page_tokens)
        return (n_held + n_pages) * self._page_tokens - sequence.n_scheduled

    def _extend(self, sequence: Sequence, n_positions: int) -> bool:
        if n_positions <= sequence.n_positions:
            return True
        entries = self._cache.extend(sequence.held, n_positions)
        if entries is None:
            return False
        sequence.page_entries += entries
        sequence.n_positions = -(-n_positions // self._page_tokens) * self._page_tokens
        return True

    def _relieve(self, sequence: Sequence) -> bool:
        """Take pages from one that comes after `sequence`. True when they are there now. Nobody is preempted while pages are
        already on their way: from a sequence that leaves, or from a copy that a leaving one had started."""
        if self._roster.leaving or self._copies.n_reloads:
            return False
        victim = self._roster.active[-1]
        if victim.order <= sequence.order:
            return False
        self.preempt(victim)
        return victim.phase is Phase.QUEUED

    def preempt(self, victim: Sequence) -> None:
        """It takes part in no new round. At its last fence its complete pages are published, so that it finds them when it
        comes back, then all are given up."""
        self._counters.n_preemptions += 1
        self._roster.leave(victim, Phase.PREEMPTING)
        self.settle(victim)

    def settle(self, sequence: Sequence) -> None:
        """Give up slot and pages of a leaving sequence that no round in flight touches any more."""
        if sequence.n_in_flight or sequence.phase is Phase.SAVING:
            return
        if sequence.phase is Phase.PREEMPTING:
            self._cache.publish(sequence.held, sequence.tokens, sequence.n_consumed)
        self._roster.vacate(sequence)
