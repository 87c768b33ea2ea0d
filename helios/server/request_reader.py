"""Bytes of a connection to requests: a head, then its body, whatever pieces they arrive in.

It knows limits and no sockets, no clock and no endpoint. A request is checked as it comes, so that what is refused is refused
at its first wrong byte; bytes of later requests wait here untouched and never reach the parser early.
"""

from __future__ import annotations

from dataclasses import dataclass

import h11

from helios.errors import InternalError
from helios.server.body_memory import BodyMemory
from helios.server.chunked import ChunkedDecoder
from helios.server.head import RequestHead, checked_head, head_length, parse_head
from helios.server.inflate import GzipInflater, inflater_of
from helios.server.status import WireError


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one request may have: bytes and fields of its head, bytes of its body."""

    head_nbytes: int
    head_fields: int
    body_nbytes: int


class RequestReader:
    """`receive` bytes; `read_head`, then `read_body` until it has a value; `end_request` before the next head."""

    def __init__(self, parser: h11.Connection, limits: ReadLimits, memory: BodyMemory) -> None:
        self._parser = parser
        self._limits = limits
        self._memory = memory
        self._buffer = bytearray()
        self._n_scanned = 0
        self._body = bytearray()
        self._n_held = 0
        self._n_left = 0  # of a body with a length
        self._chunks: ChunkedDecoder | None = None
        self._inflater: GzipInflater | None = None
        self._is_skipping = False
        self.head: RequestHead | None = None  # of the request that is read, whatever is wrong with its body
        self.is_head_request = False  # known as soon as the method is, whatever is wrong with the rest

    @property
    def n_waiting(self) -> int:
        """Bytes that were received and not read."""
        return len(self._buffer)

    @property
    def n_held(self) -> int:
        """Bytes of the body at hand."""
        return self._n_held

    def receive(self, data: bytes) -> None:
        self._buffer += data

    def has_begun(self) -> bool:
        """True when bytes of a next request are there. Empty lines before it are none (RFC 9112 2.2)."""
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        return bool(self._buffer)

    def read_head(self) -> RequestHead | None:
        """The next request's checked head, None while it is incomplete. WireError when it is refused."""
        n_head = head_length(self._buffer, self._n_scanned, self._limits.head_nbytes)
        if n_head is None:
            self._n_scanned = len(self._buffer)
            return None
        self._n_scanned = 0
        request = parse_head(self._parser, self._taken(n_head), self._limits.head_fields)
        self.is_head_request = request.method == b"HEAD"
        head = checked_head(request)
        self.head = head
        self._begin_body(head)
        return head

    def read_body(self) -> bytes | None:
        """The whole body with its encoding undone, None while it is incomplete. WireError or CapacityError."""
        if self._chunks is None:
            piece = self._taken(min(self._n_left, len(self._buffer)))
            self._n_left -= len(piece)
            self._feed(piece)
        else:
            piece = self._chunks.decode(self._buffer)
            self._feed(_as_chunks(piece, self._chunks.is_complete))
        return self._next_body()

    def skip_body(self) -> None:
        """Read on without keeping anything: the request was answered already."""
        self._is_skipping = True

    def end_request(self) -> None:
        """Forget the request and give back what it held."""
        self._memory.give_back(self._n_held)
        self._n_held = 0
        self._body = bytearray()
        self._is_skipping = False
        self.head = None
        self.is_head_request = False

    def _begin_body(self, head: RequestHead) -> None:
        self._chunks = None
        self._n_left = head.body_nbytes or 0
        if self._n_left > self._limits.body_nbytes:
            raise WireError(413, f"the body has {self._n_left:,} bytes, the limit is {self._limits.body_nbytes:,}")
        if head.body_nbytes is None:
            self._chunks = ChunkedDecoder(self._limits.body_nbytes, self._limits.head_nbytes)
        self._inflater = inflater_of(head.headers.get("content-encoding", ""), self._limits.body_nbytes)

    def _feed(self, data: bytes) -> None:
        if data:  # nothing would mean the end of the connection to h11
            self._parser.receive_data(data)

    def _next_body(self) -> bytes | None:
        while True:
            event = self._parser.next_event()
            if isinstance(event, h11.Data):
                self._collect(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return self._complete_body()
            elif event is h11.NEED_DATA:
                return None
            else:
                raise InternalError(f"the parser said {event!r} in a request's body")

    def _collect(self, piece: bytes) -> None:
        if self._is_skipping:
            return
        if self._inflater is not None:
            piece = self._inflater.inflate(piece)
        self._memory.take(len(piece))
        self._n_held += len(piece)
        self._body += piece

    def _complete_body(self) -> bytes:
        if self._inflater is not None and not self._is_skipping:
            self._inflater.finish()
        body, self._body = bytes(self._body), bytearray()
        return body

    def _taken(self, n_bytes: int) -> bytes:
        taken = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return taken


def _as_chunks(piece: bytes, is_last: bool) -> bytes:
    """A chunk as we write it, for h11. Empty when nothing came."""
    chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
    return chunk + b"0\r\n\r\n" if is_last else chunk
