"""Clients that go, stop reading or come in crowds; failures after the headers; shutdown. Nothing of them is left behind."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable

import pytest

from helios.errors import AdmissionError, DeviceError
from tests.server.conftest import DEADLINE_S, RunningServer, events_of, raw_chat, wait_until
from tests.server.scripted_engine import ScriptedEngine
from tests.server.test_connection import read_all
from tests.server.test_connection_limits import wait_until_none_is_left


def token(engine: ScriptedEngine, text: str) -> int:
    (token_id,) = engine.tokenizer.encode(text, allow_special=False)
    return token_id


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        piece = connection.recv(1 << 16)
        assert piece, received
        received += piece
    return received


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("n_tokens", [0, 3])
@pytest.mark.parametrize("n_choices", [1, 3])
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_goes_cancels_its_generations(
    server: RunningServer, is_stream: bool, n_tokens: int, n_choices: int, is_reset: bool
) -> None:
    """HTTP-2, research item 30: queued or prefilling (no token yet) and decoding, streamed or not."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(raw_chat(stream=is_stream, n=n_choices))
    generations = [server.generation(index) for index in range(n_choices)]
    for generation in generations:
        for _ in range(n_tokens):
            generation.give(token(server.engine, "a"))
        wait_until(lambda generation=generation: generation.n_taken == n_tokens)
    if is_stream and n_tokens:
        read_until(connection, b"role")
    if is_reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    wait_until(lambda: all(generation.is_cancelled for generation in generations))
    wait_until(lambda: server.engine.n_admitted == 0)
    server.engine.answer = "still here"
    assert server.chat()[0] == 200


def test_a_client_that_goes_while_its_prompt_is_prepared_is_forgotten(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP-1: permits count preparation too, and are given back."""
    may_encode = threading.Event()
    is_encoding = threading.Event()
    server = start_server(frontend_workers=1)
    encode = engine.tokenizer.encode

    def slow_encode(text: str, *, allow_special: bool) -> list[int]:
        is_encoding.set()
        may_encode.wait(DEADLINE_S)
        return encode(text, allow_special=allow_special)

    monkeypatch.setattr(engine.tokenizer, "encode", slow_encode, raising=False)
    running, waiting = server.connect(), server.connect()
    running.sendall(raw_chat())
    assert is_encoding.wait(DEADLINE_S)
    waiting.sendall(raw_chat())
    wait_until(lambda: engine.n_admitted == 2)
    running.close()
    waiting.close()
    wait_until(lambda: engine.n_admitted == 0)
    may_encode.set()
    assert server.chat()[0] == 200
    assert len(engine.generations) == 1


def test_a_paused_reader_loses_nothing_and_holds_up_nobody(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """HTTP-2: the permit stays until the answer was read, other clients are served meanwhile."""
    engine.answer, engine.context_tokens = None, 1 << 20
    server = start_server(send_buffer=16 << 10)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(stream=True))
    slow = server.generation()
    n_events = 0
    while True:  # until the socket is full and the server stops taking events
        n_events += 500
        for _ in range(500):
            slow.give(token(engine, "a"))
        try:
            wait_until_taken(slow, n_events)
        except TimeoutError:
            break
    engine.answer = "Hello world"
    assert server.chat()[1]["choices"][0]["message"]["content"] == "Hello world"
    wait_until(lambda: engine.n_admitted == 1)
    slow.give(engine.eos_tokens[0])
    answer = read_until(connection, b"[DONE]")
    assert answer.count(b'"finish_reason":"stop"') == 1
    texts = [json.loads(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: {")]
    said = "".join(choice["delta"].get("content", "") for chunk in texts for choice in chunk["choices"])
    assert said == "a" * n_events
    wait_until(lambda: engine.n_admitted == 0)


def test_an_answer_keeps_its_permit_until_it_was_read(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """HTTP-2: finished and written, but the reader's socket has not taken the last of it."""
    engine.answer, engine.context_tokens = "x" * 40_000, 1 << 20
    server = start_server(send_buffer=4 << 10)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat())
    generation = server.generation()
    wait_until(lambda: generation.has_ended)
    engine.answer = "Hello"
    assert server.chat()[0] == 200
    wait_until(lambda: engine.n_admitted == 1)
    read_until(connection, b"}}}")
    wait_until(lambda: engine.n_admitted == 0)


def wait_until_taken(generation: object, n_events: int) -> None:
    """Wait until the server has taken so many events; TimeoutError when it has stopped taking them."""
    stalled = threading.Event()
    for _ in range(100):
        if generation.n_taken >= n_events:  # type: ignore[attr-defined]
            return
        stalled.wait(0.005)
    raise TimeoutError


def test_a_reader_that_never_reads_is_dropped_in_the_end(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """Research 1.5b: the wait for a reader has an end, and its room is given back."""
    engine.answer, engine.context_tokens = None, 1 << 20
    server = start_server(send_buffer=16 << 10, stall_timeout=600)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(stream=True, logprobs=True))
    generation = server.generation()
    for _ in range(20_000):
        generation.give(token(engine, "a"), -0.5)
    server.pass_time_until(lambda: generation.is_cancelled and engine.n_admitted == 0, 600)


@pytest.mark.parametrize("error", [AdmissionError("no room for 9 pages"), DeviceError("fault 7")])
def test_a_failure_after_the_headers_is_one_error_event(server: RunningServer, error: Exception) -> None:
    """HTTP-3: one terminal error event, no [DONE]; other requests go on and the connection too."""
    server.engine.answer = None
    connection, other = server.connect(), server.connect()
    connection.sendall(raw_chat(stream=True))
    generation = server.generation()
    other.sendall(raw_chat(stream=True))
    neighbour = server.generation(1)
    generation.give(token(server.engine, "a"))
    received = read_until(connection, b'"content":"a"')
    generation.fail(error)  # type: ignore[arg-type]
    received += read_until(connection, b"0\r\n\r\n")
    assert b"[DONE]" not in received
    event = json.loads(received.rpartition(b"data: ")[2].partition(b"\n\n")[0])
    assert event["error"]["message"] == str(error)
    neighbour.give(server.engine.eos_tokens[0])
    assert b"[DONE]" in read_until(other, b"0\r\n\r\n")
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"200" in connection.recv(1000)


@pytest.mark.parametrize(("error", "status"), [(AdmissionError("no room"), 503), (DeviceError("fault"), 500)])
def test_a_failure_of_one_choice_ends_the_others(server: RunningServer, error: Exception, status: int) -> None:
    """HTTP-3: 503 for a rejection, 500 for a fault, when the response is not streamed."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(raw_chat(n=2))
    first, second = server.generation(0), server.generation(1)
    first.give(token(server.engine, "a"))
    second.fail(error)  # type: ignore[arg-type]
    answer = read_until(connection, b"}}")
    assert b"HTTP/1.1 %d" % status in answer
    assert (b"Retry-After" in answer) is (status == 503)
    wait_until(lambda: first.is_cancelled and server.engine.n_admitted == 0)


def test_more_than_fits_is_refused_before_any_work(server: RunningServer) -> None:
    """HTTP-1 and HTTP-3: counted at arrival, 429 with Retry-After; others are not touched."""
    engine = server.engine
    engine.answer, engine.capacity = None, 3
    connections = [server.connect() for _ in range(3)]
    for index, connection in enumerate(connections):
        connection.sendall(raw_chat())
        server.generation(index)
    status, headers, body = server.exchange("POST", "/v1/chat/completions", b"this is not even JSON")
    assert (status, headers["Retry-After"]) == (429, "1")
    assert json.loads(body)["error"]["code"] == "queue_full"
    assert len(engine.generations) == 3
    for generation in engine.generations:
        generation.give(engine.eos_tokens[0])
    for connection in connections:
        assert b"HTTP/1.1 200" in read_until(connection, b"}}")
    wait_until(lambda: engine.n_admitted == 0)


def test_every_choice_takes_room(server: RunningServer) -> None:
    """HTTP-1: n choices are n requests to the engine, so they are counted as n."""
    server.engine.capacity = 3
    assert server.chat(n=4)[0] == 429
    assert server.engine.n_admitted == 0
    assert server.chat(n=3)[0] == 200
    assert not server.engine.generations[-1].is_cancelled or server.engine.generations[-1].has_ended


def test_shutdown_lets_open_answers_finish(start_server: Callable[..., RunningServer], engine: ScriptedEngine) -> None:
    """HTTP-4: not ready at once, idle connections closed, open answers finished and then closed."""
    engine.answer = None
    server = start_server(drain_timeout=3600)
    idle, busy = server.connect(), server.connect()
    busy.sendall(raw_chat(stream=True))
    generation = server.generation()
    received = b""
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert idle.recv(1) == b""
    wait_until(lambda: engine.is_draining)
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    generation.give(token(engine, "a"))
    generation.give(engine.eos_tokens[0])
    received += read_all(busy)
    assert b"[DONE]" in received
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()


def test_who_comes_as_the_server_ends_does_not_hold_it_up(start_server: Callable[..., RunningServer]) -> None:
    """HTTP-4: accepted in the turn of the event loop in which the server is told to stop."""
    server = start_server(drain_timeout=3600)
    may_go_on = threading.Event()
    server.serving.loop.call_soon_threadsafe(may_go_on.wait, DEADLINE_S)
    late = server.connect()
    server.serving.loop.call_soon_threadsafe(server.serving.is_told.set)
    may_go_on.set()
    assert late.recv(1) == b""
    server.stop()


def test_shutdown_drops_what_does_not_finish(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """HTTP-4."""
    engine.answer = None
    server = start_server(drain_timeout=0.1)
    connection = server.connect()
    connection.sendall(raw_chat())
    generation = server.generation()
    server.stop()
    assert generation.is_cancelled
    assert engine.n_admitted == 0


def test_a_crowd_of_leavers_leaves_nothing(server: RunningServer) -> None:
    """Many requests, half of them dropped at some point of their life."""
    engine = server.engine
    engine.answer = "Hello world " * 20
    for index in range(200):
        connection = server.connect()
        request = raw_chat(stream=index % 3 == 0, n=1 + index % 2)
        if index % 4 == 0:
            request = request[: len(request) * (index % 7) // 7]
        connection.sendall(request)
        if index % 2:
            connection.recv(1 << 16)
        connection.close()
    wait_until_none_is_left(server)
    assert all(generation.has_ended for generation in engine.generations)
    assert list(events_of(b"data: [DONE]\n\n")) == ["[DONE]"]
    assert server.chat()[0] == 200
