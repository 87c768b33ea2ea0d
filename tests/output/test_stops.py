"""Stops over text: whatever the cuts, the first completed match ends the text and nothing of it is shown."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.output.stops import StopMatcher

stops_lists = st.lists(st.text("abé😀", min_size=1, max_size=5), max_size=4)
texts = st.text("abé😀c", max_size=40)


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    """What is shown of the pieces in all, and whether a stop was completed."""
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        visible, is_matched = matcher.push(piece)
        shown += visible
        if is_matched:
            assert matcher.push("more") == ("", True)
            assert matcher.flush() == ""
            return shown, True
    return shown + matcher.flush(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """The definition: the match that ends first, of those the longest; it and what follows are removed."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


@given(stops=stops_lists, text=texts, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_text_fed_whole_by_characters_and_in_any_pieces_is_the_same(
    stops: list[str], text: str, cuts: list[int]
) -> None:
    """STOP-2."""
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert run(stops, [text]) == run(stops, list(text)) == run(stops, pieces) == expected(stops, text)


@given(stops=stops_lists, text=texts)
def test_no_more_is_held_back_than_may_become_a_stop(stops: list[str], text: str) -> None:
    """STOP-2: exactly the longest end of the text that begins a stop."""
    matcher = StopMatcher(stops)
    shown, is_matched = matcher.push(text)
    if not is_matched:
        longest = max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        assert len(text) - len(shown) == longest


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        (["END"], ["E", "ND"], ""),
        (["END"], ["xE", "NDy"], "x"),
        (["END"], ["xEN"], "xEN"),
        (["aab"], ["aaab"], "a"),  # a failed start that holds another
        (["abc", "c"], ["abc"], ""),  # both end together: the longest
        (["bcd", "c"], ["abcd"], "ab"),  # the one that ends first
        ([], ["anything"], "anything"),
    ],
)
def test_known_cases(stops: list[str], pieces: list[str], shown: str) -> None:
    """Research item 8."""
    assert run(stops, pieces)[0] == shown


def test_a_long_self_similar_stop_takes_linear_work() -> None:
    """A stop of 4096 bytes against text that nearly matches everywhere; quadratic work would take minutes."""
    matcher = StopMatcher(["a" * 4095 + "b"])
    shown, is_matched = matcher.push("a" * 500_000)
    assert not is_matched
    assert len(shown) == 500_000 - 4095
    assert matcher.push("b") == ("", True)
