"""One client connection: what it waits for, and for how long.

It knows no bytes (RequestReader and ResponseWriter do) and no endpoint. Requests of one connection are answered in order, one
at a time; when the client goes, or will send no more, which looks the same, the answer in progress is cancelled at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

import h11

from helios.errors import CapacityError, HeliosError, StalledSenderError
from helios.server.body_memory import BodyMemory
from helios.server.connections import Connections
from helios.server.exchange import Exchange, Headers, HttpRequest, to_json
from helios.server.head import RequestHead, new_request_id
from helios.server.request_reader import ReadLimits, RequestReader
from helios.server.response_writer import ResponseWriter
from helios.server.status import WireError, status_of
from helios.settings import Settings

_PIPELINE_BYTES = 64 << 10  # of later requests, read ahead while one is answered
_SKIP_BYTES = 64 << 10  # of a refused request's body, read and dropped so that the connection can go on
_LINGER_S = 2.0
_TLS_SHUTDOWN_S = 2.0


class Application(Protocol):
    """Who answers. `handle` completes the response whatever happens."""

    def headers(self, headers: Mapping[str, str]) -> Headers:
        """What every response to a request with `headers` carries."""

    def check(self, head: RequestHead) -> None:
        """Raise HeliosError when the request will be refused whatever its body says, which is then not read."""

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None]: ...

    def refused(self, error: HeliosError, request_id: str, head: RequestHead | None) -> None:
        """A request that could not be read was refused; `head` where that much was."""

    def error_document(self, error: HeliosError, head: RequestHead | None) -> object:
        """The body of a refusal, as the API that was asked writes it."""


class Phase(enum.Enum):
    """What a connection is waiting for."""

    HANDSHAKE = "the rest of the TLS handshake"
    IDLE = "a request"
    HEAD = "the rest of the headers"
    BODY = "the rest of the body"
    SKIP = "the rest of a refused body"
    ANSWER = "the application"
    LINGER = "the client to take the refusal and go"
    CLOSED = "nothing"


_UNREAD = (Phase.HANDSHAKE, Phase.HEAD, Phase.BODY, Phase.SKIP, Phase.LINGER)  # more of something is to come


class HttpConnection(asyncio.Protocol):
    """The asyncio protocol of one connection. Its phase says what may happen next."""

    def __init__(
        self,
        application: Application,
        settings: Settings,
        connections: Connections,
        memory: BodyMemory,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._application = application
        self._settings = settings
        self._connections = connections
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        # The reader keeps to the limits; h11 sees whole heads and chunks.
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.header_limit)
        limits = ReadLimits(settings.header_limit, settings.header_fields, settings.body_limit)
        self._reader = RequestReader(self._parser, limits, memory)
        self._phase = Phase.CLOSED
        self._limits_s = {
            Phase.IDLE: settings.idle_timeout,
            Phase.HEAD: settings.header_timeout,
            Phase.BODY: settings.body_timeout,
            Phase.SKIP: _LINGER_S,
            Phase.LINGER: _LINGER_S,
        }
        self._deadline: asyncio.TimerHandle | None = None
        self._head: RequestHead
        self._answer: asyncio.Task[None] | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._writer: ResponseWriter

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(self)
        if self._tls is None:
            self._begin(transport)
            return
        self._transport = transport
        self._enter(Phase.HANDSHAKE)
        transport.pause_reading()  # until somebody is there to read it
        if self._connections.is_over_limit and not self._find_place() and self._connections.is_flooded:
            transport.abort()
        else:
            self._handshake = self._loop.create_task(self._shake_hands(transport, self._tls))

    def data_received(self, data: bytes) -> None:
        if self._phase in (Phase.LINGER, Phase.CLOSED):
            return
        self._reader.receive(data)
        if self._phase is Phase.ANSWER:
            if self._reader.n_waiting > _PIPELINE_BYTES:
                # From here on, that the client has gone shows only when something is sent to it.
                self._transport.pause_reading()
            return
        if self._phase is Phase.IDLE and self._reader.has_begun():
            self._enter(Phase.HEAD)
        elif self._phase in _UNREAD:
            self._connections.set_unread(self)
        self._read()

    def connection_lost(self, error: Exception | None) -> None:
        phase = self._phase
        self._enter(Phase.CLOSED)
        if phase not in (Phase.HANDSHAKE, Phase.CLOSED):  # it came as far as a request
            self._writer.close()
        if self._answer is not None:
            self._answer.cancel()
        else:
            self._reader.end_request()
            self._connections.discard(self)

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    # -- called by the server

    def close_when_answered(self) -> None:
        """Close now when idle; else read and answer the request at hand, then close."""
        if self._phase is Phase.HANDSHAKE:
            self.abort()
            return
        self._writer.is_last = True
        if self._phase is Phase.IDLE:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection and what it is waiting for."""
        self._transport.abort()

    @property
    def n_body_bytes(self) -> int:
        """Of a request that is not all there."""
        return self._reader.n_held

    def refuse_stalled(self) -> None:
        """Refuse the request whose body does not come, and give back what it held, at once."""
        self._refuse(StalledSenderError())

    # -- phases

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        if transport.is_closing():
            return
        secure = None
        with contextlib.suppress(OSError):  # it is no TLS, too slow, or gone
            secure = await self._loop.start_tls(
                transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=self._settings.header_timeout,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
            )
        if secure is None:
            transport.abort()
            self._enter(Phase.CLOSED)
            self._connections.discard(self)
        elif self._phase is Phase.HANDSHAKE:  # the client has not gone since
            self._begin(secure)

    def _begin(self, transport: asyncio.Transport) -> None:
        """Wait for the first request, which may have come with the end of the handshake."""
        self._transport = transport
        self._writer = ResponseWriter(self._parser, transport, self._settings.stall_timeout)
        self._writer.limit_buffer()
        self._enter(Phase.IDLE)
        if self._connections.is_over_limit and not self._find_place():
            if self._connections.is_flooded:
                self._transport.abort()
            else:
                self._refuse(CapacityError(f"{self._connections.limit:,} connections are open, the limit"))
        elif self._reader.has_begun():
            self._enter(Phase.HEAD)
            self._read()

    def _find_place(self) -> bool:
        """Over the limit: whoever waits longest goes. False where nobody does, and this one, which has come last, has to."""
        phase = self._phase
        self._connections.set_busy(self)
        is_found = self._connections.close_longest_waiting()
        self._enter(phase)
        return is_found

    def _enter(self, phase: Phase) -> None:
        """Move to `phase` and start its deadline."""
        self._phase = phase
        if phase is Phase.IDLE:
            self._connections.set_idle(self)
        elif phase in _UNREAD:
            self._connections.set_unread(self)
        else:
            self._connections.set_busy(self)
        if self._deadline is not None:
            self._deadline.cancel()
        limit_s = self._limits_s.get(phase)
        self._deadline = None if limit_s is None else self._loop.call_later(limit_s, self._expire)

    def _expire(self) -> None:
        if self._phase in (Phase.HEAD, Phase.BODY):
            limit_s = self._limits_s[self._phase]
            self._refuse(WireError(408, f"{self._phase.value} did not arrive within {limit_s:g} seconds"))
        else:
            self._transport.abort()

    def _read(self) -> None:
        """Read on until more bytes are needed or somebody has to answer."""
        try:
            if self._phase is Phase.HEAD:
                self._take_head()
            if self._phase in (Phase.BODY, Phase.SKIP):
                self._take_body()
        except HeliosError as error:
            self._refuse(error)

    def _take_head(self) -> None:
        head = self._reader.read_head()
        if head is None:
            return
        self._head = head
        try:
            self._application.check(head)
        except HeliosError as error:
            self._turn_away(error)
            return
        if head.expects_continue and not self._reader.n_waiting:
            self._writer.send_continue()
        self._enter(Phase.BODY)

    def _take_body(self) -> None:
        body = self._reader.read_body()
        if body is None:
            return
        if self._phase is Phase.SKIP:
            self._answer_with(self._writer.drained())
            return
        head = self._head
        request = HttpRequest(head.id, head.method, head.path, head.headers, body)
        exchange = Exchange(request, self._writer, self._application.headers(head.headers))
        self._answer_with(self._application.handle(exchange))

    def _answer_with(self, answering: Coroutine[Any, Any, None]) -> None:
        self._enter(Phase.ANSWER)
        self._answer = self._loop.create_task(answering)
        self._answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Task[None]) -> None:
        """Go on with the next request, if there can be one."""
        self._answer = None
        self._reader.end_request()
        if self._phase is Phase.CLOSED:
            self._connections.discard(self)
        elif answer.cancelled() or answer.exception() is not None:
            self._transport.abort()
        elif self._writer.is_last or {self._parser.our_state, self._parser.their_state} != {h11.DONE}:
            self._transport.close()
        else:
            self._parser.start_next_cycle()
            self._transport.resume_reading()
            self._enter(Phase.HEAD if self._reader.has_begun() else Phase.IDLE)
            self._read()

    # -- refusals

    def _turn_away(self, error: HeliosError) -> None:
        """Refuse a request whose head is sound. The connection goes on when the body is short and surely comes."""
        n_bytes = self._head.body_nbytes
        if n_bytes is None or n_bytes > _SKIP_BYTES or self._head.expects_continue:
            self._close_with(error, self._head.id, self._head)
            return
        self._send_error(error, self._head.id, self._head)
        self._reader.skip_body()
        self._enter(Phase.SKIP)

    def _refuse(self, error: HeliosError) -> None:
        """Refuse what cannot be read on."""
        head = self._reader.head
        request_id = new_request_id() if head is None else head.id
        self._application.refused(error, request_id, head)
        self._close_with(error, request_id, head)

    def _close_with(self, error: HeliosError, request_id: str, head: RequestHead | None) -> None:
        """Answer and close.

        The client may still be sending. Closing with unread bytes would reset the connection and take the refusal with it,
        so we say that we are done and drop what comes until the client has gone.
        """
        self._writer.is_last = True
        if self._writer.may_respond:
            self._send_error(error, request_id, head)
        self._reader.end_request()
        self._enter(Phase.LINGER)
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has reset the connection: `connection_lost` is on its way
                self._transport.write_eof()

    def _send_error(self, error: HeliosError, request_id: str, head: RequestHead | None) -> None:
        status = status_of(error)
        body = to_json(self._application.error_document(error, head))
        fixed = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
        common = (("X-Request-Id", request_id), *self._application.headers({} if head is None else head.headers))
        self._writer.send_head(status.number, (*fixed, *common, *status.headers))
        self._writer.send_body(b"" if self._reader.is_head_request else body)
        self._writer.send_end()
