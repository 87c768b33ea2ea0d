"""A scheduler, its cache and a hashing device, stepped by a test."""

from __future__ import annotations

from collections import deque

from helios.cache.books import CacheBooks, CacheShape
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.request import Event, Failed, Finished, GenerationRequest, PromptScores, Token
from helios.scheduler.round import ProgramShape, Round
from helios.scheduler.scheduler import Delivery, Scheduler, SchedulerLimits
from helios.scheduler.sequence import Sequence
from tests.scheduler.hashing_device import PAGE_TOKENS, VOCABULARY, HashingDevice
from tests.scheduler.requests import CONTEXT, fresh

N_MOST_STEPS = 20_000


def make_programs(n_slots: int, chunk: int, *, has_snapshots: bool = True) -> ProgramTable:
    shapes = {
        RoundKind.INITIALIZE: [(1, 0), (8, 0)],
        RoundKind.PREFILL: [(1, chunk), (4, 2 * chunk)],
        RoundKind.DECODE: [(1, 1), (2, 2), (n_slots, n_slots)],
        RoundKind.MIXED: [(n_slots, n_slots + chunk)],
        RoundKind.SCORED_PREFILL: [(2, 11 if chunk < 40 else chunk)],
    }
    if has_snapshots:
        shapes |= {RoundKind.RESTORE: [(4, 0)], RoundKind.SNAPSHOT: [(1, 0), (3, 0)]}
    programs: dict[RoundKind, list[ProgramShape]] = {}
    index = 0
    for kind, extents in shapes.items():
        for lanes, rows in extents:
            programs.setdefault(kind, []).append(ProgramShape(index, f"{kind.value}_{lanes}_{rows}", lanes, rows))
            index += 1
    return ProgramTable(programs)


def page_table(sequence: Sequence) -> list[int]:
    """The pages of a sequence by the cache's books, which know nothing of page tables."""
    holding = sequence.held
    return [
        holding.private[index] if index in holding.private else holding.nodes[index].device_id
        for index in range(holding.n_pages)
    ]


class Clock:
    """Time as the test wants it. Every reading takes `tick_s`."""

    def __init__(self, tick_s: float = 0.001) -> None:
        self.now_s = 0.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


class Simulation:
    """Rounds run when they are launched and copies end at the next step, unless the test does these things itself."""

    def __init__(
        self,
        n_slots: int = 4,
        n_pages: int = 24,
        chunk: int = 16,
        frames: int = 2,
        *,
        n_rows: int = 6,
        n_host_pages: int = 0,
        n_host_rows: int = 0,
        is_recurrent: bool = False,
        clock: Clock | None = None,
    ) -> None:
        shape = CacheShape(PAGE_TOKENS, n_pages, n_rows, n_host_pages, n_host_rows, is_truncatable=not is_recurrent)
        limits = SchedulerLimits(n_slots, CONTEXT, chunk, PAGE_TOKENS, VOCABULARY)
        self.cache = CacheBooks(shape)
        self.clock = clock or Clock()
        programs = make_programs(n_slots, chunk, has_snapshots=n_rows > 0)
        self.scheduler = Scheduler(limits, programs, self.cache, self.clock)
        self.device = HashingDevice(n_slots, shape, is_recurrent=is_recurrent)
        self.frames = frames
        self.in_flight: deque[Round] = deque()
        self.requests: dict[int, GenerationRequest] = {}
        self.events: dict[int, list[Event]] = {}

    # -- what a worker does

    def submit(self, key: int, request: GenerationRequest) -> None:
        self.requests[key] = request
        self.scheduler.submit(key, fresh(request))

    def cancel(self, key: int) -> None:
        self.take(self.scheduler.cancel(key))
        self.scheduler.check()

    def take(self, delivery: Delivery) -> None:
        for key, events in delivery:
            self.events.setdefault(key, []).extend(events)

    def plan(self) -> Round | None:
        """Plan and queue a round, and start the copies that were asked for."""
        if len(self.in_flight) >= self.frames:
            return None
        round_ = self.scheduler.plan()
        self.device.start_transfers(self.scheduler.take_transfers())
        if round_ is not None:
            self.device.launch(round_)
            self.in_flight.append(round_)
        self.scheduler.check()
        return round_

    def launch(self) -> bool:
        self.finish_transfers()
        round_ = self.plan()
        self.device.execute()
        return round_ is not None

    def retire(self) -> None:
        round_, completions = self.device.complete()
        assert round_ is self.in_flight.popleft()
        self.take(self.scheduler.retire(round_, completions))
        self.scheduler.check()

    def finish_transfers(self) -> None:
        while self.device.copying:
            self.finish_transfer(0)

    def finish_transfer(self, index: int) -> None:
        self.scheduler.finish_transfer(self.device.finish_transfer(index))
        self.scheduler.check()

    def run(self) -> None:
        """Everything to its end."""
        for _ in range(N_MOST_STEPS):
            while self.launch():
                pass
            if self.in_flight:
                self.retire()
            elif self.scheduler.is_waiting:
                assert self.device.copying
            else:
                assert not self.scheduler.has_work, "requests are waiting, and no round can be planned"
                return
        raise AssertionError("the scheduler does not come to an end")

    # -- what came of it

    def statistic(self, name: str) -> int:
        return self.scheduler.statistics()[name]

    def tokens(self, key: int) -> list[int]:
        return [event.token_id for event in self.events.get(key, []) if isinstance(event, Token)]

    def scores(self, key: int) -> list[PromptScores]:
        """Its scores, which come before its first token."""
        events = self.events.get(key, [])
        scores = [event for event in events if isinstance(event, PromptScores)]
        assert scores == events[: len(scores)]
        return scores

    def ending(self, key: int) -> Finished | Failed:
        endings = [event for event in self.events[key] if isinstance(event, Finished | Failed)]
        assert len(endings) == 1
        assert self.events[key][-1] is endings[0]
        return endings[0]

    def is_empty(self) -> bool:
        """Nobody holds a slot or a page any more; what is cached may go."""
        return self.cache.n_free_pages + self.cache.n_evictable_pages == self.cache.shape.n_pages and (
            self.statistic("slots_free") == self.statistic("slots")
        )
