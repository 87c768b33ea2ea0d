"""Health and reflection, whose code is the library's: how many calls and streams there may be, and that none holds up another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from helios.server.grpc import stock_calls
from tests.server.grpc.conftest import DEADLINE_S, Client, RunningGrpc, wait_until

ListServices = reflection_pb2.ServerReflectionRequest(list_services="*")


class Reflection:
    """A reflection stream that asks once and then stays open, asking nothing, until it is closed."""

    def __init__(self, client: Client, version: str = "v1") -> None:
        self._is_over = threading.Event()
        method = client.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        self.call = method(self._asked(), timeout=DEADLINE_S)

    def _asked(self) -> Iterator[Any]:
        yield ListServices
        self._is_over.wait(DEADLINE_S)

    def answer(self) -> Any:
        return next(self.call).list_services_response

    def code(self) -> Any:
        """How the stream ended."""
        with pytest.raises(grpc.RpcError) as caught:
            next(self.call)
        return caught.value.code()

    def __enter__(self) -> Reflection:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.call.cancel()


def watch(client: Client) -> Any:
    return health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)


def check(client: Client) -> Any:
    return health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)


def refusal(call: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    return caught.value.code()


def test_watchers_beyond_the_limit_are_refused_and_one_that_goes_makes_room(served: RunningGrpc) -> None:
    """GRPC-4: 1,024 streams; the calls of the service, and the streams of others, go on."""
    clients = [served.client() for _ in range(3)]  # a connection has 512
    watchers = [watch(clients[i * 2 // stock_calls.N_STREAMS]) for i in range(stock_calls.N_STREAMS)]
    for watcher in watchers:
        assert next(watcher).status == health_pb2.HealthCheckResponse.SERVING
    assert refusal(watch(clients[2])) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert check(clients[2]).status == health_pb2.HealthCheckResponse.SERVING
    with Reflection(clients[2]) as reflection:
        assert reflection.answer().service
    watchers.pop().cancel()

    def is_let_in() -> bool:
        watcher = watch(clients[2])
        watchers.append(watcher)
        try:
            return bool(next(watcher).status == health_pb2.HealthCheckResponse.SERVING)
        except grpc.RpcError:
            return False

    wait_until(is_let_in)
    for watcher in watchers:
        watcher.cancel()


def test_reflection_streams_that_ask_nothing_make_way_for_one_that_does(served: RunningGrpc) -> None:
    """GRPC-4: an open stream waits for its next message, in one of two turns, and loses it when others come."""
    client = served.client()
    with ExitStack() as stack:
        idle = [stack.enter_context(Reflection(client)) for _ in range(stock_calls.N_TURNS)]
        for each in idle:
            assert each.answer().service
        later = stack.enter_context(Reflection(client))
        assert later.answer().service
        wait_until(lambda: not all(each.call.is_active() for each in idle))
        gone = [each for each in idle if not each.call.is_active()]
        assert all(each.code() is grpc.StatusCode.UNAVAILABLE for each in gone)
        alpha = stack.enter_context(Reflection(client, "v1alpha"))
        assert alpha.answer().service


def test_calls_beyond_those_that_may_wait_are_refused(
    scripted: Any, start: Callable[..., RunningGrpc], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GRPC-4: and who waits is answered when it is its turn."""
    monkeypatch.setattr(stock_calls, "N_WAITING", 1)
    monkeypatch.setattr(stock_calls, "GRACE_S", DEADLINE_S)
    client = start(scripted, body_timeout=DEADLINE_S).client()
    with ExitStack() as stack:
        idle = [stack.enter_context(Reflection(client)) for _ in range(stock_calls.N_TURNS)]
        for each in idle:
            assert each.answer().service
        others = [stack.enter_context(Reflection(client)) for _ in range(2)]
        wait_until(lambda: sum(other.call.is_active() for other in others) == 1)
        others.sort(key=lambda other: other.call.is_active())
        assert others[0].code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        idle[0].call.cancel()
        assert others[1].answer().service
