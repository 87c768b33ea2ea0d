"""Figures, ratios and the table."""

from __future__ import annotations

import pytest

from helios.cli.figures import BY_NAME, decode_tokens_per_s, meanings, ratios, table
from helios.cli.measure import SPEED_FIGURES
from helios.cli.timeline import Timeline
from helios.errors import RemoteError

MS = 1_000_000


def stream(first_ms: int, step_ms: int, n_events: int, tokens_per_event: int = 1) -> Timeline:
    times = tuple((first_ms + step_ms * index) * MS for index in range(n_events))
    return Timeline(0, times, 10, n_events * tokens_per_event, "")


def test_one_stream_counts_the_steps_between_its_first_and_last_token() -> None:
    assert decode_tokens_per_s([stream(100, 5, 11)]) == pytest.approx(200)


def test_streams_count_only_while_all_of_them_decode() -> None:
    """One begins late, one ends early: the window is 100..150 ms, 10 tokens of each."""
    assert decode_tokens_per_s([stream(0, 5, 100), stream(100, 5, 100), stream(50, 5, 21)]) == pytest.approx(600)


def test_an_event_of_several_tokens_counts_as_several() -> None:
    assert decode_tokens_per_s([stream(0, 10, 11, tokens_per_event=4)]) == pytest.approx(400)


def test_answers_that_never_overlap_are_an_error() -> None:
    with pytest.raises(RemoteError, match="did not overlap"):
        decode_tokens_per_s([stream(0, 5, 3), stream(100, 5, 3)])


def test_a_ratio_above_one_is_always_better_for_the_product() -> None:
    product = {"decode_1": [200.0], "ttft": [0.1], "rss": [50.0]}
    peer = {"decode_1": [100.0], "ttft": [0.2], "rss": [100.0]}
    assert {name: spread.median for name, spread in ratios(product, peer).items()} == {
        "decode_1": 2,
        "ttft": 2,
        "rss": 2,
    }


def test_the_ratio_is_the_median_of_the_rounds_and_not_of_the_columns() -> None:
    """A machine that halves its speed in one round moves both columns, not the ratio."""
    spread = ratios({"decode_8": [400.0, 200.0, 390.0]}, {"decode_8": [100.0, 50.0, 130.0]})["decode_8"]
    assert (spread.median, spread.low, spread.high) == (4, 3, 4)


def test_a_figure_that_one_side_lacks_has_no_ratio() -> None:
    assert not ratios({"startup": [1.0]}, {"rss": [1.0]})


def test_the_table_prints_units_and_spreads() -> None:
    values = {"ttft": [0.05, 0.07, 0.06], "rss": [float(1 << 30)]}
    lines = table({"product": values, "peer": {"ttft": [0.12] * 3}}, ratios({"ttft": [0.06]}, {"ttft": [0.12]}))
    rows = [line.split("  ") for line in lines.splitlines()]
    assert [cell.strip() for cell in rows[1] if cell.strip()] == [
        "time to first token, ms",
        "60.0 (50.0..70.0)",
        "120 (120..120)",
        "2.00 (2.00..2.00)",
    ]
    assert "1,024" in lines.splitlines()[2]
    assert len({len(line) for line in lines.splitlines()}) == 1


def test_a_meaning_stands_once_and_the_peer_only_where_there_is_one() -> None:
    lines = meanings(("decode_1", "decode_4", "chats_32"), has_peer=False).splitlines()
    assert [line.partition(":")[0].strip() for line in lines] == ["decode, 1 at once", "32 chats, one system prompt"]
    assert "peer" not in "".join(lines)
    assert "the peer computes" in meanings(("chats_32",), has_peer=True)


def test_names_say_what_the_json_promises() -> None:
    decode = {"decode_1", "decode_4", "decode_8", "decode_16"}
    alone = decode | {"prefill_128", "prefill_512", "ttft", "prefix_ttft", "chats_32"}
    assert set(SPEED_FIGURES) == alone
    assert set(BY_NAME) == alone | {
        "gap_4000",
        "busy_1",
        "busy_8",
        "startup",
        "rss",
        "rss_q8",
    }
