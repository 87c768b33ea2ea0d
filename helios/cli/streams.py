"""Runs concurrent streamed chat requests against a server and keeps when each byte arrived.

One thread and one selector for all of them, and no parsing while tokens flow: the client shares the processor with the
server that it measures. It knows the OpenAI wire and nothing of Helios.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import selectors
import ssl
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helios.cli.timeline import Piece, Timeline, read_timeline
from helios.errors import RemoteError, SettingError
from helios.settings import client_api_key

RECEIVE_BYTES = 1 << 16  # more than a record of TLS, so that nothing of one is left where no selector sees it
_KEY = re.compile(r"[!-~]{1,512}")  # what a header field can carry


def add_endpoint(parser: argparse.ArgumentParser, purpose: str) -> None:
    """`--url` and `--api-key`; see `endpoint_of`."""
    parser.add_argument("--url", help=f"{purpose}, such as http://127.0.0.1:8000 or https://host")
    parser.add_argument(
        "--api-key", metavar="KEY", help="for the server at --url (HELIOS_API_KEY, which others cannot see)"
    )


def endpoint_of(arguments: argparse.Namespace) -> Endpoint | None:
    """The server at `--url` and the key for it, None without one. SettingError when they cannot be used."""
    if arguments.url is None:
        if arguments.api_key is not None:
            raise SettingError("--api-key is given and --url is not", hint="a model in this process needs no key")
        return None
    return Endpoint.from_url(arguments.url, client_api_key() if arguments.api_key is None else arguments.api_key)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, and the key that it wants. Certificates are checked against the system's, or SSL_CERT_FILE."""

    host: str
    port: int
    is_tls: bool = False
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def from_url(cls, url: str, api_key: str | None = None) -> Endpoint:
        try:
            parts = urllib.parse.urlsplit(url if "//" in url else f"//{url}", scheme="http")
            is_tls = parts.scheme == "https"
            host, port = parts.hostname, parts.port or (443 if is_tls else 80)
        except ValueError as error:
            raise SettingError(f"{url!r} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise SettingError(f"{url!r} is not an http:// or https:// URL of a server")
        if api_key is not None and not _KEY.fullmatch(api_key):
            raise SettingError("the API key is not 1 to 512 visible ASCII characters")
        return cls(host, port, is_tls, api_key)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """A new one, not connected yet."""
        kind = http.client.HTTPSConnection if self.is_tls else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)

    def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """The status and body of one GET. Raises RemoteError when nothing answers."""
        connection = self.connection(timeout_s)
        try:
            connection.request("GET", path, headers=self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from None
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
            raise self.unreachable(error) from None
        finally:
            for exchange in exchanges:
                exchange.connection.close()
        return [read_timeline(exchange.started_ns, exchange.pieces) for exchange in exchanges]

    def unreachable(self, error: Exception) -> RemoteError:
        return RemoteError(f"the server at {self.host}:{self.port} does not answer: {error or type(error).__name__}")


class _Exchange:
    """One request and the pieces of its answer."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.connection = endpoint.connection(timeout_s=60)
        self._headers = endpoint.headers
        self.pieces: list[Piece] = []
        self.started_ns = 0

    def send(self, body: Mapping[str, Any]) -> None:
        content = json.dumps(body).encode()
        wanted = {"Content-Type": "application/json", "Accept": "text/event-stream", "Connection": "close"}
        self.started_ns = time.perf_counter_ns()
        self.connection.request("POST", "/v1/chat/completions", content, {**wanted, **self._headers})
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
                try:
                    data = exchange.connection.sock.recv(RECEIVE_BYTES)
                except ssl.SSLWantReadError:  # a part of a record
                    continue
                exchange.pieces.append((time.perf_counter_ns(), data))
                if not data:
                    selector.unregister(exchange.connection.sock)
