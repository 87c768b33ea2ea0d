"""Anything at all over a raw socket: never a 5xx of our own making, never a traceback, never a hang, and others are served."""

from __future__ import annotations

import itertools
import logging
import re
import socket
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import DEADLINE_S, RunningServer, has_something, raw_chat, wait_until
from tests.server.test_connection import HEALTH

# What says that a version or a transfer coding is none of ours is a 5xx by RFC 9110 and no fault of the server.
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_ALLOWED_5XX = {501, 505}
LIMIT_S = 600.0  # of the server, whatever it waits for

_LINES = st.sampled_from(
    [
        b"GET /health HTTP/1.1\r\n",
        b"POST /tokenize HTTP/1.1\r\n",
        b"POST /v1/completions HTTP/1.1\r\n",
        b"HEAD /health HTTP/1.0\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"GET http://h/health HTTP/1.1\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n",
        b"GET http://[::1 HTTP/1.1\r\n",
        b"GET /%ff%00 HTTP/1.1\r\n",
    ]
)
_FIELDS = st.sampled_from(
    [
        b"Host: h\r\n",
        b"Content-Length: 2\r\n",
        b"Content-Length: 99999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: websocket\r\n",
        b"X: \xff\r\n",
        b" folded\r\n",
        b"X: y\n",
        b"X-Request-Id: \t\r\n",
    ]
)
_BODIES = st.sampled_from([b"{}", b"2\r\n{}\r\n0\r\n\r\n", b"0\r\n\r\n", b"ffffffff\r\n", b"\x1f\x8b\x08\0", b"\r\n"])
_NEAR_HTTP = st.builds(
    lambda line, fields, body: line + b"".join(fields) + b"\r\n" + body,
    _LINES,
    st.lists(_FIELDS, max_size=5),
    st.one_of(_BODIES, st.binary(max_size=20)),
)


@st.composite
def damaged_requests(draw: st.DrawFn) -> bytes:
    """A sound request with a few bytes changed, left out or put in."""
    raw = bytearray(draw(st.sampled_from([HEALTH, raw_chat(), raw_chat(stream=True)])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw)


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither ours nor the event loop's."""
    yield
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


def say(server: RunningServer, pieces: list[bytes]) -> bytes:
    """Send the pieces; everything that comes back until the server closes, for which all of its limits pass. A hang is an error."""
    with socket.create_connection(server.address, timeout=DEADLINE_S) as connection:
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while True:
                server.pass_time_until(lambda: has_something(connection), LIMIT_S)
                if not (piece := connection.recv(1 << 16)):
                    break
                received += piece
        except ConnectionError:
            pass  # the server had enough of it
        return received


def check(received: bytes) -> None:
    statuses = {int(status) for status in _STATUS.findall(received)}
    assert not {status for status in statuses if status >= 500} - _ALLOWED_5XX, received
    assert received == b"" or received.startswith(b"HTTP/1.1 ")


def pieces_of(raw: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return [raw[low:high] for low, high in itertools.pairwise(bounds)]


_CUTS = st.lists(st.integers(0, 1 << 16), max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=300), _NEAR_HTTP, damaged_requests()), _CUTS)
def test_anything_is_answered_or_closed(fuzzed: RunningServer, raw: bytes, cuts: list[int]) -> None:
    check(say(fuzzed, pieces_of(raw, cuts)))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(_NEAR_HTTP, damaged_requests(), st.just(HEALTH)), max_size=6), _CUTS)
def test_a_pipeline_of_anything_is_answered_or_closed(
    fuzzed: RunningServer, requests: list[bytes], cuts: list[int]
) -> None:
    check(say(fuzzed, pieces_of(b"".join(requests), cuts)))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), _CUTS)
def test_any_chunked_body_is_answered_or_closed(fuzzed: RunningServer, body: bytes, cuts: list[int]) -> None:
    head = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    check(say(fuzzed, pieces_of(head + body, cuts)))


@pytest.fixture
def fuzzed(start_server: Callable[..., RunningServer]) -> Iterator[RunningServer]:
    """The server of one test; after all of it, it answers as if nothing had been."""
    server = start_server(header_timeout=LIMIT_S, body_timeout=LIMIT_S, idle_timeout=LIMIT_S, stall_timeout=LIMIT_S)
    yield server
    assert server.exchange("GET", "/health")[0] == 200
    assert server.chat()[0] == 200
    wait_until(lambda: server.engine.n_admitted == 0)
