"""From the queue into slots: who enters, with how much of its prefix.

It knows order, pages and prefixes, nothing of rounds. A sequence enters when there are pages for its next round beside one for each
sequence before it; nobody overtakes for lack of pages or slots. One whose prefix is being computed by another lets others pass.
"""

from __future__ import annotations

import enum

from helios.cache.books import CacheBooks
from helios.cache.holding import Holding, Match
from helios.scheduler.copies import CopyBook
from helios.scheduler.costs import CostRecord
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.pressure import Pressure
from helios.scheduler.roster import Roster
from helios.scheduler.sequence import Phase, Sequence

# So many let others pass in one go: each look-up costs time.
MOST_WAITING_FOR_PREFIX = 32


class _Verdict(enum.Enum):
    ENTERED = enum.auto()
    WAITS_FOR_PREFIX = enum.auto()
    WAITS_FOR_PAGES = enum.auto()


class Admitter:
    """Seats queued sequences. `n_most_starting`: prompts under way at once; `prefill_tokens`: most prompt tokens of a round."""

    def __init__(
        self,
        n_most_starting: int,
        prefill_tokens: int,
        cache: CacheBooks,
        roster: Roster,
        pressure: Pressure,
        copies: CopyBook,
        costs: CostRecord,
        counters: SchedulerCounters,
    ) -> None:
        self._n_most_starting = n_most_starting
        self._prefill_tokens = prefill_tokens
        self._cache = cache
        self._roster = roster
        self._pressure = pressure
        self._copies = copies
        self._costs = costs
        self._counters = counters

    def admit(self) -> None:
        """Let prompts go on whose copies have come, and seat whom there is room for, in order. Does nothing while nothing has
        changed since the last time."""
        if self._roster.has_news:
            self._start_reloaded()
            while self._roster.has_news and self._seat_in_order():
                pass

    def _seat_in_order(self) -> bool:
        """True when it has made room, and has to be called again."""
        roster = self._roster
        roster.has_news = False
        n_starting = sum(1 for s in roster.active if s.phase is not Phase.DECODE)
        n_waiting = 0
        for sequence in tuple(roster.queued):
            if n_starting >= self._n_most_starting or n_waiting >= MOST_WAITING_FOR_PREFIX:
                return False
            verdict = self._try(sequence) if roster.n_free_slots else _Verdict.WAITS_FOR_PAGES
            if verdict is _Verdict.WAITS_FOR_PAGES:
                return self._displace(sequence)
            n_starting += verdict is _Verdict.ENTERED
            n_waiting += verdict is _Verdict.WAITS_FOR_PREFIX
        return False

    def _start_reloaded(self) -> None:
        """Prompts whose reused parts have all come back from host memory go on with the rest."""
        for sequence in self._roster.active:
            if sequence.phase is Phase.RELOADING and sequence.held.is_ready:
                sequence.move(Phase.PREFILL)

    def _displace(self, sequence: Sequence) -> bool:
        """A sequence of lower priority makes way, at its fence. True when that is now."""
        victim = self._roster.active[-1] if self._roster.active else None
        if victim is None or self._roster.leaving or victim.request.priority <= sequence.request.priority:
            return False
        self._pressure.preempt(victim)
        return victim.phase is Phase.QUEUED

    def _try(self, sequence: Sequence) -> _Verdict:
        n_spared_pages = self._roster.n_before(sequence)
        if self._pressure.n_available_pages <= n_spared_pages:
            return _Verdict.WAITS_FOR_PAGES
        if sequence.awaited is not None and sequence.awaited.is_worth_waiting:
            return _Verdict.WAITS_FOR_PREFIX
        match = self._look_up(sequence)
        sequence.awaited = match if match is not None and match.n_promised > match.n_tokens else None
        if sequence.awaited is not None:
            return _Verdict.WAITS_FOR_PREFIX
        holding = self._cache.open(sequence.prefix, sequence.tokens, match, is_private=not sequence.request.uses_cache)
        n_needed = self._n_pages_needed(sequence, holding, match)
        fits = n_needed + n_spared_pages <= self._pressure.n_available_pages
        reloads = self._cache.reload(holding) if fits else None
        if reloads is None:
            self._cache.release(holding)
            return _Verdict.WAITS_FOR_PAGES
        self._copies.want(reloads)
        self._enter(sequence, holding)
        return _Verdict.ENTERED

    def _look_up(self, sequence: Sequence) -> Match | None:
        """What to reuse: all that the cache has, unless parts are in host memory and computing them takes less."""
        if not sequence.request.uses_cache:
            return None
        n_most = sequence.n_most_reused
        match = self._cache.lookup(sequence.prefix, sequence.tokens, n_most)
        n_copies = match.n_host_pages + match.n_host_rows
        if n_copies:
            without = self._cache.lookup(sequence.prefix, sequence.tokens, n_most, uses_host=False)
            position = (match.n_tokens + without.n_tokens) / 2
            if not self._costs.reloads(n_copies, match.n_tokens - without.n_tokens, position):
                return without
        return match

    def _n_pages_needed(self, sequence: Sequence, holding: Holding, match: Match | None) -> int:
        """Pages that it takes for its next round at worst. One that was preempted waits until its whole context fits, so that it is
        not preempted again for the same pages."""
        n_known = len(sequence.tokens)
        n_positions = n_known if sequence.n_preemptions else min(n_known, holding.n_reused + self._prefill_tokens)
        page_tokens = self._cache.shape.page_tokens
        n_on_host = 0 if match is None else match.n_host_pages
        return -(-n_positions // page_tokens) - holding.n_reused // page_tokens + n_on_host

    def _enter(self, sequence: Sequence, holding: Holding) -> None:
        self._roster.seat(sequence, holding)
        sequence.n_positions = holding.n_reused // self._cache.shape.page_tokens * self._cache.shape.page_tokens
        if sequence.n_preemptions:
            if holding.n_reused:
                self._counters.n_restored += 1
            else:
                self._counters.n_recomputed += 1
        else:
            sequence.n_reused_prompt = holding.n_reused
            self._counters.n_prompt_tokens += sequence.n_prompt
            self._counters.n_reused_prompt_tokens += holding.n_reused
