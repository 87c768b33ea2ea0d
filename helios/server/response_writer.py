"""Responses to bytes, no faster than their reader takes them.

It knows HTTP/1.1 framing by way of h11 and no endpoint. Nothing is buffered beyond one piece for each of an answer's writers: a
writer waits until the kernel has taken all, and a reader that takes nothing for `stall_timeout` seconds is dropped.
"""

from __future__ import annotations

import asyncio
import time

import h11

from helios.server.exchange import Headers


class ResponseWriter:
    """The Wire of one connection's exchanges. `is_last` announces that the connection ends with this response."""

    def __init__(self, parser: h11.Connection, transport: asyncio.Transport, stall_timeout_s: float) -> None:
        self._parser = parser
        self._transport = transport
        self._stall_timeout_s = stall_timeout_s
        self._loop = asyncio.get_running_loop()
        self._stall: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_closed = False
        self._unsent = b""  # a head, for as long as its body may follow at once
        self._is_chunked = False
        self.is_last = False

    def limit_buffer(self) -> None:
        """Be told of every byte that the kernel has not taken.

        asyncio's TLS pauses at its limit, where plain sockets pause past it, and keeps 64 KiB beneath that it does not tell of.
        """
        is_tls = self._transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(high=1 if is_tls else 0, low=0)

    # -- the Wire of an exchange

    def send_head(self, status: int, headers: Headers) -> None:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        all_headers = [*headers, ("Date", date), ("Server", "helios")]
        if self.is_last:
            all_headers.append(("Connection", "close"))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers]
        self._encode(h11.Response(status_code=status, headers=encoded))
        self._is_chunked = b"\r\ntransfer-encoding: chunked\r\n" in self._unsent.lower()
        self._loop.call_soon(self._flush)

    def send_body(self, piece: bytes) -> None:
        """A chunk is framed here, as h11 would do it in four times the time: that is a quarter of what a streamed token costs."""
        if not self._is_chunked:
            self._encode(h11.Data(data=piece))
        elif piece and not self._is_closed:  # a chunk of nothing would be the last
            self._unsent += b"%x\r\n%b\r\n" % (len(piece), piece)
        self._flush()

    def send_end(self) -> None:
        self._encode(h11.EndOfMessage())
        self._flush()

    @property
    def is_drained(self) -> bool:
        """The kernel has taken all that was sent."""
        return self._writable.is_set()

    async def drained(self) -> None:
        """Wait until the kernel has taken all that was sent."""
        await self._writable.wait()

    # -- called by the connection

    @property
    def may_respond(self) -> bool:
        """True while no final response to this request has begun."""
        return self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def send_continue(self) -> None:
        self._encode(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        self._flush()

    def pause(self) -> None:
        """The kernel takes no more."""
        self._writable.clear()
        self._watch(self._transport.get_write_buffer_size())

    def resume(self) -> None:
        """The kernel has taken all."""
        self._writable.set()
        self._stop_watching()

    def close(self) -> None:
        """The connection is gone; what is still sent is dropped."""
        self._is_closed = True
        self._stop_watching()

    def _encode(self, event: h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage) -> None:
        if not self._is_closed:
            self._unsent += self._parser.send(event)

    def _flush(self) -> None:
        if self._unsent and not self._is_closed:
            unsent, self._unsent = self._unsent, b""
            self._transport.write(unsent)

    def _watch(self, n_unread: int) -> None:
        """Look again after `stall_timeout` seconds: by then some of `n_unread` bytes must have been taken."""
        self._stall = self._loop.call_later(self._stall_timeout_s, self._check_progress, n_unread)

    def _check_progress(self, n_unread: int) -> None:
        n_now = self._transport.get_write_buffer_size()
        if n_now < n_unread:
            self._watch(n_now)
        else:
            self._transport.abort()

    def _stop_watching(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
