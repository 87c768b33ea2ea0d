"""Runs concurrent streamed chat requests against a server and keeps when each byte arrived.

One thread and one selector for all of them, and no parsing while tokens flow: the client shares the processor with the
server that it measures. It knows the OpenAI wire and nothing of Helios.
"""

from __future__ import annotations

import http.client
import json
import selectors
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helios.cli.timeline import Piece, Timeline, read_timeline
from helios.errors import RemoteError, SettingError

RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def from_url(cls, url: str) -> Endpoint:
        try:
            parts = urllib.parse.urlsplit(url if "//" in url else f"//{url}", scheme="http")
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise SettingError(f"{url!r} is not a URL: {error}") from None
        if parts.scheme != "http" or not host:
            raise SettingError(f"{url!r} is not an http:// URL of a server")
        return cls(host, port)

    def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """The status and body of one GET. Raises RemoteError when nothing answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def stream(self, bodies: Sequence[Mapping[str, Any]], timeout_s: float) -> list[Timeline]:
        """Send all the chat requests at once and return their timelines in order. Raises RemoteError if one fails."""
        exchanges = [_Exchange(self) for _ in bodies]
        try:
            for exchange in exchanges:
                exchange.connection.connect()
            for exchange, body in zip(exchanges, bodies, strict=True):
                exchange.send(body)
            _receive(exchanges, time.monotonic() + timeout_s)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            for exchange in exchanges:
                exchange.connection.close()
        return [read_timeline(exchange.started_ns, exchange.pieces) for exchange in exchanges]

    def _unreachable(self, error: Exception) -> RemoteError:
        return RemoteError(f"the server at {self.host}:{self.port} does not answer: {error or type(error).__name__}")


class _Exchange:
    """One request and the pieces of its answer."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)
        self.pieces: list[Piece] = []
        self.started_ns = 0

    def send(self, body: Mapping[str, Any]) -> None:
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Connection": "close"}
        self.started_ns = time.perf_counter_ns()
        self.connection.request("POST", "/v1/chat/completions", content, headers)
        self.connection.sock.setblocking(False)


def _receive(exchanges: Sequence[_Exchange], deadline_s: float) -> None:
    """Read until the server has closed every connection."""
    with selectors.DefaultSelector() as selector:
        for exchange in exchanges:
            selector.register(exchange.connection.sock, selectors.EVENT_READ, exchange)
        while selector.get_map():
            ready = selector.select(timeout=max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no bytes before the deadline, {len(selector.get_map())} answers unfinished")
            for key, _ in ready:
                exchange = key.data
                data = exchange.connection.sock.recv(RECEIVE_BYTES)
                exchange.pieces.append((time.perf_counter_ns(), data))
                if not data:
                    selector.unregister(exchange.connection.sock)
