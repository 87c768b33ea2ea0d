"""Delimiters as patterns that know when a text may still become one.

It knows regular expressions, no syntax and no state. Of several delimiters the leftmost wins, of those at one place the first
listed, and where the text ends inside of one nothing behind its start is decided: so how a text is cut cannot matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from helios.output.markup import SURROGATES

_MOST_BLANKS = 64  # in a gap; more is text, so that a hold stays short


@dataclass(frozen=True, slots=True)
class Capture:
    """Text inside of a delimiter that is wanted: 1 to `n_most` of the characters of a class."""

    name: str
    characters: str
    n_most: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Any number of blanks of a class."""

    characters: str


GAP = Gap(r"\s")
INLINE_GAP = Gap(r"[ \t]")
NAME = Capture("name", rf'[^\s<>"{SURROGATES}]', 128)
KEY = Capture("key", rf'[^<>"\n{SURROGATES}]', 256)

Element = str | Gap | Capture


@dataclass(frozen=True, slots=True)
class Delimiter:
    """Elements one after another. Up to `newlines_before` newlines in front of the first belong to it."""

    elements: tuple[Element, ...]
    newlines_before: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """Where plain text ends. `index` names the delimiter there, from `start` to `end`; None when it is not whole yet."""

    start: int
    end: int
    index: int | None
    captures: dict[str, str]


class Scanner:
    """Finds the first of several delimiters, whole or unfinished at the end of the text."""

    def __init__(self, delimiters: Sequence[Delimiter]) -> None:
        self._pattern = re.compile("|".join(_pattern(index, each) for index, each in enumerate(delimiters)))
        first = "".join(sorted({_first_characters(each) for each in delimiters}))
        self._first = re.compile(
            f"[{first}]" if first else r"(?!)"
        )  # what no delimiter begins with is passed over quickly

    def find(self, text: str) -> Found | None:
        """The leftmost delimiter, None when all of the text is plain."""
        first = self._first.search(text)
        match = None if first is None else self._pattern.search(text, first.start())
        if match is None:
            return None
        group = match.lastgroup
        if group is None or not group.startswith("end"):
            return None if match.start() == match.end() else Found(match.start(), match.end(), None, {})
        index = group.removeprefix("end")
        captures = {
            name.removesuffix("_" + index): value
            for name, value in match.groupdict().items()
            if value is not None and name.endswith("_" + index)
        }
        return Found(match.start(), match.end(), int(index), captures)


def _first_characters(delimiter: Delimiter) -> str:
    """The characters that `delimiter` can begin with, for a character class."""
    first = delimiter.elements[0]
    if isinstance(first, Gap):
        return first.characters.strip("[]") + _first_characters(Delimiter(delimiter.elements[1:]))
    if isinstance(first, Capture):
        raise ValueError("a delimiter begins with text")
    return ("\\n" if delimiter.newlines_before else "") + re.escape(first[0])


def _pattern(index: int, delimiter: Delimiter) -> str:
    """One delimiter, whole (then the group `end<index>` took part) or any beginning of it that ends the text."""
    newlines = rf"\n{{0,{delimiter.newlines_before}}}" if delimiter.newlines_before else ""
    return newlines + _rest(index, delimiter.elements)


def _rest(index: int, elements: tuple[Element, ...]) -> str:
    if not elements:
        return f"(?P<end{index}>)"
    head, rest = elements[0], _rest(index, elements[1:])
    if isinstance(head, Gap):
        return f"{head.characters}{{0,{_MOST_BLANKS}}}+{rest}"
    if isinstance(head, Capture):
        return rf"(?:(?P<{head.name}_{index}>{head.characters}{{1,{head.n_most}}}+){rest}|\Z)"
    beginnings = "|".join(re.escape(head[:length]) for length in range(len(head) - 1, -1, -1))
    return rf"(?:{re.escape(head)}{rest}|(?:{beginnings})\Z)"
