"""Bytes of a file on an HTTP server by ranges, with retry, resume and bounds on everything (CORE-1).

It knows no core, and what it returns is not believed: whoever reads compares hashes. A read asks for exactly its range, takes
no byte more, goes on where a broken transfer stopped, and ends, well or with a LocationError, within its deadline.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from helios.corefile.places import is_http_url
from helios.errors import LocationError

_TIMEOUT_S = 20.0  # of one wait for the server
_DEADLINE_S = 300.0  # of one read: 4 MiB at 14 KB/s
_MOST_ATTEMPTS = 6  # without a single byte of progress
_FIRST_PAUSE_S = 0.1  # doubled each time: 3.1 s in all
_MOST_REDIRECTS = 5
_MOST_IDLE_CONNECTIONS = 8
_PIECE_NBYTES = 256 << 10
_RETRIED_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 303, 307, 308}
_CONTENT_RANGE = re.compile(r"bytes (\d{1,20})-(\d{1,20})/(\d{1,20}|\*)")


class RemoteFile:
    """A file at a URL, read from any thread; keeps connections open between reads. Owner closes."""

    def __init__(self, url: str, pause: Callable[[float], None] = time.sleep) -> None:
        self._url = url
        self._pause = pause
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._target = url  # where redirects led

    def read_into(self, offset: int, data: memoryview) -> None:
        """Fill `data` from `offset` on. Raises LocationError."""
        transfer = _Transfer(offset, data, time.monotonic() + _DEADLINE_S)
        n_failures = 0
        while transfer.n_missing:
            n_before = transfer.n_missing
            try:
                self._read_some(transfer)
                continue
            except (OSError, http.client.HTTPException, _RetryError) as error:
                n_failures = 1 if transfer.n_missing < n_before else n_failures + 1
                if n_failures >= _MOST_ATTEMPTS or transfer.is_late:
                    raise LocationError(
                        f"{self._url} broke off after {transfer.n_read:,} of {len(data):,} bytes from byte {offset:,}: "
                        f"{str(error)[:200] or type(error).__name__}",
                        hint="try again, or copy the file here",
                    ) from error
            self._pause(_FIRST_PAUSE_S * 2 ** (n_failures - 1))

    def _read_some(self, transfer: _Transfer) -> None:
        """One request for what is still missing, kept as it arrives."""
        start, end = transfer.offset + transfer.n_read, transfer.offset + len(transfer.data)
        connection, response = self._request(start, end)
        is_complete = False
        try:
            self._check_range(response, start, end)
            while transfer.n_missing:
                if transfer.is_late:
                    raise _RetryError("the server is too slow")
                piece = response.read1(min(transfer.n_missing, _PIECE_NBYTES))  # returns with what is there
                if not piece:
                    raise _RetryError("the server closed the connection")
                transfer.keep(piece)
            is_complete = response.length == 0 and not response.read(1)  # which ends the response
        finally:
            self._give_back(connection, is_complete)

    def _request(self, start: int, end: int) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The response to a range request, redirects followed."""
        url = self._target
        for _ in range(_MOST_REDIRECTS + 1):
            connection = self._take(url)
            try:
                parts = urlsplit(url)
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request(
                    "GET", path, headers={"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
                )
                response = connection.getresponse()
            except BaseException:
                connection.close()
                raise
            if response.status not in _REDIRECTS:
                self._target = url
                return connection, response
            connection.close()
            url = self._redirected(url, response.getheader("Location", ""))
        raise LocationError(f"{self._url} redirects more than {_MOST_REDIRECTS} times")

    def _redirected(self, url: str, location: str) -> str:
        """Where to ask next: another HTTP URL, and never an open one in place of an encrypted one."""
        try:
            target = urljoin(url, location)
            is_allowed = is_http_url(target) and (target.startswith("https:") or not url.startswith("https:"))
        except ValueError:
            is_allowed = False
        if not is_allowed:
            raise LocationError(f"{self._url} redirects to {location[:200]!r}, which is not followed")
        return target

    def _check_range(self, response: http.client.HTTPResponse, start: int, end: int) -> None:
        status = response.status
        if status in _RETRIED_STATUSES:
            raise _RetryError(f"the server answers {status}")
        if status == 416:
            raise LocationError(f"{self._url} ends before byte {end:,}")
        if status == 200:
            raise LocationError(f"{self._url} is not served by ranges", hint="copy the file here")
        if status != 206:
            raise LocationError(f"{self._url} answers {status} {response.reason[:100]}")
        found = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", ""))
        if found is None or (int(found[1]), int(found[2])) != (start, end - 1):
            raise LocationError(f"{self._url} answers with another range than bytes {start:,} to {end - 1:,}")

    def _take(self, url: str) -> http.client.HTTPConnection:
        with self._lock:
            if url == self._target and self._idle:
                return self._idle.pop()
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)

    def _give_back(self, connection: http.client.HTTPConnection, is_complete: bool) -> None:
        with self._lock:
            if is_complete and len(self._idle) < _MOST_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()


@dataclass(slots=True)
class _Transfer:
    """One read: where it stands and when it has to be over."""

    offset: int
    data: memoryview
    deadline_s: float
    n_read: int = 0

    @property
    def n_missing(self) -> int:
        return len(self.data) - self.n_read

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline_s

    def keep(self, piece: bytes) -> None:
        self.data[self.n_read : self.n_read + len(piece)] = piece
        self.n_read += len(piece)


class _RetryError(Exception):
    """This attempt failed, another may not."""
