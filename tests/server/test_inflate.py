"""gzip bodies: undone in any pieces, bounded in size and ratio, and refused when they are not whole."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.server.inflate import GzipInflater, inflater_of
from helios.server.status import WireError


def inflate(compressed: bytes, n_each: int, limit: int = 1 << 20) -> bytes:
    inflater = GzipInflater(limit)
    content = b"".join(inflater.inflate(compressed[at : at + n_each]) for at in range(0, len(compressed), n_each))
    inflater.finish()
    return content


@given(st.binary(max_size=500), st.integers(1, 600))
def test_content_comes_back_whatever_the_pieces(content: bytes, n_each: int) -> None:
    assert inflate(gzip.compress(content), n_each) == content


@pytest.mark.parametrize(("n_bytes", "is_taken"), [(999, True), (1000, True), (1001, False)])
def test_content_may_have_as_many_bytes_as_the_limit(n_bytes: int, is_taken: bool) -> None:
    compressed = gzip.compress(b"x" * n_bytes)
    for n_each in (1, len(compressed)):
        if is_taken:
            assert len(inflate(compressed, n_each, 1000)) == n_bytes
        else:
            with pytest.raises(WireError) as refusal:
                inflate(compressed, n_each, 1000)
            assert refusal.value.status == 413


def test_a_bomb_is_refused_before_it_has_unfolded() -> None:
    """300 kB that would be 300 MB, under a limit of a gibibyte."""
    bomb = gzip.compress(bytes(300 << 20), 1)
    inflater, sizes = GzipInflater(1 << 30), []
    pieces = (bomb[at : at + 1024] for at in range(0, len(bomb), 1024))
    with pytest.raises(WireError, match="the limit is 100 times") as refusal:
        sizes.extend(len(inflater.inflate(piece)) for piece in pieces)
    assert refusal.value.status == 413
    assert sum(sizes) < 2 << 20


def test_text_that_shrinks_much_is_taken_while_it_is_small() -> None:
    assert len(inflate(gzip.compress(bytes(1 << 20)), 100, 2 << 20)) == 1 << 20


@pytest.mark.parametrize(
    "compressed",
    [
        b"",
        b"not gzip at all",
        zlib.compress(b"deflate"),
        gzip.compress(b"cut", mtime=0)[:-1],
        gzip.compress(b"sum", mtime=0)[:-8] + b"\0" * 8,
        gzip.compress(b"one", mtime=0) + gzip.compress(b"two", mtime=0),
        gzip.compress(b"one", mtime=0) + b"\0",
    ],
)
def test_what_is_not_one_whole_gzip_is_refused(compressed: bytes) -> None:
    for n_each in (1, 100):
        with pytest.raises(WireError) as refusal:
            inflate(compressed, n_each)
        assert refusal.value.status == 400


def test_only_gzip_is_undone() -> None:
    assert inflater_of("", 10) is None
    assert inflater_of("identity", 10) is None
    assert inflater_of("GZIP", 10) is not None
    assert inflater_of("x-gzip", 10) is not None
    for encoding in ("deflate", "br", "zstd", "gzip, gzip", "identity, gzip"):
        with pytest.raises(WireError) as refusal:
            inflater_of(encoding, 10)
        assert refusal.value.status == 415
        assert refusal.value.headers == (("Accept-Encoding", "gzip"),)
