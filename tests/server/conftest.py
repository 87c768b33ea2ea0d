"""A real server on a loopback port in a thread of its own, around a scripted engine."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from helios.server.access import read_access
from helios.server.grpc.address import GrpcAddress
from helios.server.kv_events.sockets import KvEventSockets
from helios.server.listener import Listener, bind
from helios.server.server import Server
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.scripted_engine import ScriptedEngine
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

DEADLINE_S = 120.0  # no test waits so long unless something is wrong


def wait_until(condition: Callable[[], bool], limit_s: float = DEADLINE_S) -> None:
    """Wait for another thread to get there; fails after a long while."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.002)


def has_something(connection: socket.socket) -> bool:
    """Whether there is anything to read, or the end."""
    return bool(select.select([connection], [], [], 0)[0])


class Loop(asyncio.SelectorEventLoop):
    """Time passes here as elsewhere, and at once where a test says so, which neither waits for a limit nor keeps within it."""

    _ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self._ahead_s

    def pass_time(self, seconds: float) -> None:
        """On another thread. When this returns, the timers have been called that were due."""
        asyncio.run_coroutine_threadsafe(self.let_pass(seconds), self).result(DEADLINE_S)

    async def let_pass(self, seconds: float) -> None:
        """The same on its own thread."""
        self._ahead_s += seconds
        for _ in range(2):  # they come behind what is ready
            await asyncio.sleep(0)


@dataclass
class Serving:
    """A server on the loop of a thread of its own. `stop` ends both, and may be called twice."""

    loop: Loop
    thread: threading.Thread
    is_told: asyncio.Event

    def stop(self) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.is_told.set)
            self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()

    def pass_time_until(self, condition: Callable[[], bool], step_s: float) -> None:
        """For the server only, step by step."""

        def is_so() -> bool:
            self.loop.pass_time(step_s)
            return condition()

        wait_until(is_so)


@dataclass
class RunningServer:
    """A server under test. `exchange` sends one request and reads one response on a fresh connection."""

    engine: ScriptedEngine
    listener: Listener
    serving: Serving
    sockets: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self.listener.url
        self.address = self.listener.socket.getsockname()
        self.family = self.listener.socket.family
        self.port = self.address[1] if self.family != socket.AF_UNIX else 0
        self.stop = self.serving.stop
        self.pass_time = self.serving.loop.pass_time
        self.pass_time_until = self.serving.pass_time_until

    def connect(self, receive_buffer_bytes: int | None = None) -> socket.socket:
        connection = socket.socket(self.family)
        self.sockets.append(connection)
        connection.settimeout(DEADLINE_S)
        if receive_buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.connect(self.address)
        return connection

    def exchange(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, path: str, document: Any) -> tuple[int, Any]:
        status, _, body = self.exchange("POST", path, json.dumps(document).encode())
        return status, json.loads(body)

    def chat(self, **fields: Any) -> tuple[int, Any]:
        document = {"messages": [{"role": "user", "content": "hi"}], **fields}
        return self.post("/v1/chat/completions", document)

    def chat_events(self, **fields: Any) -> list[Any]:
        """The data of every event of a streamed chat, parsed; the last is "[DONE]" or an error object."""
        document = {"messages": [{"role": "user", "content": "hi"}], "stream": True, **fields}
        status, headers, body = self.exchange("POST", "/v1/chat/completions", json.dumps(document).encode())
        assert status == 200, body
        assert headers["Content-Type"].startswith("text/event-stream")
        return list(events_of(body))

    def generation(self, index: int = 0) -> Any:
        """The index-th submitted generation, once it is there."""
        wait_until(lambda: len(self.engine.generations) > index)
        return self.engine.generations[index]


def events_of(body: bytes) -> Iterator[Any]:
    """The events of a stream: each is one `data:` line and a blank one; comments are left out."""
    assert body.endswith(b"\n\n")
    for block in body.decode("utf-8").removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):
            continue
        assert block.startswith("data: ")
        assert "\n" not in block
        data = block.removeprefix("data: ")
        yield data if data == "[DONE]" else json.loads(data)


def raw_chat(**fields: Any) -> bytes:
    """The bytes of a chat request."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "server.gguf"
    return tokenizer_of(vocabularies.byte_level(path, control=("<|im_end|>", "<|im_start|>")))


@pytest.fixture(autouse=True)
def event_loop_has_no_complaint(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception that reached the event loop is a bug, whatever the client saw of it."""
    yield
    assert not [record for record in caplog.get_records("call") if record.name == "asyncio"]


@pytest.fixture
def engine(tokenizer: Tokenizer) -> ScriptedEngine:
    return ScriptedEngine(tokenizer)


@pytest.fixture
def start_server(engine: ScriptedEngine) -> Iterator[Callable[..., RunningServer]]:
    """Starts servers around `engine` with given settings; all are stopped at the end."""
    running: list[RunningServer] = []

    def start(**settings: Any) -> RunningServer:
        server = run_server(engine, Settings(**{"port": 0, "drain_timeout": 0.2, **settings}))
        running.append(server)
        return server

    yield start
    for server in running:
        for connection in server.sockets:
            connection.close()
        server.stop()


@pytest.fixture
def server(start_server: Callable[..., RunningServer]) -> RunningServer:
    return start_server()


def run_server(engine: ScriptedEngine, settings: Settings) -> RunningServer:
    listener = bind(settings)
    return RunningServer(engine, listener, serve_in_thread(engine, settings, listener))


def serve_in_thread(
    engine: Any,
    settings: Settings,
    listener: Listener,
    grpc_address: GrpcAddress | None = None,
    kv_sockets: KvEventSockets | None = None,
) -> Serving:
    """Serve from now until it is stopped."""
    access = read_access(settings)
    loop = Loop()
    is_told = asyncio.Event()
    is_up = threading.Event()

    async def serve() -> None:
        server = Server(engine, settings, access)
        await server.start(listener, grpc_address, kv_sockets)
        is_up.set()
        await is_told.wait()
        await server.stop()
        listener.close()
        async with asyncio.timeout(DEADLINE_S):
            # The gRPC library's, whose news for a closed loop would fail in another.
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # which ends what is left, as asyncio.run does
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert is_up.wait(DEADLINE_S)
    return Serving(loop, thread, is_told)
