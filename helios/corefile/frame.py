"""One zstd frame to and from bytes (CORE-3, CORE-4).

It knows the frame format's outer structure (RFC 8878) and no container. Stored bytes stream through chunk by chunk, and the
blocks of each are followed before the decoder sees it; memory is bounded by the signed length, one chunk and a window of 8 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable

import zstandard

from helios.errors import (
    DecodedLengthError,
    ExtraFrameError,
    FrameError,
    FrameWindowError,
    TrailingBytesError,
    TruncatedFrameError,
)

LEVEL = 3
MAX_WINDOW_NBYTES = 8 << 20

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC_TAIL = b"\x2a\x4d\x18"  # behind 0x50 to 0x5f
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3
# Level 3 writes blocks of up to 128 KiB; many more blocks than this are made to waste time.
_LEAST_MEAN_BLOCK_NBYTES = 1024
_MAX_HEADER_NBYTES = 18
_READ_NBYTES = 1 << 20  # so much is decoded at a time: what a frame claims is not allocated before it is there


def encode_frame(data: bytes) -> bytes:
    """One level-3 frame with its content size and no checksum: the chunk hashes are stronger."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, source_size=len(data), write_content_size=True, write_checksum=False, write_dict_id=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def decode_frame(chunks: Iterable[bytes], decoded_nbytes: int, what: str) -> bytes:
    """The `decoded_nbytes` bytes of the one frame in `chunks`, of which all but the last have at least 18 bytes.

    Raises a FrameError that says what is wrong with it. Chunks are taken as they are needed, each one only once.
    """
    source = _FrameSource(chunks, decoded_nbytes, what)
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_NBYTES)
    reader = decompressor.stream_reader(source, read_across_frames=False)  # type: ignore[arg-type]  # only `read` is used
    pieces: list[bytes] = []
    n_left = decoded_nbytes
    try:
        while n_left and (piece := reader.read(min(n_left, _READ_NBYTES))):
            pieces.append(piece)
            n_left -= len(piece)
        is_longer = bool(reader.read(1))
    except zstandard.ZstdError as error:
        raise FrameError(f"{what} does not decode") from error
    source.finish()
    if n_left or is_longer:
        found = f"{decoded_nbytes - n_left:,}" if n_left else "more"
        raise DecodedLengthError(f"{what} decodes to {found} bytes, {decoded_nbytes:,} are signed")
    return b"".join(pieces)


class _FrameSource:
    """The file that the decoder reads from: verified chunks, each checked to continue the one frame."""

    def __init__(self, chunks: Iterable[bytes], decoded_nbytes: int, what: str) -> None:
        self._chunks = iter(chunks)
        self._chunk = next(self._chunks, b"")
        self._position = 0
        _check_header(self._chunk[:_MAX_HEADER_NBYTES], decoded_nbytes, what)
        self._walk = _BlockWalk(self._chunk[:_MAX_HEADER_NBYTES], decoded_nbytes, what)
        self._walk.follow(self._chunk)

    def read(self, n_most_bytes: int) -> bytes:
        """At most so many of the next bytes; none at the end of a whole frame."""
        if self._position == len(self._chunk) and not self._next_chunk():
            return b""
        piece = self._chunk[self._position : self._position + n_most_bytes]
        self._position += len(piece)
        return piece

    def finish(self) -> None:
        """Follow what the decoder did not ask for."""
        while self._next_chunk():
            pass

    def _next_chunk(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._walk.finish()
            return False
        self._chunk, self._position = chunk, 0
        self._walk.follow(chunk)
        return True


class _BlockWalk:
    """Follows the blocks of a frame through its chunks: three bytes {last: 1, type: 2, size: 21}, then content."""

    def __init__(self, header: bytes, decoded_nbytes: int, what: str) -> None:
        self._what = what
        self._decoded_nbytes = decoded_nbytes
        self._checksum_nbytes = 4 if zstandard.get_frame_parameters(header).has_checksum else 0
        self._n_blocks_left = 16 + decoded_nbytes // _LEAST_MEAN_BLOCK_NBYTES
        self._skip_nbytes = zstandard.frame_header_size(header)  # from the next chunk's start to what comes next
        self._is_last = False  # what comes next is the frame's end, not a block
        self._partial = b""  # the first bytes of a block header that goes on in the next chunk
        self._n_seen_bytes = 0

    def follow(self, chunk: bytes) -> None:
        data = self._partial + chunk if self._partial else chunk
        position = self._skip_nbytes
        while not self._is_last and position + 3 <= len(data):
            position = self._follow_block(int.from_bytes(data[position : position + 3], "little"), position)
        if self._is_last and position < len(data):
            self._refuse_rest(data[position:])
        self._partial = data[position:]
        self._skip_nbytes = max(position - len(data), 0)
        self._n_seen_bytes += len(chunk)

    def _follow_block(self, block: int, position: int) -> int:
        """The place behind a block whose header is at `position`."""
        kind, size = block >> 1 & 3, block >> 3
        if kind == _RESERVED_BLOCK:
            raise FrameError(f"{self._what} has a block of unknown kind")
        self._n_blocks_left -= 1
        if self._n_blocks_left < 0:
            raise FrameError(f"{self._what} has more blocks than its signed {self._decoded_nbytes:,} bytes can need")
        self._is_last = bool(block & 1)
        return position + 3 + (1 if kind == _RLE_BLOCK else size) + (self._checksum_nbytes if self._is_last else 0)

    def _refuse_rest(self, rest: bytes) -> None:
        is_frame = rest[:4] == _MAGIC or (rest[1:4] == _SKIPPABLE_MAGIC_TAIL and rest[0] & 0xF0 == 0x50)
        if is_frame:
            raise ExtraFrameError(f"{self._what} holds another frame behind its first, {len(rest):,} bytes or more")
        raise TrailingBytesError(f"{self._what} has {len(rest):,} bytes or more behind its frame")

    def finish(self) -> None:
        if not self._is_last or self._skip_nbytes:
            raise TruncatedFrameError(f"{self._what} ends inside its frame, at byte {self._n_seen_bytes:,}")


def _check_header(head: bytes, decoded_nbytes: int, what: str) -> None:
    """Dictionary, window and content size, from the at most 18 bytes of the frame header."""
    if head[:4] != _MAGIC[: len(head)]:
        raise FrameError(f"{what} does not start with a zstd frame")
    try:
        parameters = zstandard.get_frame_parameters(head)
    except zstandard.ZstdError:
        if len(head) < _MAX_HEADER_NBYTES:
            raise TruncatedFrameError(f"{what} ends in the header of its frame, at byte {len(head):,}") from None
        raise FrameError(f"{what} has a bad frame header") from None
    if parameters.dict_id:
        raise FrameError(f"{what} needs dictionary {parameters.dict_id}")
    if parameters.window_size > MAX_WINDOW_NBYTES:
        raise FrameWindowError(
            f"{what} asks for a window of {parameters.window_size:,} bytes, the limit is {MAX_WINDOW_NBYTES:,}"
        )
    content_nbytes = parameters.content_size
    if content_nbytes not in (zstandard.CONTENTSIZE_UNKNOWN, decoded_nbytes):
        raise DecodedLengthError(f"{what} decodes to {content_nbytes:,} bytes, {decoded_nbytes:,} are signed")
