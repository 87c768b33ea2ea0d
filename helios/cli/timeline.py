"""When each token of a streamed answer arrived, read from the raw bytes of the HTTP exchange after it is over.

Pure: it knows no socket and no clock, only pieces of bytes with the time at which each was received. A token's time is the
time of the piece that completed its event, however the pieces were cut.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helios.errors import RemoteError

Piece = tuple[int, bytes]  # (received at, nanoseconds; the bytes)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One answered request. `n_prompt_tokens` and `n_output_tokens` are the server's own count (`usage`).

    `event_ns` has one time for each event that carried text, of one token or several; an answer without any text has the
    time of its end.
    """

    started_ns: int
    event_ns: tuple[int, ...]
    n_prompt_tokens: int
    n_output_tokens: int
    text: str

    @property
    def first_token_s(self) -> float:
        return (self.event_ns[0] - self.started_ns) / 1e9

    @property
    def tokens_per_event(self) -> float:
        return self.n_output_tokens / len(self.event_ns)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer. `segments` are the body's parts, each with its offset in the raw bytes."""

    status: int
    segments: tuple[tuple[int, bytes], ...]

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.segments)


def read_answer(raw: bytes) -> Answer:
    """Split an answer that ended with its connection. Raises RemoteError when it is cut off or badly framed."""
    head, separator, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    status = lines[0].split(" ")[1:2]
    if not separator or not status or not status[0].isdecimal():
        raise RemoteError(f"the server closed the connection after {len(raw):,} bytes, before the end of the headers")
    is_chunked = any(line.startswith("transfer-encoding:") and "chunked" in line for line in lines[1:])
    segments = tuple(_chunks(raw, len(head) + 4)) if is_chunked else ((len(head) + 4, body),)
    return Answer(int(status[0]), segments)


def read_timeline(started_ns: int, pieces: Sequence[Piece]) -> Timeline:
    """The timeline of one complete exchange. Raises RemoteError for anything but a whole OpenAI event stream."""
    answer = read_answer(b"".join(data for _, data in pieces))
    if answer.status != 200:
        raise RemoteError(f"the server answered {answer.status}: {answer.body[:300].decode(errors='replace')}")
    return _timeline(started_ns, answer.body, _Arrivals(pieces, answer.segments))


class _Arrivals:
    """Body offset -> time of arrival, through the chunk framing that lies between body and pieces."""

    def __init__(self, pieces: Sequence[Piece], segments: Sequence[tuple[int, bytes]]) -> None:
        self.received_ns = [at_ns for at_ns, _ in pieces]
        self.raw_ends = list(itertools.accumulate(len(data) for _, data in pieces))
        self.starts = [start for start, _ in segments]
        self.body_ends = list(itertools.accumulate(len(data) for _, data in segments))
        self.lengths = [len(data) for _, data in segments]

    def at(self, body_end: int) -> int:
        """When the body's first body_end bytes had all arrived."""
        segment = bisect_left(self.body_ends, body_end)
        inside = body_end - (self.body_ends[segment] - self.lengths[segment])
        return self.received_ns[bisect_left(self.raw_ends, self.starts[segment] + inside)]


def _chunks(raw: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    """(offset in raw, data) of each chunk of a chunked body (RFC 9112 7.1)."""
    while True:
        line_end = raw.find(b"\r\n", position)
        try:
            size_bytes = int(raw[position:line_end].split(b";")[0], 16) if line_end >= 0 else -1
        except ValueError:
            size_bytes = -1
        start = line_end + 2
        if size_bytes < 0 or start + size_bytes > len(raw):
            raise RemoteError(f"the answer is cut off or badly framed at byte {position:,} of {len(raw):,}")
        if size_bytes == 0:
            return
        yield start, raw[start : start + size_bytes]
        position = start + size_bytes + 2


def _timeline(started_ns: int, body: bytes, arrivals: _Arrivals) -> Timeline:
    event_ns: list[int] = []
    text: list[str] = []
    usage: dict[str, int] | None = None
    is_done = False
    position = 0
    while (event_end := body.find(b"\n\n", position)) >= 0:
        payload = body[position:event_end].removeprefix(b"data:").strip()
        position = event_end + 2
        if payload == b"[DONE]":
            is_done = True
        elif payload.startswith(b"{"):
            event = json.loads(payload)
            if "error" in event:
                raise RemoteError(f"the server ended the stream with an error: {event['error']}")
            usage = event.get("usage") or usage
            choices = event.get("choices", ())
            piece = "".join(choice.get("delta", {}).get("content") or "" for choice in choices)
            is_finish = any(choice.get("finish_reason") for choice in choices)
            if piece or (is_finish and not event_ns):
                event_ns.append(arrivals.at(position))
                text.append(piece)
    if not is_done or usage is None or not event_ns:
        raise RemoteError(
            f"the stream is not complete: {len(event_ns):,} events with text, "
            f"usage {'given' if usage else 'missing'}, {'[DONE] seen' if is_done else 'no [DONE]'}"
        )
    return Timeline(
        started_ns, tuple(event_ns), int(usage["prompt_tokens"]), int(usage["completion_tokens"]), "".join(text)
    )
