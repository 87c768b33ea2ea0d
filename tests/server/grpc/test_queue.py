"""Calls that wait for a slot of the real engine, whose device takes a step when the test lets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import grpc
import pytest

from helios.server.grpc.schema import control_pb2
from tests.server.grpc.conftest import DEADLINE_S, Client, finish_of, request_of, wait_until
from tests.server.grpc.validator import FinishInfo
from tests.server.scripted import N_SLOTS, ScriptedDevice

ENDLESS = {"max_new_tokens": 4000, "ignore_eos": True}
WAITING = 99  # the prompt of whoever comes when the slots are full


@pytest.fixture
def until(device: ScriptedDevice) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Lets the device say tokens until something is so."""
    steps = threading.Semaphore(0)

    def speak(*_: Any) -> int:
        assert steps.acquire(timeout=DEADLINE_S)
        return 40

    def step_until(condition: Callable[[], bool]) -> None:
        looks = count()

        def is_so() -> bool:
            if next(looks) % 10 == 0:  # so seldom that no endless stream has an end while a deadline passes
                steps.release(N_SLOTS)
            return condition()

        wait_until(is_so)

    device.voice = speak
    yield step_until
    device.voice = lambda *_: 40
    steps.release(1 << 16)


def asked(
    client: Client,
    until: Callable[[Callable[[], bool]], None],
    prompt: int,
    timeouts_s: Sequence[float | None] = (None,),
    **fields: Any,
) -> Any:
    """A call that the engine has taken in before its deadline, which is the first that leaves it time for that."""
    n_before = client.engine.statistics()["requests_submitted_total"]

    def is_taken_in() -> bool:
        return bool(client.engine.statistics()["requests_submitted_total"] > n_before)

    for timeout_s in timeouts_s:
        call = client.open(request_of([prompt] * 4, stopping=ENDLESS, **fields), timeout=timeout_s)
        until(lambda call=call: is_taken_in() or not call.is_active())  # type: ignore[misc]
        if is_taken_in():
            break
    return call


@pytest.fixture
def running(client: Client, device: ScriptedDevice, until: Callable[[Callable[[], bool]], None]) -> list[Any]:
    """As many endless streams as there are slots."""
    calls = [asked(client, until, 10 + i) for i in range(N_SLOTS)]
    until(lambda: len(device.requests) == N_SLOTS)
    return calls


@pytest.mark.parametrize("way", ["cancelled", "deadline", "aborted"])
def test_a_queued_call_ends_at_once_and_never_runs(
    client: Client, device: ScriptedDevice, until: Callable[[Callable[[], bool]], None], running: list[Any], way: str
) -> None:
    """GRPC-4: while every slot goes on with another."""

    def n_open() -> int:
        numbers = client.engine.statistics()
        return int(numbers["requests_submitted_total"] - numbers["requests_cancelled_total"])

    queued = asked(client, until, WAITING, (1, 3, 10, 30) if way == "deadline" else (None,), request_id="mine")
    if way == "cancelled":
        queued.cancel()
    if way == "aborted":
        client.control("Abort", control_pb2.AbortResponse, request_ids=["mine"])
    until(lambda: n_open() == N_SLOTS)
    if way == "aborted":
        assert finish_of(list(queued)).finish_reason == FinishInfo.ABORTED
    else:
        with pytest.raises(grpc.RpcError):
            list(queued)
        expected = grpc.StatusCode.DEADLINE_EXCEEDED if way == "deadline" else grpc.StatusCode.CANCELLED
        assert queued.code() is expected
    assert all(call.is_active() for call in running)
    running.pop().cancel()  # its slot goes to nobody
    until(lambda: n_open() == N_SLOTS - 1)
    assert [request.prompt_tokens[0] for request in device.requests] == [10, 11, 12, 13]
    assert client.engine.statistics()["requests_admitted"] == N_SLOTS - 1


def test_the_lower_priority_is_served_sooner(
    client: Client, device: ScriptedDevice, until: Callable[[Callable[[], bool]], None], running: list[Any]
) -> None:
    """GRPC-2: priority, and among equals who came first."""
    queued = [
        asked(client, until, prompt, priority=priority) for prompt, priority in ((50, 9), (51, 5), (52, 1), (53, 5))
    ]
    for n_more, call in enumerate(running, start=1):
        call.cancel()
        n_asked = N_SLOTS + n_more
        until(lambda n_asked=n_asked: len(device.requests) == n_asked)  # type: ignore[misc]
    assert [request.prompt_tokens[0] for request in device.requests[N_SLOTS:]] == [52, 51, 53, 50]
    for call in queued:
        call.cancel()
