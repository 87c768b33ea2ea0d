"""Hashes of stored bytes in chunks of 4 MiB: how they are made, counted and compared.

It knows no file and no message. Chunks follow from the bytes alone, however these were split when they were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from helios.errors import ChunkCountError, ChunkHashError

CHUNK_NBYTES = 4 << 20
HASH_NBYTES = 32


def n_chunks(nbytes: int) -> int:
    """The last chunk may be short; no bytes have no chunk."""
    return -(-nbytes // CHUNK_NBYTES)


class ChunkHasher:
    """Takes bytes in any pieces; `finish` gives the SHA-256 of each chunk."""

    def __init__(self) -> None:
        self._hashes: list[bytes] = []
        self._chunk = hashlib.sha256()
        self._room = CHUNK_NBYTES

    def update(self, data: bytes | memoryview) -> None:
        rest = memoryview(data).cast("B")
        while len(rest):
            part, rest = rest[: self._room], rest[self._room :]
            self._chunk.update(part)
            self._room -= len(part)
            if self._room == 0:
                self._close_chunk()

    def finish(self) -> list[bytes]:
        if self._room < CHUNK_NBYTES:
            self._close_chunk()
        return self._hashes

    def _close_chunk(self) -> None:
        self._hashes.append(self._chunk.digest())
        self._chunk = hashlib.sha256()
        self._room = CHUNK_NBYTES


def check_count(hashes: Sequence[bytes], nbytes: int, what: str) -> None:
    """ChunkCountError unless there is one hash of 32 bytes for each chunk."""
    if len(hashes) != n_chunks(nbytes):
        raise ChunkCountError(f"{what} has {len(hashes):,} chunk hashes for {n_chunks(nbytes):,} chunks")
    for index, digest in enumerate(hashes):
        if len(digest) != HASH_NBYTES:
            raise ChunkCountError(f"{what}, chunk {index:,} has a hash of {len(digest):,} bytes, not {HASH_NBYTES}")


def check_chunk(chunk: bytes | memoryview, index: int, hashes: Sequence[bytes], what: str) -> None:
    """Raise ChunkHashError when chunk `index` is not the signed one."""
    if hashlib.sha256(chunk).digest() != hashes[index]:
        raise ChunkHashError(f"{what} is damaged: chunk {index:,} of {len(hashes):,} has another hash")
