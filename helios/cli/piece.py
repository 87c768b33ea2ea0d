"""A piece of an answer on its way to a terminal, and how it looks there.

It knows text and nothing of who said it. Reasoning is set apart from the answer: faint on a terminal, in brackets elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FAINT, _PLAIN = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` may be empty: the answer goes on."""

    text: str
    is_reasoning: bool = False


def shown(pieces: Iterable[Piece]) -> Iterator[tuple[str, str]]:
    """For each piece what is to be printed, and what it adds to the answer itself. Reasoning adds nothing."""
    before, behind = (_FAINT, _PLAIN + "\n") if sys.stdout.isatty() else ("[", "]\n")
    is_reasoning = False
    try:
        for piece in pieces:
            if piece.text:
                turn = "" if piece.is_reasoning == is_reasoning else before if piece.is_reasoning else behind
                is_reasoning = piece.is_reasoning
                yield turn + piece.text, "" if is_reasoning else piece.text
    finally:
        if is_reasoning:
            print(behind, end="", flush=True)
