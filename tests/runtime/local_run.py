"""The real runtime driven round by round by a test: no threads, no sockets, any scheduler limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from helios.cache.books import CacheBooks, CacheShape
from helios.corefile.reader import Core, open_core
from helios.device.device import Device
from helios.engine import Bootstrap
from helios.runtime.model import ModelRuntime
from helios.runtime.selection import program_table
from helios.scheduler.request import Event, Failed, Finished, FinishReason, GenerationRequest, Token
from helios.scheduler.scheduler import Scheduler, SchedulerLimits


@dataclass
class Outcome:
    """What came of one request."""

    tokens: list[Token] = field(default_factory=list)
    ending: Finished | Failed | None = None

    @property
    def ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    @property
    def reason(self) -> FinishReason | None:
        return self.ending.reason if isinstance(self.ending, Finished) else None


class LoadedModel:
    """A core on the CPU device with `n_threads` threads and `n_pages` cache pages; owner closes."""

    def __init__(self, core_path: Path, n_threads: int, n_pages: int, acceptance: str = "local") -> None:
        self.core: Core = open_core(core_path)
        self.bootstrap = Bootstrap.load(self.core, acceptance)
        self.device = Device.open("cpu", n_threads)
        contract = self.bootstrap.contract
        self.n_pages = n_pages
        self.runtime = ModelRuntime.load(self.core, contract, self.bootstrap.manifest, self.device, n_pages)

    def run(
        self,
        requests: Iterable[GenerationRequest],
        *,
        max_active: int | None = None,
        prefill_tokens: int | None = None,
        frames: int = 2,
        arrive: Callable[[int], int] = lambda index: 0,
    ) -> list[Outcome]:
        """All requests to their end. Request i arrives after `arrive(i)` further rounds have been retired."""
        contract = self.bootstrap.contract
        limits = SchedulerLimits(
            max_active or contract.concurrency,
            contract.context_tokens,
            prefill_tokens or contract.prefill_tokens,
            contract.page_tokens,
            contract.vocabulary,
        )
        cache = CacheBooks(CacheShape(contract.page_tokens, self.n_pages))
        scheduler = Scheduler(limits, program_table(contract), cache, time.monotonic)
        outcomes: list[Outcome] = []
        for index, request in enumerate(requests):
            for _ in range(arrive(index)):
                self._step(scheduler, frames, outcomes)
            outcomes.append(Outcome())
            scheduler.submit(index, request)
        while scheduler.has_work:
            self._step(scheduler, frames, outcomes)
        scheduler.check()
        assert cache.n_free_pages + cache.n_evictable_pages == self.n_pages
        return outcomes

    def _step(self, scheduler: Scheduler, frames: int, outcomes: list[Outcome]) -> None:
        while self.runtime.n_in_flight < frames:
            round_ = scheduler.plan()
            if round_ is None:
                break
            self.runtime.launch(round_)
        if not self.runtime.n_in_flight:
            return
        for key, events in scheduler.retire(*self.runtime.complete()):
            for event in events:
                _take(outcomes[key], event)

    def close(self) -> None:
        self.runtime.close()
        self.device.close()
        self.core.close()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _take(outcome: Outcome, event: Event) -> None:
    assert outcome.ending is None
    if isinstance(event, Token):
        outcome.tokens.append(event)
    else:
        outcome.ending = event
