"""Clients on raw sockets, one thread and one selector for all: connections that are held, and requests whose times are kept.

It knows HTTP/1.1 as far as a Content-Length goes and nothing of Helios. A client that shares the machine with its server must cost
little, so nothing is parsed while tokens flow.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from helios.cli.streams import Endpoint
from helios.errors import RemoteError

_RECEIVE_BYTES = 1 << 18
_TIMEOUT_S = 60.0


def request(method: str, path: str, document: Any = None) -> bytes:
    """The bytes of a request."""
    body = b"" if document is None else json.dumps(document).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: load\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chat(n_tokens: int, *, is_stream: bool = False) -> bytes:
    """A short greedy chat that takes all its tokens."""
    message = {"role": "user", "content": "Count."}
    fields = {"messages": [message], "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": is_stream}
    return request("POST", "/v1/chat/completions", fields)


def connect(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection((endpoint.host, endpoint.port), timeout=_TIMEOUT_S)


def read_response(connection: socket.socket) -> tuple[int, bytes]:
    """The status and body of one response with a length. RemoteError when the connection ends before it."""
    received = b""
    while (n_missing := _n_missing(received)) > 0:
        piece = connection.recv(_RECEIVE_BYTES)
        if not piece:
            raise RemoteError(f"the connection ended with {n_missing} bytes of a response missing: {received[:100]!r}")
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


def ask(endpoint: Endpoint, content: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    with connect(endpoint) as connection:
        connection.sendall(content)
        return read_response(connection)


def _n_missing(received: bytes) -> int:
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return 1
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(lengths[0].partition(b":")[2]) - len(body)


class HeldStreams:
    """Streamed answers, all open at once, read by `pump` alone."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._n_open = 0

    def __len__(self) -> int:
        """Streams that have not ended."""
        return self._n_open

    def add(self, endpoint: Endpoint, content: bytes) -> None:
        """Ask for one more and wait for its head."""
        connection = connect(endpoint)
        connection.sendall(content)
        head = connection.recv(_RECEIVE_BYTES)
        if b" 200 " not in head.partition(b"\r\n")[0]:
            connection.close()
            raise RemoteError(f"a stream was answered {head[:200]!r}")
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)
        self._n_open += 1

    def pump(self, seconds: float, n_least: int) -> int:
        """Read for so long, and until so many events have come or every stream has ended; the number of events."""
        deadline_s = time.monotonic() + seconds
        n_events = 0
        while (left_s := deadline_s - time.monotonic()) > 0 or (n_events < n_least and self._n_open):
            for key, _ in self._selector.select(max(left_s, 0.05)):
                connection: Any = key.fileobj
                data = connection.recv(_RECEIVE_BYTES)
                n_events += data.count(b"data: ")
                if not data:
                    self._selector.unregister(connection)
                    connection.close()
                    self._n_open -= 1
        return n_events

    def close(self) -> None:
        """Leave without a word."""
        for key in list(self._selector.get_map().values()):
            connection: Any = key.fileobj
            connection.close()
        self._selector.close()


@dataclass(slots=True)
class Rates:
    """Requests of one kind: how many of each status, in how long, and how long each took, sorted."""

    statuses: Counter[int] = field(default_factory=Counter)
    total_s: float = 0.0
    times_s: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return len(self.times_s) / self.total_s

    def quantile_s(self, share: float) -> float:
        return self.times_s[min(int(share * len(self.times_s)), len(self.times_s) - 1)]


def measure(endpoint: Endpoint, content: bytes, n_connections: int, n_requests: int) -> Rates:
    """`n_requests` in all, each connection sending its next when it has its answer."""
    rates = Rates()
    with _connections(endpoint, n_connections) as selector:
        began_s = time.monotonic()
        sent_s: dict[int, float] = {}
        received: dict[int, bytes] = {}
        keys = list(selector.get_map().values())
        n_left = n_requests
        for key in keys[:n_left]:
            n_left -= 1
            sent_s[key.fd], received[key.fd] = time.monotonic(), b""
            _socket(key).sendall(content)
        while sent_s:
            for key, _ in selector.select():
                received[key.fd] += _socket(key).recv(_RECEIVE_BYTES)
                if _n_missing(received[key.fd]) > 0:
                    continue
                now_s = time.monotonic()
                rates.times_s.append(now_s - sent_s.pop(key.fd))
                rates.statuses[int(received[key.fd].split(b" ", 2)[1])] += 1
                if n_left:
                    n_left -= 1
                    sent_s[key.fd], received[key.fd] = now_s, b""
                    _socket(key).sendall(content)
        rates.total_s = time.monotonic() - began_s
    rates.times_s.sort()
    return rates


def _socket(key: selectors.SelectorKey) -> socket.socket:
    connection: Any = key.fileobj
    assert isinstance(connection, socket.socket)
    return connection


@contextmanager
def _connections(endpoint: Endpoint, n_connections: int) -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(n_connections):
                selector.register(connect(endpoint), selectors.EVENT_READ)
            yield selector
        finally:
            for key in list(selector.get_map().values()):
                _socket(key).close()
