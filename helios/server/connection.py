"""One client connection: bytes to requests, responses to bytes, with limits and deadlines.

It knows HTTP/1.1 by way of h11 and no endpoint. Requests of one connection are answered in order, one at a time; when the
connection goes, the answer in progress is cancelled at once. Nothing is buffered beyond the kernel's own socket buffer.
"""

from __future__ import annotations

import asyncio
import enum
import re
import secrets
from collections.abc import Coroutine, Mapping
from email.utils import formatdate
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import h11

from helios.server.exchange import Exchange, Headers, HttpRequest, to_json
from helios.server.status import WireError, error_body
from helios.settings import Settings

_MAX_HEADERS = 100
_PIPELINE_BYTES = 64 << 10  # of later requests, read ahead while one is answered
_LINGER_S = 2.0
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


class Application(Protocol):
    """Who answers. `handle` completes the response whatever happens; `refused` hears of requests that never got that far."""

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None]: ...
    def refused(self, status: int) -> None: ...


class Phase(enum.Enum):
    """What a connection is waiting for."""

    IDLE = "a request"
    HEAD = "the rest of the headers"
    BODY = "the rest of the body"
    ANSWER = "the application"
    LINGER = "the client to take the refusal and go"
    CLOSED = "nothing"


class HttpConnection(asyncio.Protocol):
    """An asyncio protocol and the Wire of its exchanges.

    It is a member of `open_connections` while it is open or its last answer has not ended.
    """

    def __init__(self, application: Application, settings: Settings, open_connections: set[HttpConnection]) -> None:
        self._application = application
        self._settings = settings
        self._open_connections = open_connections
        self._loop = asyncio.get_running_loop()
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.header_limit)
        self._phase = Phase.CLOSED
        self._limits_s = {
            Phase.IDLE: settings.idle_timeout,
            Phase.HEAD: settings.header_timeout,
            Phase.BODY: settings.body_timeout,
            Phase.LINGER: _LINGER_S,
        }
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._request: h11.Request | None = None
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._n_read_ahead = 0
        self._answer: asyncio.Task[None] | None = None
        self._is_last = False
        self._transport: asyncio.Transport

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        self._open_connections.add(self)
        self._enter(Phase.IDLE)

    def data_received(self, data: bytes) -> None:
        if self._phase in (Phase.LINGER, Phase.CLOSED):
            return
        self._parser.receive_data(data)
        if self._phase is Phase.ANSWER:
            self._n_read_ahead += len(data)
            if self._n_read_ahead > _PIPELINE_BYTES:
                # From here on, that the client has gone shows only when something is sent to it.
                self._transport.pause_reading()
            return
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        self._parse()

    def connection_lost(self, error: Exception | None) -> None:
        self._enter(Phase.CLOSED)
        if self._stall is not None:
            self._stall.cancel()
        if self._answer is not None:
            self._answer.cancel()
        else:
            self._open_connections.discard(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        self._stall = self._loop.call_later(self._settings.stall_timeout, self._transport.abort)

    def resume_writing(self) -> None:
        self._writable.set()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # -- called by the server

    def close_when_answered(self) -> None:
        """Finish the answer in progress, then close; without one, close now."""
        self._is_last = True
        if self._phase is not Phase.ANSWER:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection and what it is waiting for."""
        self._transport.abort()

    # -- the Wire of an exchange

    @property
    def is_paused(self) -> bool:
        return not self._writable.is_set()

    def send_head(self, status: int, headers: Headers) -> None:
        all_headers = [*headers, ("Date", formatdate(usegmt=True)), ("Server", "helios")]
        if self._is_last:
            all_headers.append(("Connection", "close"))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers]
        self._send(h11.Response(status_code=status, headers=encoded))

    def send_body(self, piece: bytes) -> None:
        self._send(h11.Data(data=piece))

    def send_end(self) -> None:
        self._send(h11.EndOfMessage())

    async def drained(self) -> None:
        """Wait until the kernel has taken all that was sent."""
        await self._writable.wait()

    def _send(self, event: h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage) -> None:
        if self._phase is Phase.CLOSED:
            return
        encoded = self._parser.send(event)
        if encoded:
            self._transport.write(encoded)

    # -- phases

    def _enter(self, phase: Phase) -> None:
        """Move to `phase` and start its deadline."""
        self._phase = phase
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

    def _parse(self) -> None:
        """Take events from the parser until it wants more bytes or a request is complete."""
        try:
            while self._phase in (Phase.HEAD, Phase.BODY):
                event = self._parser.next_event()
                if isinstance(event, h11.Request):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._collect(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._start_answer()
                else:
                    return
        except h11.RemoteProtocolError as error:
            self._refuse(WireError(error.error_status_hint, f"the request is not valid HTTP/1.1: {error}"))
        except WireError as error:
            self._refuse(error)

    def _begin(self, request: h11.Request) -> None:
        """Check a request's head before any of its body is taken."""
        n_bytes = sum(len(name) + len(value) for name, value in request.headers) + len(request.target)
        if n_bytes > self._settings.header_limit or len(request.headers) > _MAX_HEADERS:
            raise WireError(431, f"the headers have {n_bytes:,} bytes, the limit is {self._settings.header_limit:,}")
        if request.http_version not in (b"1.0", b"1.1"):
            raise WireError(505, "this server speaks HTTP/1.1")
        self._request = request
        self._headers = _joined_headers(request)
        self._body.clear()
        _check_framing(self._headers)
        self._check_body_size(int(self._headers.get("content-length", "0")))
        if self._parser.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        self._enter(Phase.BODY)

    def _collect(self, piece: bytes) -> None:
        self._check_body_size(len(self._body) + len(piece))
        self._body += piece

    def _check_body_size(self, n_bytes: int) -> None:
        if n_bytes > self._settings.body_limit:
            raise WireError(413, f"the body has {n_bytes:,} bytes or more, the limit is {self._settings.body_limit:,}")

    def _start_answer(self) -> None:
        assert self._request is not None
        request = HttpRequest(
            id=_request_id(self._headers.get("x-request-id", "")),
            method=self._request.method.decode("ascii"),
            path=_path(self._request.target.decode("ascii")),
            headers=self._headers,
            body=bytes(self._body),
        )
        self._body = bytearray()
        self._n_read_ahead = 0
        self._enter(Phase.ANSWER)
        self._answer = self._loop.create_task(self._application.handle(Exchange(request, self)))
        self._answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Task[None]) -> None:
        """Go on with the next request, if there can be one."""
        self._answer = None
        if self._phase is Phase.CLOSED:
            self._open_connections.discard(self)
            return
        if answer.cancelled() or answer.exception() is not None:
            self._transport.abort()
            return
        if self._is_last or self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE:
            self._transport.close()
            return
        self._parser.start_next_cycle()
        self._transport.resume_reading()
        has_read_ahead = bool(self._parser.trailing_data[0])
        self._enter(Phase.HEAD if has_read_ahead else Phase.IDLE)
        self._parse()

    def _refuse(self, error: WireError) -> None:
        """Answer a request that cannot be read on, then close.

        The client may still be sending. Closing with unread bytes would reset the connection and take the refusal with it,
        so we say that we are done and drop what comes until the client has gone.
        """
        self._application.refused(error.status)
        self._is_last = True
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = to_json(error_body(error))
            fixed = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
            self.send_head(error.status, (*fixed, ("X-Request-Id", _request_id("")), *error.headers))
            is_head = self._request is not None and self._request.method == b"HEAD"
            self.send_body(b"" if is_head else body)
            self.send_end()
        self._enter(Phase.LINGER)
        if self._transport.can_write_eof():
            self._transport.write_eof()


def _joined_headers(request: h11.Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_framing(headers: Mapping[str, str]) -> None:
    """Refuse what proxies disagree about (request smuggling) and encodings that we do not undo."""
    if "transfer-encoding" in headers and "content-length" in headers:
        raise WireError(400, "the request has both Transfer-Encoding and Content-Length")
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise WireError(415, f"the body has the content encoding {encoding[:40]!r}; send it as it is")


def _request_id(given: str) -> str:
    return given if _REQUEST_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"


def _path(target: str) -> str:
    """The decoded path of an origin-form or absolute-form target."""
    path = target.split("?", 1)[0] if target.startswith("/") else urlsplit(target).path
    return unquote(path) or "/"
