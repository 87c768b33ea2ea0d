"""`grpc.health.v1` with the stock client: Check and Watch, for each service, through readiness, faults and the server's end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.grpc.conftest import DEADLINE_S, RunningGrpc, request_of, wait_until

Status = health_pb2.HealthCheckResponse


def stub_of(served: RunningGrpc) -> Any:
    return health_pb2_grpc.HealthStub(served.client().channel)


def check(served: RunningGrpc, name: str) -> int:
    status: int = stub_of(served).Check(health_pb2.HealthCheckRequest(service=name), timeout=DEADLINE_S).status
    return status


@pytest.mark.parametrize("name", ["", "vllm.Inference", "vllm.Control"])
def test_each_service_is_serving(served: RunningGrpc, name: str) -> None:
    """GRPC-4: and the server as a whole."""
    assert check(served, name) == Status.SERVING


def test_an_unknown_service_is_not_found(served: RunningGrpc) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        check(served, "vllm.Generate")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watcher_of_an_unknown_service_waits_for_it(served: RunningGrpc) -> None:
    watch = stub_of(served).Watch(health_pb2.HealthCheckRequest(service="other"))
    assert next(watch).status == Status.SERVICE_UNKNOWN
    watch.cancel()


def test_a_watcher_sees_each_change(served: RunningGrpc) -> None:
    """GRPC-4: an engine that serves no more is NOT_SERVING, and nothing else is sent between changes."""
    watch = stub_of(served).Watch(health_pb2.HealthCheckRequest(service="vllm.Inference"))
    assert next(watch).status == Status.SERVING
    served.engine.is_draining = True
    assert next(watch).status == Status.NOT_SERVING
    assert check(served, "") == Status.NOT_SERVING
    served.engine.is_draining = False
    assert next(watch).status == Status.SERVING
    watch.cancel()


def test_a_draining_server_says_so_and_then_ends_its_watchers(scripted: Any, start: Callable[..., RunningGrpc]) -> None:
    """HTTP-4, GRPC-4: not serving at once, while open calls go on; a watcher does not keep it from ending."""
    served = start(scripted, drain_timeout=3600)
    watch = stub_of(served).Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == Status.SERVING
    call = served.client().open(request_of())
    wait_until(lambda: len(scripted.generations) == 1)
    stopping = threading.Thread(target=served.stop)
    stopping.start()
    assert next(watch).status == Status.NOT_SERVING
    scripted.generations[0].give(scripted.eos_tokens[0])
    assert len(list(call)) == 2
    with pytest.raises(grpc.RpcError):
        next(watch)
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()
