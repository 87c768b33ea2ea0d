"""Server-sent events over one exchange.

It knows framing, how a stream closes and the one error event (HTTP-3); it knows no endpoint, whose Dialect it speaks. The headers
go out with the first event: until then an error is still a status, and a front whose worker dies may ask another one. Afterwards it
becomes the last event, and then there is no `[DONE]`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from helios.errors import HeliosError, InternalError
from helios.server.exchange import Exchange, to_json
from helios.server.status import error_body

_LOG = logging.getLogger(__name__)
_HEADERS = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the events of an API are framed. `closing` ends a stream that went well; with `names_events` each event is named by the
    `type` of its document, with `numbers_events` each document has its number."""

    error: Callable[[HeliosError], Mapping[str, Any]] = error_body
    ping: bytes = b": ping\n\n"
    closing: bytes = b"data: [DONE]\n\n"
    names_events: bool = False
    numbers_events: bool = False


_DIALECT = Dialect()


class EventStream:
    """`async with EventStream(exchange, ping_interval_s) as stream: await stream.send({...})`.

    Each send waits until the reader's socket has taken what was sent before, and the end until it has taken all. A ping is sent
    after `ping_interval_s` of silence, so that proxies keep the connection while a long prompt is read.
    """

    def __init__(self, exchange: Exchange, ping_interval_s: float, dialect: Dialect = _DIALECT) -> None:
        self._exchange = exchange
        self._dialect = dialect
        self._ping_interval_s = ping_interval_s
        self._loop = asyncio.get_running_loop()
        self._last_sent_s = 0.0
        self._n_sent = 0
        self._ping_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> EventStream:
        self._last_sent_s = self._loop.time()
        self._schedule_ping()
        return self

    def _begin(self) -> None:
        self._exchange.start(200, (("Content-Type", "text/event-stream; charset=utf-8"), *_HEADERS))

    async def send(self, document: Mapping[str, Any]) -> None:
        """One event with a JSON document as its data."""
        if self._dialect.numbers_events:
            document = {**document, "sequence_number": self._n_sent}
            self._n_sent += 1
        name = b"event: %b\n" % document["type"].encode() if self._dialect.names_events else b""
        await self._send(b"%bdata: %b\n\n" % (name, to_json(document)))

    async def send_data(self, data: bytes) -> None:
        """One event with a document that is encoded already, in a dialect that does not name its events."""
        await self._send(b"data: %b\n\n" % data)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the stream: as the API closes one, or with one error event; what fails before the first event is raised. A cancelled
        exchange has nobody to tell."""
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        if self._exchange.status is None:
            if error is not None:
                return False
            self._begin()
        if error is None:
            if self._dialect.closing:
                await self._send(self._dialect.closing)
        elif isinstance(error, HeliosError):
            await self._send_error(error)
        elif isinstance(error, Exception):
            _LOG.error("request %s failed", self._exchange.request.id, exc_info=error)
            await self._send_error(InternalError("the server failed while it answered"))
        else:
            return False
        await self._exchange.finish()
        return True

    async def _send_error(self, error: HeliosError) -> None:
        self._exchange.outcome.error_code = error.code
        await self.send(self._dialect.error(error))

    async def _send(self, event: bytes) -> None:
        self._last_sent_s = self._loop.time()
        if self._exchange.status is None:
            self._begin()
        if not self._exchange.try_write(event):
            await self._exchange.write(event)

    def _schedule_ping(self) -> None:
        self._ping_timer = self._loop.call_at(self._last_sent_s + self._ping_interval_s, self._ping)

    def _ping(self) -> None:
        if self._loop.time() >= self._last_sent_s + self._ping_interval_s:
            self._last_sent_s = self._loop.time()
            if self._exchange.status is None:
                self._begin()
            self._exchange.write_filler(self._dialect.ping)
        self._schedule_ping()
