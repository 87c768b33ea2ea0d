"""The figures of a measurement: what each is called and means, and the arithmetic from timelines to a table.

Pure: it measures nothing. A ratio is always oriented so that more is better for Helios, and always the median of ratios
taken within one round, because machines change speed from one round to the next.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helios.cli.timeline import Timeline
from helios.errors import UnmeasurableError


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. `scale` turns the measured unit (tokens/s, seconds, bytes, shares) into the printed one."""

    name: str
    title: str
    unit: str
    is_more_better: bool
    scale: float
    meaning: str
    peer_meaning: str = ""  # where the peer's figure is another one


DECODE_STREAMS = (1, 4, 8, 16)
BUSY_STREAMS = (1, 8)
PREFILL_TOKENS = (128, 512)
FIRST_TOKEN_PROMPT = 100
DECODE_PROMPT = 32
PREFIX_PROMPT, PREFIX_QUESTION = 1024, 16  # tokens of the prompt, and how many words of its end are new
CHATS, CHAT_PROMPT, CHAT_QUESTION, CHAT_ANSWER = 32, 424, 16, 32
LONG_PROMPT = 4000
MEMORY_STREAMS, MEMORY_PROMPT, MEMORY_ANSWER = 8, 992, 32

FIGURES = (
    *(
        Figure(
            f"decode_{n}",
            f"decode, {n} at once",
            "tok/s",
            True,
            1.0,
            "all tokens of that many concurrent streams a second",
        )
        for n in DECODE_STREAMS
    ),
    *(
        Figure(
            f"prefill_{n}", f"prefill, {n} tokens", "tok/s", True, 1.0, "prompt tokens divided by time to first token"
        )
        for n in PREFILL_TOKENS
    ),
    Figure(
        "ttft",
        "time to first token",
        "ms",
        False,
        1e3,
        f"a prompt of {FIRST_TOKEN_PROMPT} tokens, nothing else running",
    ),
    Figure(
        "prefix_ttft",
        "first token, prefix sent before",
        "ms",
        False,
        1e3,
        f"a prompt of {PREFIX_PROMPT:,} tokens, of which the server has seen the first 1,000 in another request",
    ),
    Figure(
        "chats_32",
        f"{CHATS} chats, one system prompt",
        "tok/s",
        True,
        1.0,
        f"answer tokens a second, all sent at once: 400 tokens in common, questions of {CHAT_QUESTION} words, answers of "
        f"{CHAT_ANSWER} tokens",
        "the peer computes the common part once, copies it, and takes 16 chats at a time in step",
    ),
    Figure(
        "gap_4000",
        f"largest gap, {LONG_PROMPT:,}-token prompt",
        "ms",
        False,
        1e3,
        f"between two tokens of a running stream while a prompt of {LONG_PROMPT:,} tokens is read",
        "for the peer, which does not do both at once, its time for the prompt",
    ),
    *(
        Figure(
            f"busy_{n}",
            f"speed kept beside a busy loop, {n} at once",
            "%",
            True,
            100.0,
            "decode beside one more process that computes all the time, divided by decode without it",
        )
        for n in BUSY_STREAMS
    ),
    Figure("startup", "start-up", "s", False, 1.0, "from spawn to the first token of a short prompt"),
    Figure(
        "rss",
        "peak memory",
        "MiB",
        False,
        1 / (1 << 20),
        "resident at most, mapped files included, after "
        f"{MEMORY_STREAMS} streams of {MEMORY_PROMPT} prompt and {MEMORY_ANSWER} new tokens",
    ),
    Figure(
        "rss_q8",
        "peak memory, 8-bit cache",
        "MiB",
        False,
        1 / (1 << 20),
        "the same with --kv q8",
        "for the peer the figure above, its cache stays F16",
    ),
)
BY_NAME = {figure.name: figure for figure in FIGURES}


def decode_tokens_per_s(timelines: Sequence[Timeline]) -> float:
    """Tokens a second of all streams together while every one of them was decoding.

    The window opens at the last of the first tokens and closes at the first of the last ones; what arrived in (open, close]
    counts. An event may carry several tokens, so each counts as its stream's mean.
    """
    opened_ns = max(timeline.event_ns[0] for timeline in timelines)
    closed_ns = min(timeline.event_ns[-1] for timeline in timelines)
    if closed_ns <= opened_ns:
        raise UnmeasurableError(
            f"the {len(timelines)} answers did not overlap: one ended before another began",
            hint="a server that answers fewer at once lets the others wait",
        )
    n_tokens = sum(
        timeline.tokens_per_event
        * (bisect_right(timeline.event_ns, closed_ns) - bisect_right(timeline.event_ns, opened_ns))
        for timeline in timelines
    )
    return n_tokens / (closed_ns - opened_ns) * 1e9


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of one row's rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


Rounds = Mapping[str, Sequence[float]]  # figure name -> one value a round


def ratios(product: Rounds, peer: Rounds) -> dict[str, Spread]:
    """Round-by-round ratio of each figure that both have, more being better for the product."""
    result = {}
    for figure in FIGURES:
        if figure.name in product and figure.name in peer:
            pairs = zip(product[figure.name], peer[figure.name], strict=True)
            result[figure.name] = Spread.of(
                [ours / theirs if figure.is_more_better else theirs / ours for ours, theirs in pairs]
            )
    return result


def table(columns: Mapping[str, Rounds], ratio: Mapping[str, Spread]) -> str:
    """The rows as text: each column's median with its spread, then the ratio with its own."""
    header = ["", *columns, *(["ratio"] if ratio else [])]
    rows = [header]
    for figure in FIGURES:
        if any(figure.name in rounds for rounds in columns.values()):
            cells = [_cell(figure, rounds.get(figure.name)) for rounds in columns.values()]
            if ratio:
                spread = ratio.get(figure.name)
                cells.append(f"{spread.median:.2f} ({spread.low:.2f}..{spread.high:.2f})" if spread else "-")
            rows.append([f"{figure.title}, {figure.unit}", *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def meanings(names: Sequence[str], *, has_peer: bool) -> str:
    """What was measured: one line for figures with the same meaning, under the title of the first."""
    titles: dict[str, str] = {}
    for figure in FIGURES:
        if figure.name in names:
            of_peer = f"; {figure.peer_meaning}" if has_peer and figure.peer_meaning else ""
            titles.setdefault(figure.meaning + of_peer, figure.title)
    return "\n".join(f"  {title}: {meaning}" for meaning, title in titles.items())


def _cell(figure: Figure, values: Sequence[float] | None) -> str:
    if not values:
        return "-"
    spread = Spread.of([value * figure.scale for value in values])
    digits = 2 if spread.median < 10 else 1 if spread.median < 100 else 0
    return f"{spread.median:,.{digits}f} ({spread.low:,.{digits}f}..{spread.high:,.{digits}f})"
