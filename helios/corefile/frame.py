"""One zstd frame to and from bytes (CORE-3, CORE-4).

It knows the frame format's outer structure (RFC 8878) and no container. Before anything is decoded the stored bytes are known
to be exactly one frame, with a window of at most 8 MiB, so memory is bounded by the signed length and that window.
"""

from __future__ import annotations

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


def encode_frame(data: bytes) -> bytes:
    """One level-3 frame with its content size and no checksum: the chunk hashes are stronger."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, source_size=len(data), write_content_size=True, write_checksum=False, write_dict_id=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def decode_frame(stored: memoryview, decoded_nbytes: int, what: str) -> bytes:
    """The `decoded_nbytes` bytes of the one frame in `stored`. Raises a FrameError that says what is wrong with it."""
    _check_header(stored, decoded_nbytes, what)
    end = _frame_end(stored, decoded_nbytes, what)
    if end < len(stored):
        n_left = len(stored) - end
        if _starts_frame(stored[end:]):
            raise ExtraFrameError(f"{what} holds another frame behind its first, {n_left:,} bytes")
        raise TrailingBytesError(f"{what} has {n_left:,} bytes behind its frame")
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_NBYTES)
    try:
        decoded = decompressor.decompress(stored, max_output_size=decoded_nbytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        if _content_nbytes(stored) is None:
            raise DecodedLengthError(f"{what} does not decode to its signed {decoded_nbytes:,} bytes") from error
        raise FrameError(f"{what} does not decode") from error
    if len(decoded) != decoded_nbytes:
        raise DecodedLengthError(f"{what} decodes to {len(decoded):,} bytes, {decoded_nbytes:,} are signed")
    return decoded


def _starts_frame(data: memoryview) -> bool:
    head = bytes(data[:4])
    return head == _MAGIC or (head[1:] == _SKIPPABLE_MAGIC_TAIL and head[0] & 0xF0 == 0x50)


def _content_nbytes(stored: memoryview) -> int | None:
    nbytes = zstandard.get_frame_parameters(stored[:18]).content_size
    return None if nbytes == zstandard.CONTENTSIZE_UNKNOWN else nbytes


def _check_header(stored: memoryview, decoded_nbytes: int, what: str) -> None:
    """Dictionary, window and content size, from the at most 18 bytes of the frame header."""
    head = bytes(stored[:4])
    if head != _MAGIC[: len(head)]:
        raise FrameError(f"{what} does not start with a zstd frame")
    try:
        parameters = zstandard.get_frame_parameters(stored[:18])
    except zstandard.ZstdError:
        if len(stored) < 18:
            raise TruncatedFrameError(f"{what} ends in the header of its frame, at byte {len(stored):,}") from None
        raise FrameError(f"{what} has a bad frame header") from None
    if parameters.dict_id:
        raise FrameError(f"{what} needs dictionary {parameters.dict_id}")
    if parameters.window_size > MAX_WINDOW_NBYTES:
        raise FrameWindowError(
            f"{what} asks for a window of {parameters.window_size:,} bytes, the limit is {MAX_WINDOW_NBYTES:,}"
        )
    content_nbytes = _content_nbytes(stored)
    if content_nbytes is not None and content_nbytes != decoded_nbytes:
        raise DecodedLengthError(f"{what} decodes to {content_nbytes:,} bytes, {decoded_nbytes:,} are signed")


def _frame_end(stored: memoryview, decoded_nbytes: int, what: str) -> int:
    """The offset behind the frame, found by walking its blocks: three bytes {last: 1, type: 2, size: 21}, then content."""
    position = zstandard.frame_header_size(stored[:18])
    checksum_nbytes = 4 if zstandard.get_frame_parameters(stored[:18]).has_checksum else 0
    for _ in range(16 + decoded_nbytes // _LEAST_MEAN_BLOCK_NBYTES):
        block = int.from_bytes(stored[position : position + 3], "little")
        kind, size = block >> 1 & 3, block >> 3
        is_last = bool(block & 1)
        if kind == _RESERVED_BLOCK and position + 3 <= len(stored):
            raise FrameError(f"{what} has a block of unknown kind at byte {position:,}")
        position += 3 + (1 if kind == _RLE_BLOCK else size)
        end = position + checksum_nbytes if is_last else position
        if end > len(stored):
            raise TruncatedFrameError(f"{what} ends inside its frame, at byte {len(stored):,}")
        if is_last:
            return end
    raise FrameError(f"{what} has more blocks than its signed {decoded_nbytes:,} bytes can need")
