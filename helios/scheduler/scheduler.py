"""Continuous batching: which sequences hold slots, what the next round contains, what a completion means.

It is pure and synchronous: the clock is injected, there is no device and no thread, pages are numbers from `CacheBooks`.
Whatever it does, a request's tokens are those it would get alone, because programs are exact (design 7); so it is free to
choose. Invariant: slots and pages of a sequence are given up only after the last round that touches them has been retired
(SPEC-8).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as List
from dataclasses import dataclass

from helios.cache.books import CacheBooks, prefix_key
from helios.cache.transfer import Transfer
from helios.errors import ContextLengthError, HeliosError, InternalError, InvalidValueError
from helios.metrics import Number
from helios.scheduler.admission import Admitter
from helios.scheduler.assembly import Work, assemble
from helios.scheduler.choice import ProgramChoice
from helios.scheduler.completion import check_completions
from helios.scheduler.composition import Composer, Shares
from helios.scheduler.copies import CopyBook
from helios.scheduler.costs import CostRecord
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.emission import DEVICE_REASONS, ending_after, take_scores, token_event
from helios.scheduler.flight import Flights, Saving
from helios.scheduler.pressure import Pressure
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.request import Event, Failed, Finished, FinishReason, GenerationRequest, PromptScores
from helios.scheduler.roster import LEAVING, Roster
from helios.scheduler.round import Lane, LaneCompletion, ProgramShape, Round
from helios.scheduler.saving import Saver
from helios.scheduler.sequence import Phase, Sequence

Delivery = list[tuple[int, list[Event]]]


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`max_active` slots are used; a round takes at most `prefill_tokens` prompt tokens, beside running streams so many that
    the time between two of their tokens stays under `gap_s` by measured costs. `cache_identity` is part of every prefix's
    key. `distributed`: lanes of one round whose whole distributions are reported; `prompt_distributed`: prompt tokens of one
    round, likewise."""

    max_active: int
    context_tokens: int
    prefill_tokens: int
    page_tokens: int
    vocabulary: int
    gap_s: float = 0.1
    cache_identity: bytes = b""
    distributed: int = 0
    prompt_distributed: int = 0


class Scheduler:
    """Owns sequences, slots and the books of pages. `submit`, `cancel`, `plan`, `retire`, `fail_all` are its whole life; beside
    them, `take_transfers` after each plan and `finish_transfer` before the next."""

    def __init__(
        self, limits: SchedulerLimits, programs: ProgramTable, cache: CacheBooks, clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._programs = programs
        self._cache = cache
        self._clock = clock
        self._n_arrivals = 0
        self._costs = CostRecord()
        self._choice = ProgramChoice(programs, self._costs)
        self._counters = SchedulerCounters()
        self._roster = Roster(limits.max_active, cache, clock)
        self._flights = Flights(programs, self._costs, self._counters, clock)
        self._copies = CopyBook(cache, self._costs, clock)
        self._pressure = Pressure(cache, self._roster, self._copies, self._counters)
        self._saver = Saver(programs, cache, self._roster, self._counters)
        n_most_tokens = min(limits.prefill_tokens, programs.rows(RoundKind.PREFILL))
        self._composer = Composer(
            n_most_tokens,
            limits.gap_s,
            programs,
            self._roster,
            self._pressure,
            self._costs,
            limits.distributed,
            limits.prompt_distributed,
        )
        self._admitter = Admitter(
            programs.n_most_starting(cache.shape.n_rows),
            n_most_tokens,
            cache,
            self._roster,
            self._pressure,
            self._copies,
            self._costs,
            self._counters,
        )

    @property
    def scores_prompts(self) -> bool:
        """Whether requests may ask for scores of their prompts: the core has a program that makes them."""
        return self._programs.lanes(RoundKind.SCORED_PREFILL) > 0

    @property
    def reports_distributions(self) -> bool:
        """Whether requests may ask for named candidates, or for whole distributions."""
        return self._limits.distributed > 0

    @property
    def reports_prompt_distributions(self) -> bool:
        """Whether they may for the tokens of their prompts."""
        return self.scores_prompts and self._limits.prompt_distributed > 0

    # -- arrivals and departures

    def submit(self, key: int, request: GenerationRequest) -> None:
        """Queue a request under the caller's `key`. Raises ContextLengthError when it can never fit, and what its constraint
        raises."""
        n_prompt = len(request.prompt_tokens)
        if n_prompt < 1 or n_prompt >= self._limits.context_tokens:
            raise ContextLengthError(n_prompt, self._limits.context_tokens - 1)
        if request.prompt_candidates is not None and not self.scores_prompts:
            raise InvalidValueError("this model's core has no program that scores prompts", param="prompt_logprobs")
        if request.sampling.needs_distribution and not self.reports_distributions:
            raise InvalidValueError("this model's core reports no whole distributions", param="candidates")
        if request.needs_prompt_distributions and not self.reports_prompt_distributions:
            raise InvalidValueError("this model's core reports no whole distributions of prompts", param="candidates")
        output_limit = min(request.output_limit, self._limits.context_tokens - n_prompt)
        prefix = prefix_key(self._limits.cache_identity, request.cache_salt, "", ())
        now_s = self._clock()
        self._cache.expire(now_s)
        sequence = Sequence(key, self._n_arrivals, request, output_limit, prefix, now_s)
        n_most_positions = self._cache.shape.n_pages * self._limits.page_tokens
        if sequence.n_most_positions > n_most_positions:
            raise ContextLengthError(n_prompt, n_most_positions - output_limit)
        if request.constraint is not None:
            sequence.mask = request.constraint.mask()
        self._n_arrivals += 1
        self._roster.enqueue(sequence)

    def cancel(self, key: int) -> Delivery:
        """End a request now, in any phase. Its slot and pages follow when its last round is retired."""
        sequence = self._roster.by_key.get(key)
        if sequence is None or sequence.ending is not None:
            return []
        event = self._end(sequence, FinishReason.CANCELLED)
        if sequence.phase in LEAVING:
            self._pressure.settle(sequence)
        return [(key, [event])]

    def fail_all(self, error: HeliosError) -> Delivery:
        """The device is gone: every unfinished request ends with `error`. Nothing is planned or retired any more."""
        unfinished = [s for s in self._roster.by_key.values() if s.ending is None]
        return [(sequence.key, [self._end(sequence, error)]) for sequence in unfinished]

    # -- planning

    @property
    def has_work(self) -> bool:
        return bool(self._roster.by_key)

    @property
    def is_waiting(self) -> bool:
        """After a `plan` that gave nothing: it will give nothing before a transfer completes."""
        return self.has_work and not self._flights and self._copies.n_under_way > 0

    def plan(self) -> Round | None:
        """The next round, or None when nothing can be launched before another completion, transfer or arrival."""
        if self._flights.is_closed:
            return None
        self._admitter.admit()
        kind, decoding, shares = self._composer.compose()
        if decoding or shares:
            return self._plan_lanes(kind, decoding, shares)
        saving = self._saver.behind([])
        return self._launch(None, None, Work(), saving, is_alone=False) if saving else None

    def _plan_lanes(self, kind: RoundKind, decoding: List[Sequence], shares: Shares) -> Round | None:
        """A round of these. None when it needs its completion before another may follow, and one is in flight (SPEC-7, STOP-3): it
        has prompts, which change phase; the host decides one of its lanes; or what it costs is not known."""
        n_lanes, n_rows = len(decoding) + len(shares), len(decoding) + sum([n for _, n in shares])
        program, is_known = self._choice.choose(kind, n_lanes, n_rows, self._clock())
        is_alone = bool(shares) or not is_known or any(s.is_host_decided for s in decoding)
        if is_alone and self._flights:
            return None
        self._composer.was_scored = kind is RoundKind.SCORED_PREFILL
        work = assemble(self._cache, decoding, shares)
        saving = self._saver.behind([sequence for sequence, _ in shares])
        return self._launch(kind, program, work, saving, is_alone=is_alone)

    def _launch(
        self, kind: RoundKind | None, program: ProgramShape | None, work: Work, saving: Saving, *, is_alone: bool
    ) -> Round:
        n_admissions, n_restores = len(work.admissions), len(work.restores)
        self._counters.n_snapshot_restores += n_restores
        round_ = Round(
            program,
            tuple(work.lanes),
            work.n_rows,
            tuple(work.page_updates),
            tuple(work.admissions),
            self._programs.choose(RoundKind.INITIALIZE, n_admissions, 0) if n_admissions else None,
            tuple(work.restores),
            self._programs.choose(RoundKind.RESTORE, n_restores, 0) if n_restores else None,
            tuple([snapshot for _, snapshot in saving]) if saving else (),
            self._programs.choose(RoundKind.SNAPSHOT, len(saving), 0) if saving else None,
        )
        self._flights.launch(round_, kind, saving, is_alone=is_alone)
        return round_

    # -- transfers

    def take_transfers(self) -> list[Transfer]:
        """The copies between device and host memory to start now, beside the rounds. Call it after each plan."""
        return self._copies.take()

    def finish_transfer(self, transfer: Transfer) -> None:
        """A copy is complete."""
        self._copies.finish(transfer)
        self._roster.has_news = True

    # -- completions

    def retire(self, round_: Round, completions: List[LaneCompletion]) -> Delivery:
        """Take in one completion. Raises DeviceError, before any state changes, when it is not what the round must yield."""
        self._flights.check_order(round_)
        check_completions(round_, completions, self._limits.vocabulary)
        flight = self._flights.complete()
        deliveries: Delivery = []
        for lane, completion in zip(round_.lanes, completions, strict=True):
            events = self._retire_lane(lane, completion)
            if events:
                deliveries.append((lane.sequence.key, events))
        if flight.saving:
            self._saver.retire(flight.saving)
        for sequence in tuple(self._roster.leaving):
            self._pressure.settle(sequence)
        return deliveries

    def _retire_lane(self, lane: Lane, completion: LaneCompletion) -> list[Event]:
        sequence = lane.sequence
        sequence.n_in_flight -= 1
        sequence.n_consumed = completion.consumed
        sequence.device_finish = completion.finish
        sequence.n_sampled += completion.emitted
        if sequence.ending is not None:
            return []
        if lane.is_prompt:
            self._cache.publish(sequence.held, sequence.tokens, sequence.n_consumed)
            self._roster.has_news = True
        if completion.scores:
            take_scores(lane, completion)
        if not completion.emitted:
            return []
        sequence.tokens.append(completion.token)
        self._counters.n_output_tokens += 1
        events: list[Event] = [token_event(sequence, completion, self._flights.completed_s)]
        if sequence.request.prompt_candidates is not None and sequence.n_emitted == 1:
            events.insert(0, PromptScores(tuple(sequence.scores)))
        ending = ending_after(sequence, completion) if completion.finish or sequence.is_host_decided else None
        return events if ending is None else [*events, self._end(sequence, ending)]

    def _end(self, sequence: Sequence, ending: FinishReason | HeliosError) -> Finished | Failed:
        """Decide a sequence's ending, once. What the device has ended is published; slot and pages follow at the fence."""
        sequence.end(ending)
        if sequence.phase is Phase.QUEUED:
            self._roster.forget(sequence)
        elif ending in DEVICE_REASONS.values():
            self._cache.publish(sequence.held, sequence.tokens, sequence.n_consumed)
            self._roster.leave(sequence, Phase.SAVING if self._saver.reserves_answer(sequence) else Phase.DRAINING)
        else:
            self._roster.leave(sequence, Phase.DRAINING)
        return Failed(ending) if isinstance(ending, HeliosError) else Finished(ending, sequence.usage())

    # -- books

    def check(self) -> None:
        """Raise InternalError unless slots, phases, pages and rounds in flight agree. Walks everything: for tests."""
        self._roster.check()
        self._cache.check()
        n_in_flight: dict[int, int] = {}
        for flight in self._flights:
            lanes = [lane.sequence for lane in flight.round_.lanes]
            for sequence in lanes + [sequence for sequence, _ in flight.saving]:
                n_in_flight[sequence.key] = n_in_flight.get(sequence.key, 0) + 1
        for sequence in self._roster.by_key.values():
            if sequence.n_in_flight != n_in_flight.get(sequence.key, 0):
                raise InternalError(
                    f"a {sequence.phase.value} sequence is in {sequence.n_in_flight} rounds by its count"
                )
        for sequence in self._roster.active + self._roster.leaving:
            if sequence.n_positions != sequence.held.n_pages * self._limits.page_tokens:
                raise InternalError(f"{sequence.n_positions} positions in {sequence.held.n_pages} pages")
            if sequence.is_initialized and not sequence.n_consumed <= sequence.n_scheduled <= sequence.n_positions:
                raise InternalError(
                    f"{sequence.n_consumed} tokens consumed, {sequence.n_scheduled} launched, {sequence.n_positions} fit"
                )

    def statistics(self) -> dict[str, Number]:
        """Gauges and totals, by metric name; may be called from another thread."""
        roster = self._roster
        phases = [sequence.phase for sequence in tuple(roster.by_key.values())]
        return {
            "requests_waiting": len(roster.queued),
            "requests_running": len(roster.active) + len(roster.leaving),
            **{f'requests{{phase="{phase.value}"}}': phases.count(phase) for phase in Phase if phase is not Phase.DONE},
            "slots": self._limits.max_active,
            "slots_free": roster.n_free_slots,
            "rounds_in_flight": len(self._flights),
            **self._counters.statistics(),
            **self._cache.statistics(),
        }
