"""Delimiters: the leftmost, whole or unfinished, whatever is in front."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.output.pattern import GAP, NAME, Delimiter, Scanner

CALL = Delimiter(("<call>", GAP, "<f=", NAME, ">"), newlines_before=2)
CLOSER = Delimiter(("</call>",), newlines_before=1)
LATE = Delimiter((GAP, "<z>"))
SCANNER = Scanner([CALL, CLOSER])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", None),
        ("a\n\n\n<call> <f=x>b", (2, 16, 0)),
        ("a</call>", (1, 8, 1)),
        ("a\n\n</call>", (2, 10, 1)),
        ("a</cal", (1, 6, None)),
        ("a\n", (1, 2, None)),
        ("a\n\n\n\n", (3, 5, None)),
        ("a<call>\n <f=x", (1, 13, None)),
        ("a<call> <f= x>", None),
        ("a<call> b</call>", (9, 16, 1)),
        ("<call" + " " * 70 + "</call>", (75, 82, 1)),
        ("<call>" + " " * 65 + "<f=x>", None),
    ],
)
def test_known_texts(text: str, expected: tuple[int, int, int | None] | None) -> None:
    found = SCANNER.find(text)
    assert (None if found is None else (found.start, found.end, found.index)) == expected


def test_captures_are_the_named_parts() -> None:
    found = SCANNER.find("<call><f=get_x>")
    assert found is not None
    assert found.captures == {"name": "get_x"}


def test_blanks_in_front_belong_to_a_delimiter_that_begins_with_a_gap() -> None:
    scanner = Scanner([LATE])
    found = scanner.find("a \n<z>")
    assert found is not None
    assert (found.start, found.end) == (1, 6)
    assert scanner.find("a b") is None


def test_the_first_listed_of_two_at_one_place_wins_and_is_waited_for() -> None:
    scanner = Scanner([Delimiter(("<a>", "<b>")), Delimiter(("<a>",))])
    for text, expected in (("<a>", None), ("<a><", None), ("<a><b>", 0), ("<a>x", 1)):
        found = scanner.find(text)
        assert found is not None
        assert found.index == expected


def test_no_delimiters_find_nothing() -> None:
    assert Scanner([]).find("<call>\n") is None


@given(text=st.text(st.sampled_from("<>/calf=x \n"), max_size=30))
def test_what_is_plain_stays_plain_whatever_follows(text: str) -> None:
    """A hold begins where the first delimiter of a longer text might: never before, so that no text is silenced, never behind."""
    found = SCANNER.find(text)
    n_plain = len(text) if found is None else found.start
    for more in ("", "x", "\n", "<", ">", "</call>", "call>", "<call><f=x>", "f=x>", "=x>", "x>"):
        longer = SCANNER.find(text + more)
        assert longer is None or longer.start >= n_plain
        if found is not None and found.index is not None:
            assert longer == found
