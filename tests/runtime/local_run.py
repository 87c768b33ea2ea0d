"""The real runtime driven round by round by a test: no threads, no sockets, any scheduler limits, any size of cache."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helios.cache.books import CacheBooks, CacheShape
from helios.corefile.reader import Core, open_core
from helios.device.device import Device
from helios.engine import Bootstrap
from helios.owner import Owner
from helios.runtime.model import ModelRuntime
from helios.runtime.selection import program_table
from helios.scheduler.request import (
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    PromptScores,
    Token,
)
from helios.scheduler.scheduler import Scheduler, SchedulerLimits


@dataclass
class Outcome:
    """What came of one request."""

    tokens: list[Token] = field(default_factory=list)
    scores: PromptScores | None = None
    ending: Finished | Failed | None = None

    @property
    def ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    @property
    def reason(self) -> FinishReason:
        assert isinstance(self.ending, Finished)
        return self.ending.reason

    @property
    def n_reused(self) -> int:
        assert isinstance(self.ending, Finished)
        return self.ending.usage.reused_prompt_tokens


def uneven_clock() -> Callable[[], float]:
    """Seconds that go by in steps of all sizes, 10 ms on average, and the same in every run."""
    source = random.Random(0)
    return itertools.accumulate(source.expovariate(100) for _ in itertools.count()).__next__


class LoadedModel(Owner):
    """A core on `device` with a cache of `n_pages` pages; owner closes. `n_threads` is of the CPU device. `n_rows`: snapshots, as
    many as the core has room for when None. `clock`: what schedulers measure by, an uneven one for each when None."""

    def __init__(
        self,
        core_path: Path,
        n_threads: int,
        n_pages: int,
        acceptance: str = "local",
        *,
        n_rows: int | None = None,
        n_host_pages: int = 0,
        n_host_rows: int = 0,
        device: str = "cpu",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.clock = clock
        self.core: Core = open_core(core_path)
        self.bootstrap = Bootstrap.load(self.core, acceptance)
        self.device = Device.open(device, n_threads)
        contract = self.bootstrap.contract
        self.shape = CacheShape(
            contract.page_tokens,
            n_pages,
            contract.n_snapshot_rows if n_rows is None else n_rows,
            n_host_pages,
            n_host_rows,
            contract.is_truncatable,
        )
        self.runtime = ModelRuntime.load(
            self.core,
            contract,
            self.bootstrap.manifest,
            self.device,
            n_pages,
            n_host_pages=n_host_pages,
            n_host_rows=n_host_rows,
        )

    def serve(self, *, max_active: int | None = None, prefill_tokens: int | None = None) -> Serving:
        """A scheduler over an empty cache."""
        contract = self.bootstrap.contract
        limits = SchedulerLimits(
            max_active or contract.concurrency,
            contract.context_tokens,
            prefill_tokens or contract.prefill_tokens,
            contract.page_tokens,
            contract.vocabulary,
            distributed=contract.completion.distributions_capacity,
            prompt_distributed=contract.completion.prompt_distributions_capacity,
        )
        return Serving(self, limits)

    def run(
        self,
        requests: Iterable[GenerationRequest],
        *,
        max_active: int | None = None,
        prefill_tokens: int | None = None,
        frames: int = 2,
        arrive: Callable[[int], int] = lambda index: 0,
    ) -> list[Outcome]:
        """All requests to their end, over an empty cache."""
        return self.serve(max_active=max_active, prefill_tokens=prefill_tokens).run(requests, frames, arrive)

    def close(self) -> None:
        self.runtime.close()
        self.device.close()
        self.core.close()


class Serving:
    """Runs requests one batch after another; the cache stays. `n_prompt_rows`: prompt tokens that were computed."""

    def __init__(self, model: LoadedModel, limits: SchedulerLimits) -> None:
        self.runtime = model.runtime
        self.cache = CacheBooks(model.shape)
        self.scheduler = Scheduler(
            limits, program_table(model.bootstrap.contract), self.cache, model.clock or uneven_clock()
        )
        self.n_prompt_rows = 0
        self._outcomes: list[Outcome] = []

    def run(
        self,
        requests: Iterable[GenerationRequest],
        frames: int = 2,
        arrive: Callable[[int], int] = lambda index: 0,
    ) -> list[Outcome]:
        """All requests to their end. Request i arrives after `arrive(i)` further rounds have been retired."""
        outcomes = []
        for index, request in enumerate(requests):
            for _ in range(arrive(index)):
                self.step(frames)
            outcomes += self.submit([request])
        self.finish(frames)
        return outcomes

    def submit(self, requests: Iterable[GenerationRequest]) -> list[Outcome]:
        """What comes of the requests, filled in by the steps that follow."""
        first = len(self._outcomes)
        for request in requests:
            self.scheduler.submit(len(self._outcomes), request)
            self._outcomes.append(Outcome())
        return self._outcomes[first:]

    def finish(self, frames: int = 2) -> None:
        """All that was submitted, to its end."""
        while self.scheduler.has_work:
            self.step(frames)
        while self.runtime.n_transfers:
            self.runtime.wait_transfer()
            self._report_transfers()
        self.scheduler.check()
        assert self.cache.n_free_pages + self.cache.n_evictable_pages == self.cache.shape.n_pages

    def statistics(self) -> dict[str, Any]:
        return {**self.scheduler.statistics(), **self.runtime.statistics()}

    def step(self, frames: int = 2) -> None:
        """What the worker does in a turn."""
        self._report_transfers()
        while self.runtime.n_in_flight < frames:
            round_ = self.scheduler.plan()
            self.runtime.start_transfers(self.scheduler.take_transfers())
            if round_ is None:
                break
            self.n_prompt_rows += sum(lane.query_length for lane in round_.lanes if lane.is_prompt)
            self.runtime.launch(round_)
        if self.runtime.n_in_flight:
            for key, events in self.scheduler.retire(*self.runtime.complete()):
                for event in events:
                    _take(self._outcomes[key], event)
        elif self.scheduler.is_waiting:
            self.runtime.wait_transfer()
        else:
            assert not self.scheduler.has_work

    def _report_transfers(self) -> None:
        for transfer in self.runtime.finished_transfers():
            self.scheduler.finish_transfer(transfer)


def _take(outcome: Outcome, event: Event) -> None:
    assert outcome.ending is None
    if isinstance(event, Token):
        outcome.tokens.append(event)
    elif isinstance(event, PromptScores):
        assert outcome.scores is None
        assert not outcome.tokens
        outcome.scores = event
    else:
        outcome.ending = event
