"""Overload, slow and vanishing clients over real sockets: others are served, and nothing of them is left behind."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from math import inf

import pytest

from helios.server import connections
from helios.server.connections import Connections
from tests.server.conftest import RunningServer, has_something, raw_chat, wait_until
from tests.server.scripted_engine import ScriptedEngine
from tests.server.test_connection import HEALTH, error_of, read_all, read_response

RESET = b"\1\0\0\0\0\0\0\0"


def reset(connection: socket.socket) -> None:
    """Close with a reset instead of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def n_connections(server: RunningServer) -> float:
    """Open connections, the one that asks not counted."""
    text = server.exchange("GET", "/metrics")[2].decode()
    (line,) = (line for line in text.splitlines() if line.startswith("helios_http_connections "))
    return float(line.split()[1]) - 1


# -- admission


def test_a_full_server_refuses_before_the_body_is_sent(server: RunningServer) -> None:
    """HTTP-1, research item 46: at the head, by count; the refusal does not wait for the body."""
    server.engine.capacity = 0
    connection = server.connect()
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n")
    answer = read_all(connection)
    assert error_of(answer) == (429, "queue_full")
    assert b"\r\nRetry-After: 1\r\n" in answer
    assert server.engine.n_admitted == 0


def test_a_refused_request_with_a_short_body_keeps_its_connection(server: RunningServer) -> None:
    """Stock clients send the body without waiting and use the connection for the next try."""
    server.engine.capacity = 0
    connection, buffer = server.connect(), bytearray()
    head, _, body = raw_chat().partition(b"\r\n\r\n")
    for _ in range(3):
        connection.sendall(head + b"\r\nX-Request-Id: mine\r\n\r\n")
        status, headers, _ = read_response(connection, buffer)  # before the body
        assert (status, headers["retry-after"], headers["x-request-id"]) == (429, "1", "mine")
        assert "connection" not in headers
        connection.sendall(body)
    server.engine.capacity = 1
    connection.sendall(raw_chat())
    assert read_response(connection, buffer)[0] == 200
    for encoding in (b"", b"Content-Encoding: gzip\r\n"):  # a body that is not kept is not undone either
        connection.sendall(
            b"POST /nowhere HTTP/1.1\r\nHost: h\r\n" + encoding + b"Content-Length: 3\r\n\r\nabc" + HEALTH
        )
        assert [read_response(connection, buffer)[0] for _ in range(2)] == [404, 200]


def test_a_refused_client_that_waits_to_send_is_not_told_to(server: RunningServer) -> None:
    server.engine.capacity = 0
    connection = server.connect()
    head = raw_chat().partition(b"\r\n\r\n")[0]
    connection.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
    answer = read_all(connection)
    assert error_of(answer)[0] == 429
    assert b"100 Continue" not in answer


def test_slow_bodies_take_no_room_from_others(start_server: Callable[..., RunningServer]) -> None:
    """A permit is taken when the request is whole: heads without bodies cannot fill the queue."""
    server = start_server()
    server.engine.capacity = 2
    for _ in range(20):
        server.connect().sendall(raw_chat()[:-1])
    wait_until(lambda: n_connections(server) == 20)
    assert server.chat()[0] == 200


def test_thousands_of_refusals_are_quick_and_counted(server: RunningServer) -> None:
    """Research item 46: pipelined by 20 clients at once, each refusal with its Retry-After."""
    engine = server.engine
    engine.capacity, engine.answer = 1, None
    busy = server.connect()
    busy.sendall(raw_chat(stream=True))
    server.generation()
    n_each = 100
    requests = raw_chat() * n_each

    def send_all(connection: socket.socket) -> None:
        connection.sendall(requests)

    connections = [server.connect() for _ in range(20)]
    threads = [threading.Thread(target=send_all, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for connection in connections:
        buffer = bytearray()
        for _ in range(n_each):
            status, headers, _ = read_response(connection, buffer)
            assert (status, headers["retry-after"]) == (429, "1")
    for thread in threads:
        thread.join()
    assert engine.n_admitted == 1
    metrics = server.exchange("GET", "/metrics")[2].decode()
    assert 'helios_http_requests_total{route="/v1/chat/completions",status="429"} 2000.0' in metrics
    server.generation().give(engine.eos_tokens[0])
    while b"[DONE]" not in busy.recv(1 << 16):
        pass


def test_refusals_that_nobody_reads_are_not_piled_up(start_server: Callable[..., RunningServer]) -> None:
    """Back-pressure holds for refusals too: what cannot be answered is not read either."""
    server = start_server(send_buffer=4 << 10)
    server.engine.capacity = 0
    connection = server.connect(receive_buffer_bytes=4096)
    n_requests = 3000
    sending = threading.Thread(target=connection.sendall, args=(raw_chat() * n_requests,))
    sending.start()
    wait_until(lambda: n_refused(server) > 0)
    time.sleep(0.7)  # time enough to refuse them all
    assert n_refused(server) < n_requests // 2
    buffer = bytearray()
    assert [read_response(connection, buffer)[0] for _ in range(n_requests)] == [429] * n_requests
    sending.join()


def n_refused(server: RunningServer) -> float:
    text = server.exchange("GET", "/metrics")[2].decode()
    (line,) = (line for line in text.splitlines() if "requests_total" in line and 'status="429"' in line)
    return float(line.rpartition(" ")[2])


def test_a_pipeline_waits_in_the_kernel(server: RunningServer) -> None:
    """While one request is answered, no more than a little of those behind it is read."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(raw_chat())
    server.generation()
    assert n_taken_until_stuck(connection, 256 << 20) < 256 << 20


def n_taken_until_stuck(connection: socket.socket, n_most: int) -> int:
    """Bytes that the other side takes before it takes nothing for half a second, or `n_most`."""
    connection.settimeout(0.5)
    n_taken = 0
    with suppress(TimeoutError):
        while n_taken < n_most:
            n_taken += connection.send(bytes(1 << 20))
    return n_taken


# -- connections


def test_the_longest_idle_connection_makes_room(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(connection_limit=3)
    old, young = server.connect(), server.connect()
    for connection in (young, old, young):  # `old` has waited longer in the end
        connection.sendall(HEALTH)
        assert read_response(connection, bytearray())[0] == 200
    busy = server.connect()
    server.engine.answer = None
    busy.sendall(raw_chat())
    generation = server.generation()
    late = server.connect()
    assert old.recv(1) == b""
    for connection in (young, late):
        connection.sendall(HEALTH)
        assert read_response(connection, bytearray())[0] == 200
    generation.give(server.engine.eos_tokens[0])
    assert read_response(busy, bytearray())[0] == 200


def test_whoever_was_heard_least_lately_makes_room(start_server: Callable[..., RunningServer]) -> None:
    """Of those with a part of a request, when none is idle: silent callers lock nobody out."""
    server = start_server(connection_limit=3)
    slow, silent = server.connect(), server.connect()
    for connection, piece in ((slow, b"GET /he"), (silent, raw_chat()[:-3]), (slow, HEALTH[len(b"GET /he") : -3])):
        connection.sendall(piece)
        assert server.exchange("GET", "/health")[0] == 200, "by then the piece is read"
    server.engine.answer = None
    busy = server.connect()
    busy.sendall(raw_chat())
    generation = server.generation()
    late = server.connect()
    late.sendall(HEALTH)
    assert read_response(late, bytearray())[0] == 200
    assert silent.recv(1) == b""
    slow.sendall(HEALTH[-3:])
    assert read_response(slow, bytearray())[0] == 200
    generation.give(server.engine.eos_tokens[0])
    assert read_response(busy, bytearray())[0] == 200


def test_with_no_idle_connection_the_next_is_told_to_come_back(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(connection_limit=2)
    server.engine.answer = None
    for index in range(2):
        server.connect().sendall(raw_chat())
        server.generation(index)
    answer = read_all(server.connect())
    assert error_of(answer) == (503, "no_capacity")
    assert b"\r\nRetry-After: 1\r\n" in answer
    flood = [server.connect() for _ in range(200)]
    for connection in flood:
        connection.settimeout(0.01)
    server.engine.generations[0].give(server.engine.eos_tokens[0])
    wait_until(lambda: server.engine.n_admitted == 1)
    for connection in flood:
        connection.close()
    wait_until(lambda: _is_served(server))


def test_a_client_that_reset_the_connection_is_refused_in_peace(start_server: Callable[..., RunningServer]) -> None:
    """HTTP-2: what cannot be told to anyone any more is no error of the server's."""
    server = start_server(connection_limit=1)
    server.engine.answer = None
    server.connect().sendall(raw_chat())
    server.generation(0)
    for _ in range(300):
        reset(server.connect())
    server.engine.generations[0].give(server.engine.eos_tokens[0])
    wait_until(lambda: _is_served(server))


def _is_served(server: RunningServer) -> bool:
    try:
        return server.exchange("GET", "/health")[0] == 200
    except OSError:
        return False


def test_thousands_of_connections_leave_no_memory_behind(server: RunningServer) -> None:
    """Opened and closed at every point of a request's life."""
    requests = [b"", b"GET /he", HEALTH, raw_chat()[:-3], raw_chat(stream=True), b"\0", HEALTH * 50]

    def crowd(n_clients: int) -> None:
        for index in range(n_clients):
            with socket.create_connection(server.address) as connection:
                connection.sendall(requests[index % len(requests)])
                if index % 3 == 0:
                    reset(connection)
        wait_until_none_is_left(server)
        server.engine.generations.clear()
        server.engine.permits.clear()
        for _ in range(4):  # one that meets another thread's collection does nothing
            gc.collect()

    crowd(1000)  # tables grow to the largest crowd that there was
    tracemalloc.start()
    crowd(1000)
    before = tracemalloc.get_traced_memory()[0]
    crowd(1000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 150_000, f"{grown:,} bytes are still held"


N_TURNS = 10_000  # of the server, to be done with a crowd: an answer is one, however long it takes


def wait_until_none_is_left(server: RunningServer) -> None:
    """Ask until no other connection is open and nothing admitted. Who asks comes after the crowd, and waits for its answer."""
    for _ in range(N_TURNS):
        lines = answer_to(server, b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").splitlines()
        if b"helios_http_connections 1.0" in lines and server.engine.n_admitted == 0:
            # Requests whose clients went are still prepared, in their order, and this one after them.
            answer_to(server, b'POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 15\r\n\r\n{"prompt": "a"}')
            return
    raise AssertionError("connections or permits are left")


def answer_to(server: RunningServer, request: bytes) -> bytes:
    with socket.create_connection(server.address) as connection:
        connection.sendall(request)
        return read_response(connection, bytearray())[2]


# -- slow and vanishing clients


def test_slow_headers_one_byte_at_a_time_run_into_the_deadline(start_server: Callable[..., RunningServer]) -> None:
    """Slowloris: a byte now and then does not move the deadline, and others are served meanwhile."""
    server = start_server(header_timeout=600, idle_timeout=6000)
    crowd = [server.connect() for _ in range(50)]
    for connection in crowd:
        connection.sendall(b"GET / HTTP/1.1\r\n")
    for _ in range(4):
        assert server.exchange("GET", "/health")[0] == 200, "by then all is read"
        server.pass_time(200)
        for connection in crowd:
            if not has_something(connection):
                connection.sendall(b"X")
    for connection in crowd:
        assert error_of(read_all(connection)) == (408, "request_timeout")
    for connection in crowd:
        connection.close()
    wait_until(lambda: n_connections(server) == 0)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_slow_bodies_run_into_the_deadline(start_server: Callable[..., RunningServer], is_chunked: bool) -> None:
    server = start_server(body_timeout=600)
    connection = server.connect()
    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 1000"
    connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: h\r\n" + framing + b"\r\n\r\n")
    for _ in range(4):
        assert server.exchange("GET", "/health")[0] == 200, "by then all is read"
        server.pass_time(200)
        if not has_something(connection):
            connection.sendall(b"1\r\nx\r\n" if is_chunked else b"x")
    assert error_of(read_all(connection)) == (408, "request_timeout")


def test_empty_lines_are_no_request_and_no_keep_alive(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(idle_timeout=600)
    connection = server.connect()
    connection.sendall(b"\r\n\r\n" + HEALTH)
    assert read_response(connection, bytearray())[0] == 200
    connection.sendall(b"\r\n")
    server.pass_time_until(lambda: has_something(connection), 600)
    assert connection.recv(1) == b""


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_goes_within_a_request_leaves_nothing(
    start_server: Callable[..., RunningServer], is_reset: bool
) -> None:
    """Reset and closed within the head, the body, a chunk and a gzip body."""
    server = start_server(body_memory=1 << 20, body_limit=1 << 19)
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    long_head = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n"
    parts = [b"POST", raw_chat()[:60], raw_chat()[:-1], chunked + b"ff\r\nabc", long_head + b"x" * 400_000]
    for _ in range(4):
        for part in parts:
            connection = server.connect()
            connection.sendall(part)
            if is_reset:
                reset(connection)
            else:
                connection.close()
    wait_until(lambda: n_connections(server) == 0)
    body = json.dumps({"prompt": "a" * 500_000}).encode()
    assert server.exchange("POST", "/tokenize", body)[0] == 200


def test_a_half_closed_connection_has_gone(server: RunningServer) -> None:
    """HTTP-2: TCP does not tell a client that will not send from one that will not read; the answer is cancelled."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(raw_chat(stream=True))
    generation = server.generation()
    connection.shutdown(socket.SHUT_WR)
    wait_until(lambda: generation.is_cancelled and server.engine.n_admitted == 0)
    read_all(connection)


def test_bodies_of_all_connections_share_one_limit(
    start_server: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", inf)
    server = start_server(body_memory=1 << 20, body_limit=800_000)
    head = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 700000\r\n\r\n"
    holding = server.connect()
    holding.sendall(head)
    for _ in range(7):  # each piece is taken before the next connection is heard
        holding.sendall(b"x" * 99_999)
        assert server.exchange("GET", "/health")[0] == 200
    another = server.connect()
    another.sendall(head + b"x" * 700_000)
    status, headers, _ = read_response(another, bytearray())
    assert (status, headers["retry-after"]) == (503, "1")
    holding.close()
    another.close()
    wait_until(lambda: n_connections(server) == 0)
    body = json.dumps({"prompt": "a" * 700_000}).encode()
    assert server.exchange("POST", "/tokenize", body)[0] == 200


def test_a_silent_body_makes_room_for_others_and_is_told(
    start_server: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", 0.0)
    server = start_server(body_memory=1 << 20, body_limit=800_000)
    body = json.dumps({"prompt": "a" * 700_000}).encode()
    holding = server.connect()
    holding.sendall(b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 700000\r\n\r\n")
    for _ in range(7):
        holding.sendall(b"x" * 99_999)
        assert server.exchange("GET", "/health")[0] == 200
    assert server.exchange("POST", "/tokenize", body)[0] == 200
    assert error_of(read_all(holding)) == (503, "stalled_sender")


class HeldBody:
    """A connection as `Connections` sees it."""

    def __init__(self, n_body_bytes: int) -> None:
        self.n_body_bytes = n_body_bytes

    def refuse_stalled(self) -> None:
        self.n_body_bytes = 0


def test_who_is_heard_keeps_its_body() -> None:
    now_s = 0.0
    of_all = Connections(9, clock=lambda: now_s)
    steady, silent, empty = members = [HeldBody(5), HeldBody(5), HeldBody(0)]
    for each in members:
        of_all.set_unread(each)  # type: ignore[arg-type]
    now_s = connections.SILENCE_S - 0.5
    of_all.set_unread(steady)  # type: ignore[arg-type]
    assert not of_all.refuse_silent_body(), "nobody was silent for so long"
    now_s = connections.SILENCE_S
    assert of_all.refuse_silent_body()
    assert [each.n_body_bytes for each in (steady, silent, empty)] == [5, 0, 0]
    assert not of_all.refuse_silent_body()


# -- slow readers


def test_a_slow_reader_that_reads_on_is_not_dropped(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """The write deadline is for readers that take nothing: one that takes longer than it in all gets everything."""
    engine.answer, engine.logprob = "x" * 2000, -0.5
    server = start_server(send_buffer=4 << 10, stall_timeout=600)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(logprobs=True, top_logprobs=2))
    received = bytearray()
    for n_bytes in range(30_000, 180_000, 30_000):  # more each time than the kernel holds
        while len(received) < n_bytes:
            received += connection.recv(3000)
        server.pass_time(400)
    _, _, body = read_response(connection, received)
    assert len(body) > 200_000
    assert json.loads(body)["choices"][0]["message"]["content"] == "x" * 2000


def test_a_whole_answer_that_nobody_reads_is_dropped(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """dario#905: the wait for a reader ends, the permit is free and the connection gone."""
    engine.answer, engine.logprob, engine.capacity = "x" * 2000, -0.5, 1
    server = start_server(send_buffer=4 << 10, stall_timeout=600)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(logprobs=True, top_logprobs=2))
    server.generation()
    engine.answer = "Hello"
    assert server.chat()[0] == 429
    server.pass_time_until(lambda: server.chat()[0] == 200, 600)
    wait_until(lambda: n_connections(server) == 0)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_paused_reader_is_told_everything_when_it_goes_on(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine, is_stream: bool
) -> None:
    """HTTP-2: bytes that wait are bounded by what the kernel holds and one piece, and none is lost."""
    engine.answer, engine.context_tokens = "y" * 30_000, 1 << 20
    server = start_server(send_buffer=4 << 10)
    connection = server.connect(receive_buffer_bytes=4096)
    connection.sendall(raw_chat(stream=is_stream))
    generation = server.generation()
    wait_until(lambda: generation.has_ended)
    for _ in range(5):
        engine.answer = "Hello"
        assert server.chat()[0] == 200
    answer = b""
    while not answer.endswith(b"0\r\n\r\n" if is_stream else b"}}}"):
        answer += connection.recv(1 << 16)
    if is_stream:
        lines = [json.loads(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: {")]
        said = "".join(choice["delta"].get("content", "") for line in lines for choice in line["choices"])
    else:
        said = json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]
    assert said == "y" * 30_000
    wait_until(lambda: engine.n_admitted == 0)


def test_a_vanished_peer_is_looked_for(server: RunningServer) -> None:
    """A client whose machine has lost power sends no end: the accepted sockets inherit the probes."""
    options = server.listener.socket
    assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
