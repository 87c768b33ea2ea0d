"""The rounds in flight, in the order of their launches, and what completed ones teach about costs.

It knows rounds and moments, no sequences' phases. At most two rounds are in flight, and one that needs its completion before
another is launched is alone (SPEC-7, STOP-3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from helios.errors import DeviceError, InternalError
from helios.scheduler.costs import CostRecord
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.round import Lane, Round, Snapshot
from helios.scheduler.sequence import Sequence

N_FRAMES = 2

Saving = tuple[tuple[Sequence, Snapshot], ...]


class Flight(NamedTuple):
    """`kind` None: a round without a program. `is_alone`: no other round is launched before its completion. `saving`: the snapshots
    that it writes, and of whom."""

    round_: Round
    kind: RoundKind | None
    is_alone: bool
    saving: Saving
    launched_s: float


class Flights:
    """Rounds from `launch` to `complete`. `completed_s`: when the last one was found complete."""

    def __init__(
        self, programs: ProgramTable, costs: CostRecord, counters: SchedulerCounters, clock: Callable[[], float]
    ) -> None:
        self._programs = programs
        self._costs = costs
        self._counters = counters
        self._clock = clock
        self._in_flight: deque[Flight] = deque()
        self.completed_s = float("-inf")

    def __len__(self) -> int:
        return len(self._in_flight)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._in_flight)

    @property
    def is_closed(self) -> bool:
        """No round may be launched before one completes."""
        return len(self._in_flight) == N_FRAMES or (bool(self._in_flight) and self._in_flight[-1].is_alone)

    def launch(self, round_: Round, kind: RoundKind | None, saving: Saving, *, is_alone: bool) -> None:
        """The round is in flight from now on. Raises InternalError where one of two would have to be alone."""
        if self.is_closed or (is_alone and self._in_flight):
            raise InternalError(f"a round was launched beside {len(self._in_flight)} others, and one must be alone")
        launched_s = self._clock()
        self._in_flight.append(Flight(round_, kind, is_alone, saving, launched_s))
        self._counters.n_rounds += 1
        for admission in round_.admissions:
            if not admission.sequence.n_preemptions:
                self._counters.queue_s.observe(launched_s - admission.sequence.submitted_s)
        if is_alone and any(lane.sequence.request.constraint is not None for lane in round_.lanes):
            n_most = max(self._counters.n_constrained_in_flight, len(self._in_flight))
            self._counters.n_constrained_in_flight = n_most

    def check_order(self, round_: Round) -> None:
        """Raise DeviceError unless `round_` is the one that has to complete next."""
        if not self._in_flight or self._in_flight[0].round_ is not round_:
            raise DeviceError(f"a round completed out of order, {len(self._in_flight)} are in flight")

    def complete(self) -> Flight:
        """The oldest round has completed and was checked."""
        flight = self._in_flight.popleft()
        now_s = self._clock()
        duration_s = now_s - max(flight.launched_s, self.completed_s)
        self.completed_s = now_s
        if flight.round_.program is not None:
            self._costs.observe_round(flight.round_.program.index, flight.round_.n_rows, duration_s, now_s)
            if flight.kind is not RoundKind.DECODE:
                self._observe_prompt(flight, duration_s)
            elif flight.is_alone:
                self._count_grammar(flight.round_.lanes)
        return flight

    def _count_grammar(self, lanes: tuple[Lane, ...]) -> None:
        n_constrained = sum(1 for lane in lanes if lane.sequence.request.constraint is not None)
        self._counters.n_mixed_grammar_steps += 0 < n_constrained < len(lanes)

    def _observe_prompt(self, flight: Flight, duration_s: float) -> None:
        """Of a mixed round, what its streams would have taken alone does not count."""
        prompts = [lane for lane in flight.round_.lanes if lane.is_prompt]
        n_decoding = len(flight.round_.lanes) - len(prompts)
        n_tokens = flight.round_.n_rows - n_decoding
        self._counters.n_computed_tokens += n_tokens
        decode_s = decode_round_s(self._programs, self._costs, n_decoding)
        if decode_s is not None:
            is_scored = flight.kind is RoundKind.SCORED_PREFILL
            position = sum(lane.query_length * (lane.position + lane.query_length / 2) for lane in prompts) / n_tokens
            self._costs.observe_prompt(n_tokens, position, duration_s - decode_s, is_scored=is_scored)


def decode_round_s(programs: ProgramTable, costs: CostRecord, n_lanes: int) -> float | None:
    """What a round of `n_lanes` decoding streams took when there last was one; None while unknown."""
    if not n_lanes:
        return 0.0
    program = programs.choose(RoundKind.DECODE, n_lanes, n_lanes)
    return None if program is None else costs.last_round_s(program.index, n_lanes)
