"""One HTTP request and the response to it, as the endpoints see them.

It knows no sockets and no parser: a Wire carries the bytes. A response starts once, and nothing is sent before the reader's
socket has taken what was sent before it, so that an endpoint that has returned has been read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from helios.errors import HeliosError, InternalError
from helios.server.access_log import Outcome
from helios.server.status import status_of

Headers = Iterable[tuple[str, str]]
_PIECE_NBYTES = 64 << 10  # what is sent before the reader is waited for
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request. Header names are lower case; `path` is percent-decoded and has no query."""

    id: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Wire(Protocol):
    """Where a response goes."""

    def send_head(self, status: int, headers: Headers) -> None: ...
    def send_body(self, piece: bytes) -> None: ...
    def send_end(self) -> None: ...
    @property
    def is_drained(self) -> bool: ...
    async def drained(self) -> None: ...


class Exchange:
    """A request with its response. `status` is None until the response has started; `headers` go with it whatever it is."""

    def __init__(self, request: HttpRequest, wire: Wire, headers: Headers = ()) -> None:
        self.request = request
        self.status: int | None = None
        self.outcome = Outcome()
        self._headers = headers
        self._wire = wire
        self._turn = (
            asyncio.Lock()
        )  # of writers: a large event is several pieces, and those of another must not come between

    def start(self, status: int, headers: Headers) -> None:
        """Send the response's head; without a Content-Length the body is chunked."""
        if self.status is not None:
            raise InternalError(f"the response to {self.request.path} was started twice")
        self.status = status
        self._wire.send_head(status, (*headers, ("X-Request-Id", self.request.id), *self._headers))

    async def write(self, content: bytes) -> None:
        """Send `content`, whole for its reader, however many writers there are and even when this one is cancelled."""
        async with self._turn:
            for end in range(_PIECE_NBYTES, len(content) + _PIECE_NBYTES, _PIECE_NBYTES):
                self._wire.send_body(content[end - _PIECE_NBYTES : end])
                try:
                    await self._wire.drained()
                except asyncio.CancelledError:
                    self._wire.send_body(content[end:])
                    raise

    def try_write(self, content: bytes) -> bool:
        """Send `content` without waiting. False, and nothing is sent, where it has to wait for a reader or another writer."""
        if len(content) > _PIECE_NBYTES or self._turn.locked() or not self._wire.is_drained:
            return False
        self._wire.send_body(content)
        return True

    def write_filler(self, piece: bytes) -> None:
        """Send filler without waiting, or not at all while something is being sent."""
        if not self._turn.locked():
            self._wire.send_body(piece)

    async def finish(self) -> None:
        self._wire.send_end()
        await self._wire.drained()

    async def respond(self, status: int, body: bytes, content_type: str, headers: Headers = ()) -> None:
        """A whole response. The body of a HEAD response is left out, its length is told."""
        self.start(status, (("Content-Type", content_type), ("Content-Length", str(len(body))), *headers))
        if self.request.method != "HEAD":
            await self.write(body)
        await self.finish()

    async def respond_json(self, document: object, status: int = 200, headers: Headers = ()) -> None:
        await self.respond(status, to_json(document), "application/json", headers)

    async def respond_error(self, error: HeliosError, document: object) -> None:
        """`document`, which tells of the error, under the error's own status."""
        status = status_of(error)
        await self.respond_json(document, status.number, status.headers)


def to_json(document: object) -> bytes:
    """Compact UTF-8. A lone surrogate that a caller smuggled into an error message becomes a question mark."""
    return _ENCODER.encode(document).encode(errors="replace")
