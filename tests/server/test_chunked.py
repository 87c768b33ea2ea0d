"""Chunked bodies, fed whole, byte by byte and with bytes behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.server.chunked import ChunkedDecoder
from helios.server.status import WireError


def feed(
    raw: bytes, n_each: int, limit: int = 1 << 20, trailer_limit: int = 1024
) -> tuple[ChunkedDecoder, bytes, bytes]:
    """The decoder, the content and what it left, after pieces of `n_each` bytes."""
    decoder, buffer, content = ChunkedDecoder(limit, trailer_limit), bytearray(), b""
    for start in range(0, len(raw), n_each):
        buffer += raw[start : start + n_each]
        content += decoder.decode(buffer)
    return decoder, content, bytes(buffer)


def encode(chunks: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=8), st.integers(1, 40), st.binary(max_size=9))
def test_content_is_the_same_whatever_the_pieces(chunks: list[bytes], n_each: int, behind: bytes) -> None:
    decoder, content, left = feed(encode(chunks) + behind, n_each)
    assert decoder.is_complete
    assert content == b"".join(chunks)
    assert left == behind


@pytest.mark.parametrize(
    "raw",
    [
        b"3;name=value\r\nabc\r\n0\r\n\r\n",
        b'3 ; name="a b"\r\nabc\r\n0\r\n\r\n',
        b"0003\r\nabc\r\n000\r\n\r\n",
        b"3\r\nabc\r\n0\r\nTrailer: x\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_extensions_and_trailers_are_dropped(raw: bytes) -> None:
    for n_each in (1, len(raw)):
        decoder, content, _ = feed(raw, n_each)
        assert (decoder.is_complete, content) == (True, b"abc")


REFUSED = {
    "bare line feed after the size": b"3\nabc\r\n0\r\n\r\n",
    "bare line feed after the content": b"3\r\nabc\n0\r\n\r\n",
    "bare carriage return in an extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "bare line feed in an extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "NUL in an extension": b"3;\0\r\nabc\r\n0\r\n\r\n",
    "space after the size": b"3 \r\nabc\r\n0\r\n\r\n",
    "space before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "too many digits": b"00000000000000003\r\nabc\r\n0\r\n\r\n",
    "content longer than the size": b"3\r\nabcd\r\n0\r\n\r\n",
    "content shorter than the size": b"3\r\nab\r\n0\r\n\r\n",
    "two other bytes after the content": b"3\r\nabcXX0\r\n\r\n",
    "folded trailer": b"3\r\nabc\r\n0\r\nA: b\r\n c\r\n\r\n",
    "trailer without a colon": b"3\r\nabc\r\n0\r\nabc\r\n\r\n",
    "bare line feed in the trailer": b"3\r\nabc\r\n0\r\nA: b\n\n",
    "bare line feed at the end": b"3\r\nabc\r\n0\r\n\n",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_framing_that_readers_disagree_about_is_refused(raw: bytes) -> None:
    """Research 1.13."""
    for n_each in (1, len(raw)):
        with pytest.raises(WireError) as refusal:
            feed(raw, n_each)
        assert refusal.value.status == 400


@pytest.mark.parametrize(("n_bytes", "is_taken"), [(99, True), (100, True), (101, False)])
def test_content_may_have_as_many_bytes_as_the_limit(n_bytes: int, is_taken: bool) -> None:
    """Research item 38: without a length in the head the limit holds as well, and at the size, before the content."""
    for raw in (b"%x\r\n" % n_bytes, encode([b"x" * 50, b"x" * (n_bytes - 50)])):
        if is_taken:
            feed(raw, len(raw), limit=100)
        else:
            with pytest.raises(WireError) as refusal:
                feed(raw, len(raw), limit=100)
            assert refusal.value.status == 413


def test_a_size_of_many_digits_is_too_large() -> None:
    with pytest.raises(WireError) as refusal:
        feed(b"ffffffffffffffff\r\n", 1)
    assert refusal.value.status == 413


def test_lines_and_trailers_have_limits() -> None:
    for raw in (b"3;" + b"x" * 300, b"0\r\nX: " + b"x" * 2000, b"0\r\n" + b"X: yyyyyy\r\n" * 200):
        for n_each in (1, len(raw)):
            with pytest.raises(WireError) as refusal:
                feed(raw, n_each)
            assert refusal.value.status == 431


def test_framing_may_not_outweigh_content() -> None:
    """CVE-2023-39326: little content in much framing is work for nothing; small plain chunks are no crime."""
    with pytest.raises(WireError, match="more framing than content"):
        feed((b"1;" + b"x" * 200 + b"\r\na\r\n") * 100, 1000)
    decoder, content, _ = feed(encode([b"a"] * 5000), 1000)
    assert decoder.is_complete
    assert content == b"a" * 5000
