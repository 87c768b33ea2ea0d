"""Continuous batching: which sequences hold slots, what the next round contains, what a completion means.

It is pure and synchronous: no clock, no device, no threads; pages are numbers from a `PagePool`. Whatever it does, a request's
tokens are those it would get alone, because programs are exact (design 7); so it is free to choose.
Invariant: slots and pages of a sequence are freed only after the last round that touches them has been retired (SPEC-8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as List
from dataclasses import dataclass

from helios.cache.pages import PagePool
from helios.errors import ContextLengthError, HeliosError, InternalError
from helios.scheduler.completion import check_completions
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.request import Event, Failed, Finished, FinishReason, GenerationRequest, Token
from helios.scheduler.round import Admission, Lane, LaneCompletion, Round
from helios.scheduler.sequence import Phase, Sequence

DEVICE_EOS = 1
DEVICE_LIMIT = 2
_DEVICE_REASONS = {DEVICE_EOS: FinishReason.EOS, DEVICE_LIMIT: FinishReason.LIMIT}

# Prompt tokens that may ride along while streams are decoding: bounds the gap between two of their tokens.
MIXED_PREFILL_TOKENS = 128

MAX_GENERATION = 2**31 - 1  # staged as int32; then it starts again at 0

Delivery = list[tuple[int, list[Event]]]


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`max_active` slots are used; a slot's page table has `pages_per_slot` entries of `page_tokens` tokens."""

    max_active: int
    context_tokens: int
    prefill_tokens: int
    page_tokens: int
    vocabulary: int


@dataclass(slots=True)
class SchedulerCounters:
    """Totals since the start."""

    n_submitted: int = 0
    n_finished: int = 0
    n_cancelled: int = 0
    n_failed: int = 0
    n_rounds: int = 0
    n_prompt_tokens: int = 0
    n_output_tokens: int = 0


class Scheduler:
    """Owns sequences, slots and the books of pages. `submit`, `cancel`, `plan`, `retire`, `fail_all` are its whole life."""

    def __init__(self, limits: SchedulerLimits, programs: ProgramTable, pages: PagePool) -> None:
        self._limits = limits
        self._programs = programs
        self._pages = pages
        self._queue: deque[Sequence] = deque()
        self._active: dict[int, Sequence] = {}  # by key, in order of admission
        self._by_key: dict[int, Sequence] = {}
        self._free_slots = list(range(limits.max_active - 1, -1, -1))
        self._generations = [0] * limits.max_active
        self._n_arrivals = 0
        self._n_rounds_in_flight = 0
        self.counters = SchedulerCounters()

    # -- arrivals and departures

    def submit(self, key: int, request: GenerationRequest) -> None:
        """Queue a request under the caller's `key`. Raises ContextLengthError when it can never fit."""
        n_prompt = len(request.prompt_tokens)
        if n_prompt < 1 or n_prompt >= self._limits.context_tokens:
            raise ContextLengthError(n_prompt, self._limits.context_tokens - 1)
        output_limit = min(request.output_limit, self._limits.context_tokens - n_prompt)
        sequence = Sequence(key, self._n_arrivals, request, output_limit)
        if self._n_pages_for(sequence.n_most_positions) > self._pages.n_pages:
            raise ContextLengthError(n_prompt, self._pages.n_pages * self._limits.page_tokens - output_limit)
        self._n_arrivals += 1
        self._by_key[key] = sequence
        self._queue.append(sequence)
        self.counters.n_submitted += 1

    def cancel(self, key: int) -> Delivery:
        """End a request now, in any phase. Its slot and pages follow when its last round is retired."""
        sequence = self._by_key.get(key)
        if sequence is None or sequence.finish_reason is not None:
            return []
        self.counters.n_cancelled += 1
        return [(key, [self._finish(sequence, FinishReason.CANCELLED)])]

    def fail_all(self, error: HeliosError) -> Delivery:
        """The device is gone: every unfinished request ends with `error`."""
        deliveries: Delivery = []
        for sequence in list(self._by_key.values()):
            if sequence.finish_reason is None:
                sequence.finish_reason = FinishReason.CANCELLED
                self.counters.n_failed += 1
                deliveries.append((sequence.key, [Failed(error)]))
        self._queue.clear()
        self._by_key.clear()
        return deliveries

    # -- planning

    @property
    def has_work(self) -> bool:
        return bool(self._queue or self._active)

    def plan(self) -> Round | None:
        """The next round, or None when nothing can be launched before another completion or arrival."""
        if self._n_rounds_in_flight and any(s.is_host_decided for s in self._active.values() if s.is_active):
            return None
        self._admit()
        decoding = [s for s in self._active.values() if s.can_decode][: self._programs.lanes(RoundKind.DECODE)]
        prefilling = self._share_prefill(len(decoding))
        if not decoding and not prefilling:
            return None
        lanes = [self._decode_lane(s) for s in decoding] + [self._prompt_lane(s, n) for s, n in prefilling]
        kind = RoundKind.DECODE if not prefilling else RoundKind.MIXED if decoding else RoundKind.PREFILL
        n_rows = sum(lane.query_length for lane in lanes)
        program = self._programs.choose(kind, len(lanes), n_rows)
        if program is None:
            raise InternalError(f"no {kind.value} program takes {len(lanes)} lanes and {n_rows} rows")
        updates = [update for lane in lanes for update in self._extend_pages(lane)]
        admissions = [self._initialize(lane) for lane in lanes if not lane.sequence.is_initialized]
        self._n_rounds_in_flight += 1
        self.counters.n_rounds += 1
        initializer = self._programs.choose(RoundKind.INITIALIZE, len(admissions), 0) if admissions else None
        return Round(program, tuple(lanes), n_rows, tuple(updates), tuple(admissions), initializer)

    def _admit(self) -> None:
        """Give slots to the oldest queued sequences whose whole life fits the pages; nobody overtakes."""
        n_most = min(self._programs.lanes(RoundKind.PREFILL), self._programs.lanes(RoundKind.INITIALIZE))
        n_prefilling = sum(1 for s in self._active.values() if s.phase is Phase.PREFILL)
        while self._queue and self._free_slots and n_prefilling < n_most:
            sequence = self._queue[0]
            n_pages = self._n_pages_for(sequence.n_most_positions)
            if not self._pages.reserve(n_pages):
                break
            self._queue.popleft()
            sequence.n_reserved_pages = n_pages
            sequence.slot = self._free_slots.pop()
            sequence.generation = self._generations[sequence.slot] = (
                self._generations[sequence.slot] + 1
            ) & MAX_GENERATION
            sequence.move(Phase.PREFILL)
            self._active[sequence.key] = sequence
            self.counters.n_prompt_tokens += sequence.n_prompt
            n_prefilling += 1

    def _initialize(self, lane: Lane) -> Admission:
        """The slot's state rows are written just before the first round that uses them."""
        lane.sequence.is_initialized = True
        return Admission(lane.sequence, lane.slot, lane.generation)

    def _share_prefill(self, n_decoding: int) -> list[tuple[Sequence, int]]:
        """Prompt tokens of this round: the budget is shared max-min fairly among the prompts under way, in arrival order."""
        kind = RoundKind.MIXED if n_decoding else RoundKind.PREFILL
        waiting = [s for s in self._active.values() if s.phase is Phase.PREFILL]
        waiting = waiting[: max(0, self._programs.lanes(kind) - n_decoding)]
        if not waiting:
            return []
        budget = min(self._limits.prefill_tokens, self._programs.rows(kind, len(waiting) + n_decoding) - n_decoding)
        if n_decoding:
            budget = min(budget, MIXED_PREFILL_TOKENS)
        shares: dict[int, int] = {}
        by_remaining = sorted(waiting, key=lambda s: s.n_prompt - s.n_scheduled)
        for i, sequence in enumerate(by_remaining):
            share = min(sequence.n_prompt - sequence.n_scheduled, budget // (len(by_remaining) - i))
            shares[sequence.key] = share
            budget -= share
        return [(s, shares[s.key]) for s in waiting if shares[s.key] > 0]

    def _decode_lane(self, sequence: Sequence) -> Lane:
        lane = Lane(sequence, sequence.slot, sequence.generation, False, sequence.n_scheduled, 1, True)
        sequence.n_scheduled += 1
        sequence.n_samples_scheduled += 1
        sequence.n_in_flight += 1
        return lane

    def _prompt_lane(self, sequence: Sequence, n_tokens: int) -> Lane:
        position = sequence.n_scheduled
        is_last = position + n_tokens == sequence.n_prompt
        lane = Lane(sequence, sequence.slot, sequence.generation, True, position, n_tokens, is_last)
        sequence.n_scheduled += n_tokens
        sequence.n_in_flight += 1
        if is_last:
            sequence.n_samples_scheduled += 1
            sequence.move(Phase.DECODE)
        return lane

    def _extend_pages(self, lane: Lane) -> list[tuple[int, int, int]]:
        sequence = lane.sequence
        updates: list[tuple[int, int, int]] = []
        while len(sequence.page_ids) * self._limits.page_tokens < lane.position + lane.query_length:
            page_id = self._pages.take_reserved()
            sequence.n_reserved_pages -= 1
            updates.append((lane.slot, len(sequence.page_ids), page_id))
            sequence.page_ids.append(page_id)
        return updates

    def _n_pages_for(self, n_positions: int) -> int:
        return -(-n_positions // self._limits.page_tokens)

    # -- completions

    def retire(self, round_: Round, completions: List[LaneCompletion]) -> Delivery:
        """Take in one completion. Raises DeviceError, before any state changes, when it is not what the round must yield."""
        check_completions(round_, completions, self._limits.vocabulary)
        self._n_rounds_in_flight -= 1
        deliveries: Delivery = []
        for lane, completion in zip(round_.lanes, completions, strict=True):
            events = self._retire_lane(lane.sequence, completion)
            if events:
                deliveries.append((lane.sequence.key, events))
        return deliveries

    def _retire_lane(self, sequence: Sequence, completion: LaneCompletion) -> list[Event]:
        sequence.n_in_flight -= 1
        sequence.n_consumed = completion.consumed
        sequence.device_finish = completion.finish
        if sequence.finish_reason is not None:
            self._release_if_drained(sequence)
            return []
        if not completion.emitted:
            return []
        sequence.n_emitted += 1
        self.counters.n_output_tokens += 1
        events: list[Event] = [_token_event(sequence, completion)]
        reason = _DEVICE_REASONS.get(completion.finish)
        host_stop = sequence.request.host_stop
        if reason is not FinishReason.EOS and host_stop is not None and host_stop(completion.token):
            reason = FinishReason.STOP
        if reason is not None:
            self.counters.n_finished += 1
            events.append(self._finish(sequence, reason))
        return events

    def _finish(self, sequence: Sequence, reason: FinishReason) -> Finished:
        """Decide a sequence's ending, once, and free what can be freed now."""
        sequence.finish_reason = reason
        if sequence.phase is Phase.QUEUED:
            self._queue.remove(sequence)
            sequence.move(Phase.DONE)
            del self._by_key[sequence.key]
        else:
            if sequence.n_in_flight:
                sequence.move(Phase.DRAINING)
            self._release_if_drained(sequence)
        return Finished(reason, sequence.usage())

    def _release_if_drained(self, sequence: Sequence) -> None:
        if sequence.n_in_flight:
            return
        sequence.move(Phase.DONE)
        self._pages.release(sequence.page_ids)
        self._pages.unreserve(sequence.n_reserved_pages)
        sequence.page_ids = []
        sequence.n_reserved_pages = 0
        self._free_slots.append(sequence.slot)
        del self._active[sequence.key]
        self._by_key.pop(sequence.key, None)

    # -- books

    def check(self) -> None:
        """Raise InternalError unless slots and pages balance."""
        self._pages.check()
        held = [s.slot for s in self._active.values()]
        if sorted(held + self._free_slots) != list(range(self._limits.max_active)):
            raise InternalError("slots are lost or held twice")
        pages = self._pages.statistics()
        if sum(len(s.page_ids) for s in self._active.values()) != pages.n_taken:
            raise InternalError("pages are lost or held twice")
        if sum(s.n_reserved_pages for s in self._active.values()) != pages.n_reserved:
            raise InternalError("page reservations are lost or held twice")

    def statistics(self) -> dict[str, int]:
        """Gauges and totals, by metric name."""
        pages = self._pages.statistics()
        return {
            "requests_waiting": len(self._queue),
            "requests_running": len(self._active),
            "slots_total": self._limits.max_active,
            "slots_free": len(self._free_slots),
            "pages_total": pages.n_total,
            "pages_free": pages.n_free,
            "pages_held": pages.n_taken,
            "rounds_in_flight": self._n_rounds_in_flight,
            "requests_submitted_total": self.counters.n_submitted,
            "requests_finished_total": self.counters.n_finished,
            "requests_cancelled_total": self.counters.n_cancelled,
            "requests_failed_total": self.counters.n_failed,
            "rounds_total": self.counters.n_rounds,
            "prompt_tokens_total": self.counters.n_prompt_tokens,
            "output_tokens_total": self.counters.n_output_tokens,
        }


def _token_event(sequence: Sequence, completion: LaneCompletion) -> Token:
    n_candidates = sequence.request.sampling.candidates
    if n_candidates is None:
        return Token(completion.token)
    return Token(completion.token, completion.logprob, completion.rank, completion.candidates[:n_candidates])
