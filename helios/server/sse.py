"""Server-sent events over one exchange.

It knows framing, the closing `[DONE]` and the one error event (HTTP-3); it knows no endpoint. After the headers an error
cannot be a status any more, so it becomes the last event, and then there is no `[DONE]`.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType

from helios.errors import HeliosError, InternalError
from helios.server.exchange import Exchange, to_json
from helios.server.status import error_body

_LOG = logging.getLogger(__name__)
_HEADERS = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))


class EventStream:
    """`async with EventStream(exchange, ping_interval_s) as stream: await stream.send({...})`.

    Each send waits until the reader's socket has taken the event. A comment is sent after `ping_interval_s` of silence, so that
    proxies keep the connection while a long prompt is read.
    """

    def __init__(self, exchange: Exchange, ping_interval_s: float) -> None:
        self._exchange = exchange
        self._ping_interval_s = ping_interval_s
        self._loop = asyncio.get_running_loop()
        self._last_sent_s = 0.0
        self._ping_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> EventStream:
        self._exchange.start(200, (("Content-Type", "text/event-stream; charset=utf-8"), *_HEADERS))
        self._last_sent_s = self._loop.time()
        self._schedule_ping()
        return self

    async def send(self, document: object) -> None:
        """One event with a JSON document as its data."""
        await self._send(to_json(document))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the stream: `[DONE]`, or one error event. A cancelled exchange has nobody to tell."""
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        if error is None:
            await self._send(b"[DONE]")
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
        await self.send(error_body(error))

    async def _send(self, data: bytes) -> None:
        self._last_sent_s = self._loop.time()
        await self._exchange.write(b"data: %b\n\n" % data)

    def _schedule_ping(self) -> None:
        self._ping_timer = self._loop.call_at(self._last_sent_s + self._ping_interval_s, self._ping)

    def _ping(self) -> None:
        if self._loop.time() >= self._last_sent_s + self._ping_interval_s:
            self._last_sent_s = self._loop.time()
            self._exchange.write_comment(b": ping\n\n")
        self._schedule_ping()
