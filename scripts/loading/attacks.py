"""What hostile clients do to a server, each a function that goes on until it has done it `n` times.

It knows sockets and HTTP's bytes. An attack closes what it opened; whatever the server does to it, it does not stop for that.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from helios.cli.streams import Endpoint
from helios.errors import RemoteError
from scripts.loading.clients import chat, connect, read_response, request

_AT_ONCE = 100  # connections that one attack holds
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
_PIECES = 200
_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: load\r\n"

Attack = Callable[[Endpoint, int], None]


def slow_headers(endpoint: Endpoint, n: int) -> None:
    """Slowloris: headers that come a field at a time and never end."""
    _trickle(endpoint, n, [_HEAD, *(b"X-%d: a\r\n" % index for index in range(1, 10))])


def slow_bodies(endpoint: Endpoint, n: int) -> None:
    """Bodies that are announced large and come a byte at a time."""
    _trickle(endpoint, n, [_HEAD + b"Content-Length: 1000000\r\n\r\n", *[b"{"] * 9])


def half_open(endpoint: Endpoint, n: int) -> None:
    """Clients that close their sending side, in the head or behind a request, and read nothing."""
    for n_batch in _batches(n):
        with ExitStack() as held:
            for index in range(n_batch):
                connection = held.enter_context(connect(endpoint))
                _send(connection, _HEAD if index % 2 else chat(2000, is_stream=True))
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            time.sleep(0.05)


def resets(endpoint: Endpoint, n: int) -> None:
    """Connections that are reset at a random byte of the request, or in the answer."""
    chance = random.Random(0)
    content = chat(2000, is_stream=True)
    for index in range(n):
        with connect(endpoint) as connection:
            _send(connection, content[: chance.randrange(len(content) * 2)])
            if index % 4 == 0:
                with suppress(OSError):
                    connection.settimeout(0.05)
                    connection.recv(64)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def single_bytes(endpoint: Endpoint, n: int) -> None:
    """Good requests in packets of one byte; each must be answered."""
    content = request("POST", "/tokenize", {"prompt": "a"})
    for _ in range(max(n // _PIECES, 1)):
        with connect(endpoint) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for index in range(len(content)):
                connection.sendall(content[index : index + 1])
            status, body = read_response(connection)
        if status != 200:
            raise RemoteError(f"a request that came byte by byte was answered {status}: {body[:200]!r}")


def open_and_close(endpoint: Endpoint, n: int) -> None:
    """Connections that say nothing."""
    for _ in range(n):
        connect(endpoint).close()


def header_floods(endpoint: Endpoint, n: int) -> None:
    """Heads of far too many fields, and of one far too long; each must be refused as such."""
    floods = (
        _HEAD + b"".join(b"X-%d: a\r\n" % index for index in range(1000)) + b"\r\n",
        _HEAD + b"X-Long: " + b"a" * (1 << 20),
    )
    for index in range(n):
        with connect(endpoint) as connection:
            _send(connection, floods[index % 2])
            status, body = read_response(connection)
        if status != 431:
            raise RemoteError(f"a flood of headers was answered {status}: {body[:200]!r}")


ATTACKS: Mapping[str, Attack] = {
    attack.__name__.replace("_", " "): attack
    for attack in (slow_headers, slow_bodies, half_open, resets, single_bytes, open_and_close, header_floods)
}


def _trickle(endpoint: Endpoint, n: int, pieces: Sequence[bytes]) -> None:
    """Requests that come in `pieces`, slowly, and are never complete."""
    for n_batch in _batches(n):
        with ExitStack() as held:
            connections = [held.enter_context(connect(endpoint)) for _ in range(n_batch)]
            for piece in pieces:
                for connection in connections:
                    _send(connection, piece)
                time.sleep(0.02)


def _batches(n: int) -> list[int]:
    return [min(_AT_ONCE, n - start) for start in range(0, n, _AT_ONCE)]


def _send(connection: socket.socket, content: bytes) -> None:
    """As much as the server takes: it may have closed or refuse the rest."""
    with suppress(OSError):
        connection.sendall(content)
