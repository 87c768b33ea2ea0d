"""The worker's loop over a scripted scheduler and runtime: what it waits for, and how it ends requests when the device dies."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from helios.cache.transfer import Store, Transfer
from helios.errors import DeviceError, DeviceStalledError, HeliosError, InternalError
from helios.runtime.worker import ModelWorker
from helios.scheduler.request import Event, Failed, Finished, FinishReason, GenerationRequest, Token, Usage
from helios.scheduler.scheduler import Delivery

REQUEST = GenerationRequest((1, 2), 4)
PAGE = Transfer(Store.PAGE, False, 3, 5)
ROUND: Any = object()


@dataclass
class ScriptedScheduler:
    """Keeps its requests until all of `rounds` are retired. A transfer has to finish before the first round when `reloads`, behind
    the first one when `reloads_later`."""

    rounds: int = 1
    reloads: bool = False
    reloads_later: bool = False
    log: list[str] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    n_planned: int = 0
    is_waiting: bool = False
    to_start: list[Transfer] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        return bool(self.keys)

    def submit(self, key: int, request: GenerationRequest) -> None:
        self.keys.append(key)
        if self.reloads:
            self._reload()

    def _reload(self) -> None:
        self.is_waiting, self.to_start = True, [PAGE]

    def cancel(self, key: int) -> Delivery:
        return []

    def plan(self) -> Any:
        self.log.append("plan")
        if self.is_waiting or self.n_planned == self.rounds:
            return None
        self.n_planned += 1
        return ROUND

    def take_transfers(self) -> list[Transfer]:
        taken, self.to_start = self.to_start, []
        return taken

    def finish_transfer(self, transfer: Transfer) -> None:
        self.log.append("finish_transfer")
        self.is_waiting = False

    def retire(self, round_: Any, completions: list[Any]) -> Delivery:
        self.log.append("retire")
        if self.reloads_later and self.log.count("retire") == 1:
            self._reload()
        if self.log.count("retire") < self.rounds:
            return []
        keys, self.keys = self.keys, []
        return [(key, [Finished(FinishReason.LIMIT, Usage(2, 4))]) for key in keys]

    def fail_all(self, error: HeliosError) -> Delivery:
        keys, self.keys = self.keys, []
        return [(key, [Failed(error)]) for key in keys]

    def statistics(self) -> dict[str, int]:
        return {}


@dataclass
class ScriptedRuntime:
    """Two frames; a transfer finishes when it is waited for. `breaks` names the call that finds the device dead, `hangs` the one
    that sets `is_stuck` and does not return before `is_back`."""

    log: list[str]
    breaks: str = ""
    hangs: str = ""
    is_stuck: threading.Event = field(default_factory=threading.Event)
    is_back: threading.Event = field(default_factory=threading.Event)
    in_flight: int = 0
    started: deque[Transfer] = field(default_factory=deque)
    is_done: bool = False
    later: dict[str, str] = field(default_factory=dict)  # `breaks` and `hangs` behind the first completion
    on_complete: Callable[[], None] = lambda: None

    @property
    def has_free_frame(self) -> bool:
        return self.in_flight < 2

    @property
    def n_in_flight(self) -> int:
        return self.in_flight

    def _call(self, name: str) -> None:
        self.log.append(name)
        if name == self.breaks:
            raise DeviceError(f"{name} found the device dead")
        if name == self.hangs:
            self.is_stuck.set()
            assert self.is_back.wait(60)

    def make_current(self) -> None:
        assert threading.current_thread().name == "helios-model"

    def launch(self, round_: Any) -> None:
        self._call("launch")
        self.in_flight += 1

    def complete(self) -> tuple[Any, list[Any]]:
        self._call("complete")
        self.in_flight -= 1
        self.breaks, self.hangs = self.later.get("breaks", self.breaks), self.later.get("hangs", self.hangs)
        self.on_complete()
        return ROUND, []

    def start_transfers(self, transfers: list[Transfer]) -> None:
        self.started.extend(transfers)
        if transfers:
            self._call("start_transfers")

    def finished_transfers(self) -> list[Transfer]:
        if self.started and "finished_transfers" in (self.breaks, self.hangs):
            self._call("finished_transfers")
        finished = list(self.started) if self.is_done else []
        if finished:
            self.started.clear()
        return finished

    def wait_transfer(self) -> None:
        self._call("wait_transfer")
        self.is_done = True

    def statistics(self) -> dict[str, int]:
        return {}


class Run:
    """A worker over both, and what it delivered. `submit` all, then `wait` for as many endings. The watch looks while the device
    hangs, so a step that is late for another reason is no stall."""

    def __init__(self, scheduler: ScriptedScheduler, breaks: str = "") -> None:
        self.scheduler = scheduler
        self.runtime = ScriptedRuntime(scheduler.log, breaks)
        self.delivered: list[tuple[int, Any]] = []
        self._has_delivered = threading.Condition()
        runtime: Any = self.runtime
        books: Any = scheduler
        self.worker = ModelWorker(runtime, books, self._take, device_timeout_s=0.2)
        watch = self.worker._watch
        look = watch.look
        watch.look = lambda: self.runtime.is_stuck.is_set() and look()  # type: ignore[method-assign]

    def _take(self, delivery: Delivery) -> None:
        with self._has_delivered:
            self.delivered += [(key, event) for key, events in delivery for event in events]
            self._has_delivered.notify()

    def submit(self, *keys: int) -> Run:
        for key in keys:
            self.worker.submit(key, REQUEST)
        return self

    def wait(self, n_endings: int) -> list[tuple[int, Any]]:
        with self._has_delivered:
            assert self._has_delivered.wait_for(lambda: len(self.delivered) >= n_endings, timeout=30)
        return self.delivered


def test_the_worker_sleeps_in_a_transfer_only_when_nothing_else_can_run() -> None:
    """CACHE-3: started behind the plan that asked for it, reported before the next one."""
    run = Run(ScriptedScheduler(reloads=True)).submit(0)
    run.worker.start()
    run.wait(1)
    run.worker.stop()
    expected = [
        "plan",
        "start_transfers",
        "wait_transfer",
        "finish_transfer",
        "plan",
        "launch",
        "plan",
        "complete",
        "retire",
    ]
    assert run.scheduler.log == expected


def test_a_round_in_flight_is_retired_first() -> None:
    """SPEC-7: a sequence that waits for its pages holds nobody up."""
    run = Run(ScriptedScheduler(rounds=2, reloads_later=True)).submit(0)
    run.worker.start()
    run.wait(1)
    run.worker.stop()
    log = [entry for entry in run.scheduler.log if entry != "plan"]
    assert log == ["launch", "launch", "complete", "retire", "start_transfers", "complete", "retire"]


@pytest.mark.parametrize("breaks", ["launch", "complete", "start_transfers", "finished_transfers", "wait_transfer"])
def test_a_dead_device_ends_every_request_once(breaks: str) -> None:
    """HTTP-3, CACHE-4: whichever call finds out; and what comes later is answered at once with the same error."""
    run = Run(ScriptedScheduler(reloads=True), breaks).submit(0, 1, 2)
    run.worker.start()
    run.wait(3)
    run.submit(3)
    delivered = run.wait(4)
    assert sorted(key for key, _ in delivered) == [0, 1, 2, 3]
    assert {type(event) for _, event in delivered} == {Failed}
    assert {event.error.message for _, event in delivered} == {f"{breaks} found the device dead"}
    assert isinstance(run.worker.fault, DeviceError)
    assert not run.worker.is_alive
    run.worker.stop()
    assert len(run.delivered) == 4


class TalkingScheduler(ScriptedScheduler):
    """Every round yields a token of every request, and has to complete before the next."""

    def plan(self) -> Any:
        self.log.append("plan")
        if self.n_planned == self.rounds or self.n_planned > self.log.count("retire"):
            return None
        self.n_planned += 1
        return ROUND

    def retire(self, round_: Any, completions: list[Any]) -> Delivery:
        self.log.append("retire")
        events: list[Event] = [Token(self.log.count("retire"))]
        if self.log.count("retire") < self.rounds:
            return [(key, events) for key in self.keys]
        keys, self.keys = self.keys, []
        return [(key, [*events, Finished(FinishReason.LIMIT, Usage(2, 4))]) for key in keys]


class LoggedRun(Run):
    """Deliveries stand in the log too."""

    def _take(self, delivery: Delivery) -> None:
        self.scheduler.log.append("deliver")
        super()._take(delivery)


def test_what_a_round_yields_is_told_while_the_next_one_is_computed() -> None:
    """SPEC-7: where a round needs the completion before it, the device does not wait for what is told."""
    run = LoggedRun(TalkingScheduler(rounds=3)).submit(0)
    run.worker.start()
    delivered = run.wait(4)
    run.worker.stop()
    log = [entry for entry in run.scheduler.log if entry != "plan"]
    told_beside = ["launch", "deliver", "complete", "retire"]
    assert log == ["launch", "complete", "retire", *told_beside, *told_beside, "deliver"]
    assert [event.token_id for _, event in delivered[:-1]] == [1, 2, 3]


@pytest.mark.parametrize("way", ["breaks", "hangs"])
def test_a_launch_that_fails_loses_nothing_that_was_said(way: str) -> None:
    """HTTP-2, HTTP-3: the round before it is told first."""
    run = Run(TalkingScheduler(rounds=3)).submit(0)
    run.runtime.later[way] = "launch"
    run.worker.start()
    (_, token), (_, ending) = run.wait(2)
    assert token == Token(1)
    assert isinstance(ending.error, DeviceError)
    run.runtime.is_back.set()
    run.worker.stop()
    assert len(run.delivered) == 2


def test_a_request_cancelled_between_two_rounds_hears_the_first() -> None:
    """HTTP-3: the ending comes last, whatever ends it."""
    run = Run(TalkingScheduler(rounds=2)).submit(0)

    def cancel(key: int) -> Delivery:
        run.scheduler.keys.remove(key)
        return [(key, [Finished(FinishReason.CANCELLED, Usage(2, 1))])]

    run.scheduler.cancel = cancel  # type: ignore[method-assign]
    run.runtime.on_complete = lambda: run.worker.cancel(0)
    run.worker.start()
    (_, token), (_, ending) = run.wait(2)
    assert (token, ending.reason) == (Token(1), FinishReason.CANCELLED)
    run.worker.stop()


def test_work_that_nothing_will_ever_move_is_a_bug_and_not_a_hang() -> None:
    run = Run(ScriptedScheduler(rounds=0)).submit(0)
    run.worker.start()
    ((_, event),) = run.wait(1)
    run.worker.stop()
    assert isinstance(event.error, InternalError)
    assert "no round can be planned" in event.error.message


@pytest.mark.parametrize("hangs", ["launch", "complete", "start_transfers", "finished_transfers", "wait_transfer"])
def test_a_device_that_never_answers_ends_every_request_once(hangs: str) -> None:
    """HTTP-3: whichever call is stuck; later requests are answered at once, and a device that comes back after all says nothing."""
    run = Run(ScriptedScheduler(reloads=True)).submit(0, 1, 2)
    run.runtime.hangs = hangs
    run.worker.start()
    run.wait(3)
    run.submit(3)
    run.worker.cancel(0)
    delivered = run.wait(4)
    assert sorted(key for key, _ in delivered) == [0, 1, 2, 3]
    assert {type(event.error) for _, event in delivered} == {DeviceStalledError}
    assert not run.worker.is_alive
    assert not run.worker.stop()
    run.runtime.is_back.set()
    assert any(run.worker.stop() for _ in range(60))  # each waits a second for the thread
    assert len(run.delivered) == 4


def test_a_device_that_hangs_while_it_drains_does_not_hold_up_the_end() -> None:
    """RT-6: its memory is not touched, as it may still be at work."""
    run = Run(ScriptedScheduler(rounds=2)).submit(0)
    stopping: list[bool] = []
    stop = threading.Thread(target=lambda: stopping.append(run.worker.stop()))

    def stop_between_two_rounds() -> None:
        stop.start()
        while not run.worker._is_stopping:
            time.sleep(0.002)

    run.runtime.on_complete = stop_between_two_rounds
    run.runtime.later["hangs"] = "complete"
    run.worker.start()
    ((key, event),) = run.wait(1)
    assert (key, type(event)) == (0, Failed)
    stop.join(60)
    assert stopping == [False]
    run.runtime.is_back.set()
