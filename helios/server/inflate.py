"""Compressed request bodies: gzip undone piece by piece, never past what a body may have.

It knows RFC 1952 by way of zlib and no HTTP framing. What comes out is bounded by a size and, past the first mebibyte, by a
ratio to what went in, so that a small upload cannot cost much time or memory.
"""

from __future__ import annotations

import zlib

from helios.server.status import WireError

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_FREE_NBYTES = 1 << 20
# JSON of conversations shrinks 3 to 20 times, deflate reaches 1,032.
_MAX_RATIO = 100


class GzipInflater:
    """One body of one gzip member."""

    def __init__(self, limit_nbytes: int) -> None:
        self._limit_nbytes = limit_nbytes
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._n_in = 0
        self._n_out = 0

    def inflate(self, piece: bytes) -> bytes:
        """The content of the next bytes of the body. WireError 400 when they are no gzip, 413 when it is too much."""
        self._n_in += len(piece)
        try:
            content = self._stream.decompress(piece, self._limit_nbytes - self._n_out + 1)
        except zlib.error as error:
            raise WireError(400, f"the body is not gzip: {error}") from error
        self._n_out += len(content)
        if self._n_out > self._limit_nbytes:
            raise WireError(413, f"the body inflates to more than {self._limit_nbytes:,} bytes, the limit")
        if self._n_out > _FREE_NBYTES and self._n_out > _MAX_RATIO * self._n_in:
            raise WireError(
                413,
                f"the body inflates from {self._n_in:,} to more than {self._n_out:,} bytes, the limit is {_MAX_RATIO} times",
            )
        if self._stream.unused_data:
            raise WireError(400, "bytes follow the gzip body")
        return content

    def finish(self) -> None:
        """The body has ended; WireError 400 when its gzip has not."""
        if not self._stream.eof:
            raise WireError(400, f"the gzip body ends early, after {self._n_in:,} bytes")


def inflater_of(encoding: str, limit_nbytes: int) -> GzipInflater | None:
    """What undoes `encoding` (the Content-Encoding, "" without one); None for nothing; WireError 415 for what we cannot."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip"):
        return GzipInflater(limit_nbytes)
    raise WireError(
        415,
        f"the body has the content encoding {name[:40]!r}, send it as gzip or as it is",
        headers=(("Accept-Encoding", "gzip"),),
    )
