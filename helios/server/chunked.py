"""Chunked bodies, read strictly: what stands between the chunks is where request smuggling lives.

It knows RFC 9112 section 7.1 and no sockets. h11 reads chunks as well, but it takes bare line feeds, folded trailers and any
size; behind this decoder it sees only chunks that we wrote.
"""

from __future__ import annotations

import enum
import re

from helios.server.status import WireError

_MAX_LINE_NBYTES = 256
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
# A chunk may come with so many bytes of framing, and bodies with so many more in all (as Go's net/http, CVE-2023-39326).
_FREE_NBYTES = 16
_MAX_EXCESS_NBYTES = 16 << 10


class _Part(enum.Enum):
    SIZE = enum.auto()
    DATA = enum.auto()
    DATA_END = enum.auto()
    TRAILER = enum.auto()
    NOTHING = enum.auto()


class ChunkedDecoder:
    """One body. `is_complete` once its last chunk and trailer were taken; the trailer's fields are dropped."""

    def __init__(self, limit_nbytes: int, trailer_limit_nbytes: int) -> None:
        self._limit_nbytes = limit_nbytes
        self._trailer_room_nbytes = trailer_limit_nbytes
        self._part = _Part.SIZE
        self._n_left = 0
        self._n_declared = 0
        self._excess_nbytes = 0

    @property
    def is_complete(self) -> bool:
        return self._part is _Part.NOTHING

    def decode(self, buffer: bytearray) -> bytes:
        """Take what there is of this body from the front of `buffer` and return its content. WireError 400, 413 or 431."""
        pieces: list[bytes] = []
        while self._step(buffer, pieces):
            pass
        return b"".join(pieces)

    def _step(self, buffer: bytearray, pieces: list[bytes]) -> bool:
        """Take one element; False when the rest of it has not arrived or the body is complete."""
        if self._part is _Part.SIZE:
            return self._take_size(buffer)
        if self._part is _Part.DATA:
            return self._take_data(buffer, pieces)
        if self._part is _Part.DATA_END:
            return self._take_data_end(buffer)
        return self._part is _Part.TRAILER and self._take_field(buffer)

    def _take_size(self, buffer: bytearray) -> bool:
        line = _line(buffer, _MAX_LINE_NBYTES)
        if line is None:
            return False
        chunk = _CHUNK.fullmatch(line)
        if chunk is None:
            raise WireError(400, f"a chunk begins with {line[:40].decode('latin-1')!r}, which is no chunk size")
        n_bytes = int(chunk[1], 16)
        self._n_declared += n_bytes
        if self._n_declared > self._limit_nbytes:
            raise WireError(
                413, f"the body has {self._n_declared:,} bytes or more, the limit is {self._limit_nbytes:,}"
            )
        self._excess_nbytes = max(0, self._excess_nbytes + len(line) + 2 - _FREE_NBYTES - 2 * n_bytes)
        if self._excess_nbytes > _MAX_EXCESS_NBYTES:
            raise WireError(400, "the chunks have more framing than content")
        self._n_left = n_bytes
        self._part = _Part.DATA if n_bytes else _Part.TRAILER
        return True

    def _take_data(self, buffer: bytearray, pieces: list[bytes]) -> bool:
        piece = bytes(buffer[: self._n_left])
        del buffer[: len(piece)]
        pieces.append(piece)
        self._n_left -= len(piece)
        if self._n_left:
            return False
        self._part = _Part.DATA_END
        return True

    def _take_data_end(self, buffer: bytearray) -> bool:
        end = bytes(buffer[:2])
        if not b"\r\n".startswith(end):
            raise WireError(400, f"a chunk ends with {end.decode('latin-1')!r} where CRLF must be")
        if len(end) < 2:
            return False
        del buffer[:2]
        self._part = _Part.SIZE
        return True

    def _take_field(self, buffer: bytearray) -> bool:
        """One trailer field, or the empty line that ends the body."""
        line = _line(buffer, self._trailer_room_nbytes)
        if line is None:
            return False
        if not line:
            self._part = _Part.NOTHING
            return False
        if not _FIELD.fullmatch(line):
            raise WireError(400, "the trailer has a line that is no field")
        self._trailer_room_nbytes -= len(line) + 2
        return True


def _line(buffer: bytearray, limit_nbytes: int) -> bytes | None:
    """Take a line without its CRLF, None while its end is not there."""
    end = buffer.find(b"\n", 0, limit_nbytes)
    if end < 0:
        if len(buffer) >= limit_nbytes:
            raise WireError(431, f"a chunk's line or the trailer is longer than {limit_nbytes:,} bytes")
        return None
    if end == 0 or buffer[end - 1] != ord("\r"):
        raise WireError(400, "a chunk's line ends with a bare line feed")
    line = bytes(buffer[: end - 1])
    del buffer[: end + 1]
    return line
