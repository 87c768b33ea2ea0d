"""Snapshots: which states are worth a row, and behind which submission they are saved.

It knows endpoints and rows, no bytes. A row is private to its sequence until the round that wrote it was verified; it is dropped
when the request was cancelled, stopped by the host or failed meanwhile (STOP-3, SPEC-8).
"""

from __future__ import annotations

from collections.abc import Sequence as List

from helios.cache.books import CacheBooks
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.flight import Saving
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.request import FinishReason
from helios.scheduler.roster import Roster
from helios.scheduler.round import Snapshot
from helios.scheduler.sequence import Phase, Sequence

_PUBLISHED_ENDINGS = (None, FinishReason.EOS, FinishReason.LIMIT)


class Saver:
    """Reserves rows at planning, and publishes or drops them at completion."""

    def __init__(
        self,
        programs: ProgramTable,
        cache: CacheBooks,
        roster: Roster,
        counters: SchedulerCounters,
    ) -> None:
        self._n_most = programs.lanes(RoundKind.SNAPSHOT) if cache.shape.n_rows else 0
        self._cache = cache
        self._roster = roster
        self._counters = counters

    def reserves_answer(self, sequence: Sequence) -> bool:
        """A row for the state of a sequence that the device has just ended. False where none is to be had, or is of no use: a
        state at the end of the prompt is the prompt's own."""
        if sequence.n_consumed == sequence.n_prompt or not self._is_worthwhile(sequence, sequence.n_consumed):
            return False
        row = self._cache.reserve_row(sequence.held)
        if row is not None:
            sequence.saved_row = row
        return row is not None

    def behind(self, prompts: List[Sequence]) -> Saving:
        """Snapshots behind the next submission, in which `prompts` take part: of sequences that the device has ended before it,
        which leave now, and of prompts that it completes, or takes up to a boundary."""
        if not prompts and not self._roster.leaving:
            return ()
        saving: list[tuple[Sequence, Snapshot]] = []
        for sequence in [s for s in self._roster.leaving if s.phase is Phase.SAVING][: self._n_most]:
            saving.append((sequence, Snapshot(sequence.slot, sequence.saved_row, sequence.n_consumed)))
            self._roster.leave(sequence, Phase.DRAINING)
        for sequence in prompts:
            endpoint = sequence.n_scheduled
            is_boundary = endpoint == sequence.n_prompt or endpoint in sequence.request.boundaries
            if is_boundary and len(saving) < self._n_most and self._is_worthwhile(sequence, endpoint):
                row = self._cache.reserve_row(sequence.held)
                if row is not None:
                    saving.append((sequence, Snapshot(sequence.slot, row, endpoint)))
        for sequence, _ in saving:
            sequence.n_in_flight += 1
        return tuple(saving)

    def _is_worthwhile(self, sequence: Sequence, endpoint: int) -> bool:
        """Whether a row would hold what the published pages before `endpoint` do not."""
        shape = self._cache.shape
        has_tail = endpoint % shape.page_tokens != 0 or not shape.is_truncatable
        return self._n_most > 0 and sequence.request.uses_cache and has_tail

    def retire(self, saving: Saving) -> None:
        """The round that wrote these rows was verified."""
        for sequence, snapshot in saving:
            sequence.n_in_flight -= 1
            if sequence.ending in _PUBLISHED_ENDINGS:
                self._cache.publish_snapshot(sequence.held, sequence.tokens, snapshot.endpoint, snapshot.row)
                self._counters.n_snapshots += 1
            else:
                self._cache.drop_row(sequence.held, snapshot.row)
