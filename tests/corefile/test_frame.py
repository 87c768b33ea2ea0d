"""Exactly one zstd frame, and a different error for each way not to be one."""

from __future__ import annotations

import contextlib
import resource
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
import zstandard

from helios.corefile.frame import MAX_WINDOW_NBYTES, decode_frame, encode_frame
from helios.errors import (
    CoreError,
    DecodedLengthError,
    ExtraFrameError,
    FrameError,
    FrameWindowError,
    TrailingBytesError,
    TruncatedFrameError,
)

CONTENT = b"All happy families are alike. " * 400
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"


def decode(frame: bytes, decoded_nbytes: int) -> bytes:
    """Whole, and in chunks with a boundary at every kind of place: both are refused or the same."""
    chunks = [frame[start : start + 19] for start in range(0, min(len(frame), 1900), 19)] + [frame[1900:]]
    whole, parts = outcome([frame], decoded_nbytes), outcome(chunks, decoded_nbytes)
    if isinstance(whole, FrameError):
        assert isinstance(parts, FrameError)
        raise whole
    assert whole == parts
    return whole


def outcome(chunks: list[bytes], decoded_nbytes: int) -> bytes | FrameError:
    try:
        return decode_frame(chunks, decoded_nbytes, "the resource")
    except FrameError as error:
        return error


@hypothesis.given(st.binary(min_size=1, max_size=5000))
def test_what_was_encoded_is_decoded(content: bytes) -> None:
    """CORE-3: one frame with its content size."""
    frame = encode_frame(content)
    assert zstandard.get_frame_parameters(frame).content_size == len(content)
    assert decode(frame, len(content)) == content


def test_large_content_keeps_a_window_within_the_limit() -> None:
    """CORE-4: what the writer makes, the reader accepts, and twice the same."""
    content = bytes(range(256)) * (80 << 10)
    frame = encode_frame(content)
    assert zstandard.get_frame_parameters(frame).window_size <= MAX_WINDOW_NBYTES
    assert encode_frame(content) == frame
    assert decode(frame, len(content)) == content


def test_every_truncation_is_a_truncated_frame() -> None:
    """CORE-4: truncated frame."""
    frame = encode_frame(CONTENT)
    for nbytes in range(len(frame)):
        with pytest.raises(TruncatedFrameError):
            decode(frame[:nbytes], len(CONTENT))


@pytest.mark.parametrize("extra", [encode_frame(b"more"), SKIPPABLE])
def test_another_frame_behind_the_first_is_refused(extra: bytes) -> None:
    """CORE-4: extra frame, skippable ones included."""
    with pytest.raises(ExtraFrameError):
        decode(encode_frame(CONTENT) + extra, len(CONTENT))


@pytest.mark.parametrize("extra", [b"\0", b"\0" * 100, b"\x28\xb5\x2f"])
def test_bytes_behind_the_frame_are_refused(extra: bytes) -> None:
    """CORE-4: trailing bytes."""
    with pytest.raises(TrailingBytesError):
        decode(encode_frame(CONTENT) + extra, len(CONTENT))


def test_a_skippable_frame_in_front_is_refused() -> None:
    """CORE-3: exactly one frame, and it is the content's."""
    with pytest.raises(FrameError, match="does not start with a zstd frame"):
        decode(SKIPPABLE + encode_frame(CONTENT), len(CONTENT))


@pytest.mark.parametrize("difference", [-1, 1])
@pytest.mark.parametrize("has_content_size", [True, False])
def test_another_decoded_length_is_refused(difference: int, has_content_size: bool) -> None:
    """CORE-4: decoded length mismatch, whether or not the frame itself says how long it is."""
    frame = zstandard.ZstdCompressor(level=3, write_content_size=has_content_size).compress(CONTENT)
    assert decode(frame, len(CONTENT)) == CONTENT
    with pytest.raises(DecodedLengthError):
        decode(frame, len(CONTENT) + difference)


def test_a_large_window_is_refused() -> None:
    """CORE-4: a window of at most 8 MiB."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=24)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = compressor.compress(bytes(1 << 20)) + compressor.flush()
    with pytest.raises(FrameWindowError, match="16,777,216"):
        decode(frame, 1 << 20)


def test_a_single_segment_larger_than_the_window_is_refused() -> None:
    """CORE-4: a frame without a window descriptor has a window of its whole content."""
    header = b"\x28\xb5\x2f\xfd\xa0" + (9 << 20).to_bytes(4, "little")
    with pytest.raises(FrameWindowError):
        decode(header + b"\x03\0\0a" * 72, 9 << 20)


def test_a_dictionary_is_refused() -> None:
    """CORE-3: a frame stands alone."""
    dictionary = zstandard.train_dictionary(1024, [CONTENT[i : i + 200] + bytes([i]) for i in range(200)], dict_id=7)
    frame = zstandard.ZstdCompressor(level=3, dict_data=dictionary).compress(CONTENT)
    with pytest.raises(FrameError, match="needs dictionary 7"):
        decode(frame, len(CONTENT))


def test_a_frame_checksum_is_checked() -> None:
    """CORE-3: a frame of another level-3 writer may carry a checksum."""
    frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(CONTENT)
    assert decode(frame, len(CONTENT)) == CONTENT
    with pytest.raises(FrameError, match="does not decode"):
        decode(frame[:-1] + bytes([frame[-1] ^ 1]), len(CONTENT))
    with pytest.raises(TruncatedFrameError):
        decode(frame[:-1], len(CONTENT))


def rle_bomb(n_blocks: int) -> bytes:
    """A frame of no declared size that decodes to `n_blocks` times 128 KiB from 4 bytes each."""
    blocks = [
        (128 << 10 << 3 | 1 << 1 | (index == n_blocks - 1)).to_bytes(3, "little") + b"x" for index in range(n_blocks)
    ]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory as Linux counts it")
def test_a_bomb_stops_at_the_signed_length() -> None:
    """CORE-4: four bytes a block decode to 128 KiB each: 8 GiB here, of which nothing is allocated past the signed length."""
    bomb = rle_bomb(65536)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FrameError):
        decode(bomb, 1 << 20)
    with pytest.raises(DecodedLengthError):
        decode(bomb[: 6 + 4 * 1000] + (128 << 10 << 3 | 3).to_bytes(3, "little") + b"x", 1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_no_more_blocks_than_the_signed_length_can_need() -> None:
    """CORE-4: 16, and one for each KiB."""
    last = (1 << 3 | 1).to_bytes(3, "little") + b"x"
    for n_empty in (15, 16):
        frame = b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * n_empty + last
        with pytest.raises(FrameError, match="more blocks") if n_empty > 15 else contextlib.nullcontext():
            assert decode_frame([frame], 1, "the resource") == b"x"


def test_a_frame_of_empty_blocks_is_refused_soon() -> None:
    """CORE-4: work is bounded by the signed length, too."""
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * (4 << 20)
    with pytest.raises(FrameError, match="more blocks"):
        decode(frame, 1 << 20)


@hypothesis.given(st.binary(max_size=300), st.integers(1, 1 << 20))
def test_any_bytes_are_refused_or_decode_to_the_signed_length(data: bytes, decoded_nbytes: int) -> None:
    """CORE-4: nothing but a CoreError comes out of foreign bytes."""
    with contextlib.suppress(CoreError):
        assert len(decode(b"\x28\xb5\x2f\xfd" + data, decoded_nbytes)) == decoded_nbytes
