"""Messages before admission: how many are read at once, how many wait, and who makes way for whom."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from h2.config import H2Configuration
from h2.connection import H2Connection

from helios.errors import StalledSenderError, WaitingFullError
from helios.server.grpc import server, stock_calls
from helios.server.grpc.message_room import MessageRoom, Turn
from tests.server.certificates import make_certificate
from tests.server.grpc.conftest import (
    DEADLINE_S,
    Client,
    GenerateRequest,
    GenerateResponse,
    RunningGrpc,
    request_of,
    wait_until,
)
from tests.server.scripted_engine import ScriptedEngine

ONE_MESSAGE: dict[str, Any] = {"body_memory": 1 << 20, "grpc_max_message_mb": 1}


class SilentCall:
    """A call whose message never comes."""

    def __init__(self, client: Client) -> None:
        self._is_told = threading.Event()
        method = client.channel.stream_unary(
            "/vllm.Inference/Generate", GenerateRequest.SerializeToString, GenerateResponse.FromString
        )
        self.call = method.future(self._nothing(), timeout=DEADLINE_S)

    def _nothing(self) -> Iterator[GenerateRequest]:
        self._is_told.wait(DEADLINE_S)
        yield from ()

    def close(self) -> None:
        self.call.cancel()
        self._is_told.set()


def ask_until_refused(client: Client) -> None:
    """Answers come until a silent call has arrived."""
    for _ in range(1_000_000):
        client.generate_raw(request_of("hi"), timeout=0.5)


@pytest.fixture
def answering(scripted: ScriptedEngine) -> ScriptedEngine:
    scripted.answer = "Hello"
    return scripted


def test_a_message_waits_until_there_is_room(answering: ScriptedEngine, start: Callable[..., RunningGrpc]) -> None:
    """GRPC-4: what is read and not admitted yet is bounded like HTTP's bodies; a caller that leaves makes room."""
    client = start(answering, **ONE_MESSAGE).client()
    silent = SilentCall(client)
    try:
        with pytest.raises(grpc.RpcError) as caught:
            ask_until_refused(client)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    finally:
        silent.close()
    assert client.generate("hi").outputs.text == "Hello"
    assert client.generate("hi").outputs.text == "Hello", "a turn ends with its call"


def test_who_sends_nothing_loses_its_turn_and_is_told(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    running = start(answering, body_timeout=600, **ONE_MESSAGE)
    silent = SilentCall(running.client())
    try:
        running.pass_time_until(silent.call.done, 600)
        assert silent.call.code() is grpc.StatusCode.UNAVAILABLE
        assert running.client().generate("hi").outputs.text == "Hello"
    finally:
        silent.close()


@pytest.mark.parametrize(
    ("is_full", "code"),
    [(True, grpc.StatusCode.RESOURCE_EXHAUSTED), (False, grpc.StatusCode.UNAUTHENTICATED)],
)
def test_what_will_be_refused_whatever_it_says_is_refused_before_its_message(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path, is_full: bool, code: grpc.StatusCode
) -> None:
    """HTTP-1, over gRPC: nothing is read of a call that there is no room for, or that has no key."""
    (tmp_path / "keys").write_text("secret\n")
    settings = {} if is_full else {"api_key_file": str(tmp_path / "keys")}
    answering.capacity = 0 if is_full else answering.capacity
    silent = SilentCall(start(answering, **settings).client())
    try:
        assert silent.call.code() is code
    finally:
        silent.close()


def test_a_crowd_of_silent_calls_locks_nobody_out(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than may wait, from four connections: some are refused, and who comes then is answered."""
    for module in (server, stock_calls):
        monkeypatch.setattr(module, "GRACE_S", 0.25)  # is up for three of them before the client has its turn
    monkeypatch.setattr(server, "N_MORE_WAITING", 32)
    running = start(answering, queue_capacity=1, **ONE_MESSAGE)
    methods = (
        "vllm.Inference/Generate",
        "vllm.Inference/GenerateStream",
        "vllm.Control/Abort",
        "grpc.health.v1.Health/Watch",
    )

    with ExitStack() as stack:
        for method in methods:
            stack.enter_context(silent_connection(running.target, f"/{method}", 30))
        client = running.client()
        assert client.generate("hi").outputs.text == "Hello"
        check = health_pb2_grpc.HealthStub(client.channel).Check
        status = check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S).status
        assert status == health_pb2.HealthCheckResponse.SERVING


def silent_connection(target: str, path: str, n_calls: int) -> socket.socket:
    """A connection with calls that send their headers and nothing else."""
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "silent", "te": "trailers"}
    for _ in range(n_calls):
        peer.send_headers(peer.get_next_available_stream_id(), [*headers.items(), ("content-type", "application/grpc")])
    host, _, port = target.rpartition(":")
    connection = socket.create_connection((host, int(port)), DEADLINE_S)
    connection.sendall(peer.data_to_send())
    connection.recv(1)  # it is served
    return connection


@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_beyond_the_limit_are_closed(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path, is_tls: bool
) -> None:
    """--connection-limit, handshakes included: these connections never say a word."""
    running = start(answering, connection_limit=3, **(make_certificate(tmp_path).settings if is_tls else {}))
    port = int(running.target.rpartition(":")[2])
    with ExitStack() as stack:
        kept = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)]
        further = [stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S)) for _ in range(3)]
        for each in further:
            read_to_the_end(each)
        for each in kept:
            each.setblocking(False)
            with suppress(BlockingIOError):
                assert each.recv(1 << 16), "a connection within the limit is open"


def read_to_the_end(connection: socket.socket) -> None:
    with suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass


def test_a_running_answer_holds_no_room(served: RunningGrpc, start: Callable[..., RunningGrpc]) -> None:
    """A turn ends when the message is prepared, and the time for it with it."""
    running = start(served.engine, body_timeout=600, **ONE_MESSAGE)
    client = running.client()
    calls = [client.open(request_of("hi")) for _ in range(3)]
    generations = served.engine.generations
    wait_until(lambda: len(generations) == 3)
    running.pass_time(1200)
    for generation in list(generations):
        for token in (*served.engine.tokenizer.encode("Hi", allow_special=False), served.engine.eos_tokens[0]):
            generation.give(token)
    assert all(list(call)[-1].outputs.HasField("finish_info") for call in calls)


# -- the room itself


class Callers:
    """Calls of several connections in one room. They are read when they are told; each notes its end in `ends`."""

    def __init__(self, room: MessageRoom) -> None:
        self.room = room
        self.ends: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, message: Awaitable[Any]) -> asyncio.Task[None]:
        """A call whose connection is the name's first letter; when this returns it waits for its turn or its message."""
        task = asyncio.create_task(self._call(name, message))
        self._tasks.append(task)
        await settle()
        return task

    async def _call(self, name: str, message: Awaitable[Any]) -> None:
        messages = iter((message, arrived(grpc.aio.EOF)))
        context: Any = SimpleNamespace(read=lambda: next(messages))
        turn: Turn | None = None
        try:
            turn = await self.room.take(name[0])
            await turn.read(context)
            self.ends.append(name)
        except (StalledSenderError, WaitingFullError) as error:
            self.ends.append(f"{name} {error.code}")
        finally:
            if turn is not None:
                turn.end()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run_room(
    scene: Callable[[Callers], Awaitable[None]], n_turns: int = 1, n_waiting: int = 4, grace_s: float = 100.0
) -> list[str]:
    """What became of the calls of a scene in a room, in order."""

    async def run() -> list[str]:
        callers = Callers(MessageRoom(n_turns, n_waiting, 1000.0, grace_s))
        await scene(callers)
        await settle()
        assert callers.room.n_waiting == 0
        return callers.ends

    return asyncio.run(run())


def message() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def arrived(content: Any = "") -> asyncio.Future[Any]:
    future = message()
    future.set_result(content)
    return future


def test_connections_have_their_turns_by_rotation() -> None:
    async def scene(callers: Callers) -> None:
        first = message()
        await callers.come("a0", first)
        for name in ("a1", "a2", "b1"):
            await callers.come(name, arrived())
        first.set_result("")

    assert run_room(scene) == ["a0", "a1", "b1", "a2"]


def test_a_full_room_refuses_the_connection_with_the_most_that_wait() -> None:
    async def scene(callers: Callers) -> None:
        first = message()
        await callers.come("a0", first)
        for name in ("a1", "a2", "a3", "a4", "a5", "b1", "c1", "d1"):
            await callers.come(name, arrived())
        first.set_result("")

    refused = [f"{name} queue_full" for name in ("a5", "a4", "a3", "a2")]
    assert run_room(scene) == [*refused[:4], "a0", "a1", "b1", "c1", "d1"]


def test_a_full_room_has_the_place_of_a_caller_who_goes() -> None:
    """In the same moment: nobody is told twice, and nobody else is refused."""

    async def scene(callers: Callers) -> None:
        first = message()
        await callers.come("a0", first)
        for name in ("b1", "a1", "a2"):
            await callers.come(name, arrived())
        leaving = await callers.come("a3", arrived())
        coming = asyncio.create_task(callers.come("c1", arrived()))
        await asyncio.sleep(0)
        leaving.cancel()  # which it learns after the other has come
        await coming
        first.set_result("")

    assert run_room(scene) == ["a0", "b1", "a1", "c1", "a2"]


def test_who_is_silent_makes_way_when_others_wait_and_not_before() -> None:
    async def scene(callers: Callers) -> None:
        await callers.come("a0", message())
        await settle()
        assert callers.ends == []
        await callers.come("b1", arrived())

    assert run_room(scene, grace_s=0.0) == ["a0 stalled_sender", "b1"]


def test_a_late_message_keeps_its_turn_while_half_of_the_turns_are_left_to_others() -> None:
    """GRPC-4: a large message over a slow line comes, and many others before it."""

    async def scene(callers: Callers) -> None:
        slow = message()
        await callers.come("a0", slow)
        prepared = await callers.room.take("b")
        for name in ("c1", "d1", "c2"):
            await callers.come(name, arrived())
        assert callers.ends == []
        prepared.end()
        await settle()
        slow.set_result("")

    assert run_room(scene, n_turns=2, grace_s=0.0) == ["c1", "d1", "c2", "a0"]


def test_of_late_messages_one_too_many_makes_way_for_who_waits() -> None:
    """The one that is late for the shortest time; those that remain are read when they come."""

    async def scene(callers: Callers) -> None:
        late = [message() for _ in range(5)]
        for i, each in enumerate(late):
            await callers.come(f"{i}a", each)
        assert callers.ends == []
        for name in ("x", "y"):
            await callers.come(name, arrived())
        for each in late:
            if not each.cancelled():
                each.set_result("")

    stalled = "stalled_sender"
    assert run_room(scene, n_turns=5, grace_s=0.0) == [f"2a {stalled}", "x", "y", "0a", "1a", "3a", "4a"]


def test_a_message_that_comes_in_time_is_read_although_others_wait() -> None:
    async def scene(callers: Callers) -> None:
        first = message()
        await callers.come("a0", first)
        await callers.come("b1", arrived())
        first.set_result("")

    assert run_room(scene, grace_s=100.0) == ["a0", "b1"]


@pytest.mark.parametrize("goes", ["before", "just before", "just after"])
def test_a_turn_passes_over_a_caller_who_goes(goes: str) -> None:
    """Whether it goes before its turn or in the same moment."""

    async def scene(callers: Callers) -> None:
        turn = await callers.room.take("a")
        leaving = await callers.come("b1", arrived())
        if goes == "just after":
            turn.end()
            leaving.cancel()
        else:
            leaving.cancel()
            if goes == "before":
                await settle()
                assert callers.room.n_waiting == 0
            turn.end()
        await settle()
        await callers.come("c1", arrived())

    assert run_room(scene) == ["c1"]
