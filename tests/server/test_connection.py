"""HTTP/1.1 spoken byte by byte: framing, limits, deadlines, order, and what is left of a connection afterwards."""

from __future__ import annotations

import gzip
import json
import re
import socket
import zlib
from collections.abc import Callable

import pytest

from tests.server.conftest import RunningServer, has_something, raw_chat, wait_until
from tests.server.scripted_engine import ScriptedEngine

HEALTH = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
    return received


def read_response(connection: socket.socket, buffer: bytearray) -> tuple[int, dict[str, str], bytes]:
    """One response with a Content-Length; what follows it stays in `buffer`."""
    while b"\r\n\r\n" not in buffer:
        buffer += _some(connection)
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", "0"))
    while len(rest) < length:
        rest += _some(connection)
    buffer[:] = rest[length:]
    return int(status_line.split()[1]), headers, rest[:length]


def _some(connection: socket.socket) -> bytes:
    piece = connection.recv(1 << 16)
    assert piece, "the server closed early"
    return piece


def error_of(response: bytes) -> tuple[int, str]:
    """Status and code of a raw error response that closes."""
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"onnection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_may_come_whole_or_byte_by_byte(server: RunningServer, is_chunked: bool) -> None:
    request = raw_chat()
    if is_chunked:
        body = request.partition(b"\r\n\r\n")[2]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:7], body[7:8], body[8:]))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        request = head + chunks + b"0\r\n\r\n"
    answers = []
    for pieces in ([request], [request[index : index + 1] for index in range(len(request))]):
        connection = server.connect()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        status, _, body = read_response(connection, bytearray())
        assert status == 200
        answers.append(json.loads(body)["choices"])
    assert answers[0] == answers[1]


def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(HEALTH + raw_chat() + HEALTH + raw_chat(model="nobody") + HEALTH)
    buffer = bytearray()
    answers = [read_response(connection, buffer) for _ in range(5)]
    assert [status for status, _, _ in answers] == [200, 200, 200, 404, 200]
    assert b"choices" in answers[1][2]
    assert buffer == b""


def test_a_long_pipeline_is_read_no_faster_than_it_is_answered(server: RunningServer) -> None:
    connection = server.connect()
    padding = "x" * 30_000
    request = raw_chat(user=padding)
    connection.sendall(request * 20)
    buffer = bytearray()
    assert [read_response(connection, buffer)[0] for _ in range(20)] == [200] * 20


def test_an_error_in_a_request_keeps_the_connection(server: RunningServer) -> None:
    connection, buffer = server.connect(), bytearray()
    for _ in range(3):
        connection.sendall(raw_chat(temperature="hot"))
        assert read_response(connection, buffer)[0] == 400
    connection.sendall(HEALTH)
    assert read_response(connection, buffer)[0] == 200


def test_http_1_0_and_connection_close_end_the_connection(server: RunningServer) -> None:
    for request in (b"GET /health HTTP/1.0\r\n\r\n", HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
        connection = server.connect()
        connection.sendall(request)
        assert read_all(connection).endswith(b'{"status":"ok"}')
    connection = server.connect()
    connection.sendall(raw_chat(stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer = read_all(connection)
    assert b"chunked" not in answer.lower()
    assert answer.endswith(b"data: [DONE]\n\n")


def test_a_client_that_expects_100_continue_gets_it(server: RunningServer) -> None:
    head, _, body = raw_chat().partition(b"\r\n\r\n")
    connection, buffer = server.connect(), bytearray()
    connection.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert read_response(connection, buffer)[0] == 100
    connection.sendall(body)
    assert read_response(connection, buffer)[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /health HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        (b"GET /health HTTP/1.1\r\nHost: h\r\nBad Header: x\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 501),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\nHost: h\n\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET http://[::1/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n", 400),  # TLS hello
    ],
)
def test_a_malformed_request_is_refused_and_the_connection_closed(
    server: RunningServer, request_bytes: bytes, status: int
) -> None:
    """Research 1.13: framing that proxies disagree about is refused."""
    connection = server.connect()
    connection.sendall(request_bytes)
    smuggled = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
    connection.sendall(smuggled)
    answer = read_all(connection)
    assert error_of(answer) == (status, "bad_http")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert server.exchange("GET", "/health")[0] == 200


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_up_to_the_limit_are_taken(
    start_server: Callable[..., RunningServer], extra: int, is_chunked: bool
) -> None:
    """Research item 38: sizes around the cap, with and without Content-Length."""
    limit = 300_000
    server = start_server(body_limit=limit)
    body = json.dumps({"prompt": "a", "user": ""}).encode()
    body = body.replace(b'"user": ""', b'"user": "%b"' % (b"x" * (limit + extra - len(body))))
    if is_chunked:
        framing = b"Transfer-Encoding: chunked"
        content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        framing, content = b"Content-Length: %d" % len(body), body
    connection = server.connect()
    connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n%b" % (framing, content))
    if extra <= 0:
        assert read_response(connection, bytearray())[0] == 200
    else:
        assert error_of(read_all(connection)) == (413, "body_too_large")


def test_a_gzip_body_is_a_body(server: RunningServer) -> None:
    """Research 1.5. Its answer is the one to the plain body."""
    plain = json.dumps({"prompt": "Hello " * 500}).encode()
    answers = [
        server.exchange("POST", "/tokenize", body, headers)
        for body, headers in ((plain, {}), (gzip.compress(plain), {"Content-Encoding": "gzip"}))
    ]
    assert answers[0][0] == 200
    assert answers[0][2] == answers[1][2]


@pytest.mark.parametrize(
    ("body", "encoding", "refusal"),
    [
        (gzip.compress(bytes(9 << 20), mtime=0), b"gzip", (413, "body_too_large")),
        (b"{}", b"gzip", (400, "bad_http")),
        (gzip.compress(b"{}", mtime=0)[:-1], b"gzip", (400, "bad_http")),
        (zlib.compress(b"{}"), b"deflate", (415, "unsupported_encoding")),
        (b"{}", b"br", (415, "unsupported_encoding")),
    ],
)
def test_an_encoding_that_cannot_be_undone_is_refused(
    server: RunningServer, body: bytes, encoding: bytes, refusal: tuple[int, str]
) -> None:
    connection = server.connect()
    head = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % (encoding, len(body)) + body)
    answer = read_all(connection)
    assert error_of(answer) == refusal
    assert (b"Accept-Encoding: gzip" in answer) is (refusal[0] == 415)


def test_a_refused_upload_can_still_read_why(start_server: Callable[..., RunningServer]) -> None:
    """Closing with unread bytes would reset the connection; the refusal must arrive before."""
    server = start_server(body_limit=1 << 10)
    connection = server.connect()
    connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n")
    for _ in range(20):
        connection.sendall(b"x" * 50_000)
    assert error_of(read_all(connection)) == (413, "body_too_large")


def test_a_refused_expectation_is_not_continued(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(body_limit=1 << 10)
    connection = server.connect()
    connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n")
    answer = read_all(connection)
    assert b"100 Continue" not in answer
    assert error_of(answer) == (413, "body_too_large")


def test_an_expectation_that_nobody_knows_fails(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(HEALTH.replace(b"\r\n\r\n", b"\r\nExpect: a-miracle\r\n\r\n"))
    assert error_of(read_all(connection))[0] == 417


def test_a_refusal_of_head_has_no_body(start_server: Callable[..., RunningServer]) -> None:
    """Whether it is the head that is wrong or what it announces."""
    server = start_server(body_limit=1 << 10)
    for wrong in (
        b"HEAD nowhere HTTP/1.1\r\nHost: h\r\n",
        b"HEAD /health HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n",
    ):
        connection = server.connect()
        connection.sendall(wrong + b"\r\n")
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 4")
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "headers",
    [
        b"X-Long: " + b"x" * 2000,
        b"\r\n".join(b"X-%d: y" % index for index in range(200)),
        b"X-Endless: " + b"x" * 100_000,
        b"X-Trailing: y\r\n" * 5000,
    ],
)
def test_too_many_or_too_long_headers_are_refused(start_server: Callable[..., RunningServer], headers: bytes) -> None:
    """CVE-2025-48956: header size and count are limited."""
    server = start_server(header_limit=1 << 10)
    connection = server.connect()
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n\r\n")
    assert error_of(read_all(connection)) == (431, "headers_too_large")


def test_late_headers_and_bodies_are_refused(start_server: Callable[..., RunningServer]) -> None:
    """Slow senders hold nothing but their own socket, and that not for long."""
    server = start_server(header_timeout=0.1, body_timeout=0.1)
    for request in (b"GET /health HT", raw_chat()[:-5]):
        connection = server.connect()
        connection.sendall(request)
        assert error_of(read_all(connection)) == (408, "request_timeout")
    assert server.engine.n_admitted == 0


def test_an_idle_connection_is_closed_without_a_word(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(idle_timeout=600)
    connection = server.connect()
    connection.sendall(HEALTH)
    assert read_response(connection, bytearray())[0] == 200
    server.pass_time_until(lambda: has_something(connection), 600)
    assert connection.recv(1) == b""


def test_head_has_the_headers_of_get_and_no_body(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(HEALTH.replace(b"GET", b"HEAD") + HEALTH)
    buffer = bytearray()
    while buffer.count(b"\r\n\r\n") < 2 or not buffer.endswith(b"}"):
        buffer += connection.recv(1 << 16)
    head, body = bytes(buffer).split(b"HTTP/1.1 200")[1:]
    assert head.endswith(b"\r\n\r\n")
    assert re.search(rb"content-length: 15\r\n", head.lower())
    assert body.endswith(b'{"status":"ok"}')


def test_a_request_id_is_taken_over_when_it_is_harmless(server: RunningServer) -> None:
    for given, is_kept in (("abc-123", True), ("x" * 129, False), ("a b", False), ("é", False)):
        connection = server.connect()
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\nX-Request-Id: %b\r\n\r\n" % given.encode())
        _, headers, _ = read_response(connection, bytearray())
        assert (headers["x-request-id"] == given) is is_kept
        assert headers["x-request-id"]


@pytest.mark.parametrize("target", [b"/health?x=1", b"http://h/health", b"/%68ealth"])
def test_targets_are_read_in_every_form(server: RunningServer, target: bytes) -> None:
    connection = server.connect()
    connection.sendall(HEALTH.replace(b"/health", target))
    assert read_response(connection, bytearray())[0] == 200


def test_a_silent_stream_sends_comments(start_server: Callable[..., RunningServer], engine: ScriptedEngine) -> None:
    engine.answer = None
    server = start_server(ping_interval=0.05)
    connection = server.connect()
    connection.sendall(raw_chat(stream=True))
    received = b""
    while received.count(b": ping\n\n") < 2:
        received += _some(connection)
    server.generation().give(engine.eos_tokens[0])
    while b"[DONE]" not in received:
        received += _some(connection)


def test_many_connections_leave_nothing_behind(server: RunningServer) -> None:
    for index in range(50):
        connection = server.connect()
        connection.sendall(HEALTH if index % 2 else b"GET /hea")
        connection.close()
    wait_until(lambda: b"helios_http_connections 1.0" in server.exchange("GET", "/metrics")[2])
