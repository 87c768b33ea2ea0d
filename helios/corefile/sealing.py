"""AES-256-GCM over the chunks of one resource (CORE-2, version 4): sealed by the writer, opened by the reader.

It knows bytes and no file, and loads its library when there is something to seal or to open. A chunk opens only under its own
resource's key, at its own index, among as many chunks and in content of the same length as when it was sealed: nothing can be
moved, left out, or taken from elsewhere.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable, Iterator

from helios.corefile.chunks import CHUNK_NBYTES
from helios.errors import ChunkSealError, CoreKeyError

KEY_NBYTES = 32
SALT_NBYTES = 32
KEY_CHECK_NBYTES = 16
TAG_NBYTES = 16
CONTENT_NBYTES = CHUNK_NBYTES - TAG_NBYTES  # of a whole chunk

_PLACE = struct.Struct(">QQQ")  # chunk index, number of chunks, content bytes
_CONTENT_INFO, _CHECK_INFO = b"helios.index.4 content\0", b"helios.index.4 check"


def n_sealed_chunks(content_nbytes: int) -> int:
    """How many chunks hold so much content."""
    return -(-content_nbytes // CONTENT_NBYTES)


def sealed_nbytes(content_nbytes: int) -> int:
    """What so much content takes when it is stored."""
    return content_nbytes + TAG_NBYTES * n_sealed_chunks(content_nbytes)


def key_check(core_key: bytes, salt: bytes) -> bytes:
    """What a sealed index keeps of its key."""
    return _derive(core_key, salt, _CHECK_INFO, KEY_CHECK_NBYTES)


def check_key(core_key: bytes, salt: bytes, expected: bytes) -> None:
    """Raise CoreKeyError unless this is the key that the core was sealed with."""
    if not hmac.compare_digest(key_check(core_key, salt), expected):
        raise CoreKeyError("the core is encrypted with another key than the one given", hint="ask its publisher")


class ChunkSealer:
    """Seals and opens the chunks of one resource or tensor."""

    def __init__(self, core_key: bytes, salt: bytes, id_: str, content_nbytes: int) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(_derive(core_key, salt, _CONTENT_INFO + id_.encode(), KEY_NBYTES))
        self._id = id_
        self._content_nbytes = content_nbytes

    def seal(self, index: int, content: bytes | bytearray) -> bytes:
        """Chunk `index`: its content encrypted, then the tag."""
        return self._cipher.encrypt(_nonce(index), content, self._associated(index))

    def seal_all(self, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
        """The stored chunks of content that comes in pieces of any size."""
        index, content = 0, bytearray()
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            while len(rest):
                n_room = CONTENT_NBYTES - len(content)
                content += rest[:n_room]
                rest = rest[n_room:]
                if len(content) == CONTENT_NBYTES:
                    yield self.seal(index, content)
                    index += 1
                    content.clear()
        if content:
            yield self.seal(index, content)

    def open(self, index: int, stored: bytes | memoryview, what: str) -> bytes:
        """The content of chunk `index`. Raises ChunkSealError when it is not what was sealed there."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_nonce(index), stored, self._associated(index))
        except InvalidTag:
            raise ChunkSealError(f"{what}, chunk {index:,} is not the one that was encrypted in its place") from None

    def _associated(self, index: int) -> bytes:
        place = _PLACE.pack(index, n_sealed_chunks(self._content_nbytes), self._content_nbytes)
        return b"helios.chunk.4\0" + place + self._id.encode()


def _nonce(index: int) -> bytes:
    """Never twice under one key: keys are a resource's own."""
    return index.to_bytes(12, "big")


def _derive(core_key: bytes, salt: bytes, info: bytes, nbytes: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=nbytes, salt=salt, info=info).derive(core_key)
