"""Timelines read from raw exchanges, however they were cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helios.cli.timeline import Piece, read_answer, read_timeline
from helios.errors import RemoteError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}


def event(payload: object) -> bytes:
    return b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n"


def text(content: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]})


def chunk(data: bytes) -> bytes:
    return b"%X\r\n%s\r\n" % (len(data), data)


EVENTS = (text(""), text("one"), b": ping\n\n", text(" two"), text("", "length"), event(USAGE), event(b"[DONE]"))
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n"
PLAIN = HEAD + b"\r\n" + b"".join(EVENTS)


def one_byte_each(raw: bytes) -> list[Piece]:
    return [(index, raw[index : index + 1]) for index in range(len(raw))]


@pytest.mark.parametrize("raw", [CHUNKED, PLAIN])
def test_a_token_arrives_with_the_byte_that_completes_its_event(raw: bytes) -> None:
    timeline = read_timeline(0, one_byte_each(raw))
    expected = [raw.index(data) + len(data) - 1 for data in (EVENTS[1], EVENTS[3])]
    assert list(timeline.event_ns) == expected
    assert (timeline.text, timeline.n_prompt_tokens, timeline.n_output_tokens) == ("one two", 9, 4)
    assert timeline.tokens_per_event == 2


def test_an_event_split_over_two_chunks_arrives_with_the_second() -> None:
    whole = text("split")
    first, second = chunk(whole[:20]), chunk(whole[20:])
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    rest = chunk(event(USAGE)) + chunk(event(b"[DONE]")) + b"0\r\n\r\n"
    assert read_timeline(0, [(1, head), (2, first), (3, second), (4, rest)]).event_ns == (3,)


def test_an_exchange_received_whole_has_one_time() -> None:
    assert read_timeline(0, [(5, CHUNKED)]).event_ns == (5, 5)


def test_an_answer_without_text_counts_its_end_as_the_first_token() -> None:
    raw = HEAD + b"\r\n" + text("", "stop") + event(USAGE) + event(b"[DONE]")
    assert len(read_timeline(0, [(7, raw)]).event_ns) == 1


@pytest.mark.parametrize("n_missing_bytes", [5, 6, 30, 200, len(CHUNKED) - len(HEAD) + 5])
def test_a_cut_off_answer_is_one_clear_error(n_missing_bytes: int) -> None:
    with pytest.raises(RemoteError):
        read_timeline(0, [(0, CHUNKED[:-n_missing_bytes])])


def test_a_refusal_carries_the_servers_words() -> None:
    with pytest.raises(RemoteError, match=r"answered 429.*queue is full"):
        read_timeline(0, [(0, b"HTTP/1.1 429 Too Many Requests\r\n\r\nqueue is full")])


def test_an_error_event_ends_the_measurement() -> None:
    raw = HEAD + b"\r\n" + text("one") + event({"error": {"message": "device lost"}})
    with pytest.raises(RemoteError, match="device lost"):
        read_timeline(0, [(0, raw)])


@pytest.mark.parametrize("body", [b"zz\r\nxx", b"-1\r\nxx\r\n0\r\n\r\n", b"5\r\nabc", b""])
def test_bad_chunk_framing_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteError, match="badly framed"):
        read_answer(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)
