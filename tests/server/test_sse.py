"""Server-sent events on the wire: whole events whatever the reader's pace, several writers, and comments between them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from helios.errors import DeviceError
from helios.scheduler.request import GenerationRequest
from tests.server.conftest import RunningServer, raw_chat
from tests.server.scripted_engine import ScriptedEngine, ScriptedGeneration
from tests.server.test_connection import read_response


def unchunked(raw: bytes) -> bytes:
    """The content of a chunked body."""
    content = b""
    while raw:
        size, _, rest = raw.partition(b"\r\n")
        content += rest[: int(size, 16)]
        raw = rest[int(size, 16) + 2 :]
    return content


def test_large_events_of_several_choices_do_not_mix(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """HTTP-2: events of some 100 kB to a reader that pauses, with comments that are due all the time."""
    engine.answer, engine.logprob = "x" * 2000, -0.5
    server = start_server(send_buffer=4 << 10, ping_interval=0.05)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(stream=True, n=3, logprobs=True, top_logprobs=2))
    received = bytearray()
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += connection.recv(1 << 16)
        if len(received) < 20_000:
            time.sleep(0.06)  # longer than the comments' interval
    body = unchunked(bytes(received).partition(b"\r\n\r\n")[2])
    blocks = body.decode().removesuffix("\n\n").split("\n\n")
    events = [json.loads(block.removeprefix("data: ")) for block in blocks if block.startswith("data: {")]
    assert max(len(block) for block in blocks) > 100_000, "no event was large"
    assert set(blocks) - {block for block in blocks if block.startswith("data: {")} <= {": ping", "data: [DONE]"}
    for index in range(3):
        said = [
            choice["delta"].get("content", "")
            for event in events
            for choice in event["choices"]
            if choice["index"] == index
        ]
        assert "".join(said) == "x" * 2000


def test_a_failure_within_a_large_event_comes_after_it(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP-3: the writer of another choice is cancelled in the middle of its event; the error event is still one."""
    answers = iter(["x" * 2000, None])
    submit = engine.submit

    def submit_next(request: GenerationRequest, arrived_s: float | None = None) -> ScriptedGeneration:
        engine.answer = next(answers)
        return submit(request, arrived_s)

    monkeypatch.setattr(engine, "submit", submit_next)
    engine.logprob = -0.5
    server = start_server(send_buffer=4 << 10)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(stream=True, n=2, logprobs=True, top_logprobs=2))
    failing = server.generation(1)
    received = bytearray()
    while len(received) < 20_000:  # within it
        received += connection.recv(1000)
    failing.fail(DeviceError("fault 7"))
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += connection.recv(1 << 16)
    blocks = unchunked(bytes(received).partition(b"\r\n\r\n")[2]).decode().removesuffix("\n\n").split("\n\n")
    events = [json.loads(block.removeprefix("data: ")) for block in blocks]
    assert max(len(block) for block in blocks) > 100_000, "no event was large"
    assert [event for event in events if "error" in event] == events[-1:]


def test_what_fails_before_the_first_event_has_a_status(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """HTTP-3: so that whoever stands before several servers can ask another one."""
    engine.answer = None
    server = start_server()
    connection = server.connect()
    connection.sendall(raw_chat(stream=True))
    server.generation(0).fail(DeviceError("fault 7"))
    status, _, body = read_response(connection, bytearray())
    assert status >= 500
    assert "fault 7" in json.loads(body)["error"]["message"]


def test_silence_before_the_first_event_is_broken_by_a_comment(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """HTTP-2: proxies see a response begin, and from then on a failure is the last event."""
    engine.answer = None
    server = start_server(ping_interval=0.05)
    connection = server.connect()
    connection.sendall(raw_chat(stream=True))
    received = b""
    while b": ping" not in received:
        received += connection.recv(1 << 16)
    assert received.startswith(b"HTTP/1.1 200 ")
    server.generation(0).fail(DeviceError("fault 7"))
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += connection.recv(1 << 16)
    blocks = unchunked(received.partition(b"\r\n\r\n")[2]).decode().removesuffix("\n\n").split("\n\n")
    assert "error" in json.loads(blocks[-1].removeprefix("data: "))


def test_the_connection_goes_on_after_a_stream(server: RunningServer) -> None:
    """Keep-alive: the end of a stream is its last chunk, not the end of the connection."""
    connection = server.connect()
    for _ in range(3):
        connection.sendall(raw_chat(stream=True))
        received = b""
        while not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            received += connection.recv(1 << 16)
    connection.sendall(raw_chat())
    assert read_response(connection, bytearray())[0] == 200
