"""From the bytes of a connection to requests, without a socket."""

from __future__ import annotations

import gzip

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import CapacityError
from helios.server.body_memory import BodyMemory
from helios.server.head import RequestHead
from helios.server.request_reader import ReadLimits, RequestReader
from helios.server.status import WireError

LIMITS = ReadLimits(head_nbytes=2048, head_fields=20, body_nbytes=4096)


class Side:
    """A reader with its parser; it answers each request with nothing, as the connection would."""

    def __init__(self, memory: BodyMemory | None = None) -> None:
        self.parser = h11.Connection(h11.SERVER)
        self.memory = memory or BodyMemory(1 << 20)
        self.reader = RequestReader(self.parser, LIMITS, self.memory)
        self.head: RequestHead | None = None
        self.requests: list[tuple[str, bytes]] = []

    def receive(self, data: bytes) -> None:
        self.reader.receive(data)
        while self._step():
            pass

    def receive_in_pieces(self, raw: bytes, n_each: int) -> None:
        for at in range(0, len(raw), n_each):
            self.receive(raw[at : at + n_each])

    def _step(self) -> bool:
        if self.head is None:
            self.head = self.reader.read_head() if self.reader.has_begun() else None
            return self.head is not None
        body = self.reader.read_body()
        if body is None:
            return False
        self.requests.append((self.head.path, body))
        self.parser.send(h11.Response(status_code=204, headers=[]))
        self.parser.send(h11.EndOfMessage())
        self.parser.start_next_cycle()
        self.reader.end_request()
        self.head = None
        return True


def post(path: str, body: bytes, framing: str) -> bytes:
    """A request with its body sent in one of three ways."""
    head = b"POST %b HTTP/1.1\r\nHost: h\r\n" % path.encode()
    if framing == "gzip":
        body = gzip.compress(body)
        head += b"Content-Encoding: gzip\r\n"
    if framing == "length":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:half], body[half:]) if piece)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


FRAMINGS = st.sampled_from(["length", "chunked", "gzip"])
REQUESTS = st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.binary(max_size=60), FRAMINGS), max_size=5)


@given(REQUESTS, st.lists(st.integers(1, 50), min_size=1, max_size=8), st.booleans())
def test_requests_are_the_same_whatever_the_pieces(
    requests: list[tuple[str, bytes, str]], sizes: list[int], has_blank_lines: bool
) -> None:
    """Pipelined, in any pieces, with empty lines between; nothing is held when they have ended."""
    raw = (b"\r\n" if has_blank_lines else b"").join(post(*request) for request in requests)
    side, at, turn = Side(), 0, 0
    while at < len(raw):
        size = sizes[turn % len(sizes)]
        side.receive(raw[at : at + size])
        at, turn = at + size, turn + 1
    assert side.requests == [(path, body) for path, body, _ in requests]
    assert side.memory.n_taken == 0
    assert side.reader.n_waiting == 0


@pytest.mark.parametrize("framing", ["length", "chunked", "gzip"])
@pytest.mark.parametrize(("n_bytes", "is_taken"), [(4095, True), (4096, True), (4097, False)])
def test_bodies_are_limited_in_every_framing(framing: str, n_bytes: int, is_taken: bool) -> None:
    """Research item 38 and Rapid-MLX#706: also chunked, also inflated."""
    raw = post("/a", b"x" * n_bytes, framing)
    for n_each in (1, len(raw)):
        side = Side()
        if is_taken:
            side.receive_in_pieces(raw, n_each)
            assert side.requests == [("/a", b"x" * n_bytes)]
        else:
            with pytest.raises(WireError) as refusal:
                side.receive_in_pieces(raw, n_each)
            assert refusal.value.status == 413
            side.reader.end_request()
        assert side.memory.n_taken == 0


def test_a_refused_body_is_read_over_and_not_kept() -> None:
    side = Side(BodyMemory(10))
    side.reader.receive(post("/a", b"x" * 1000, "gzip"))
    assert side.reader.read_head() is not None
    side.reader.skip_body()
    assert side.reader.read_body() == b""
    assert side.reader.n_waiting == 0


def test_all_bodies_together_are_limited() -> None:
    """Slow senders on many connections cannot fill the memory."""
    memory = BodyMemory(100)
    first, second = Side(memory), Side(memory)
    first.receive(post("/a", b"x" * 60, "length")[:-1])
    with pytest.raises(CapacityError, match="59 bytes of request bodies are held, the limit is 100"):
        second.receive(post("/a", b"x" * 60, "length"))
    second.reader.end_request()
    first.receive(b"x")
    assert memory.n_taken == 0
