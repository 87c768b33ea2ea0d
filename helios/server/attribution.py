"""Which tokens a part of the answer's text came from, byte by byte, whatever was parsed out around it.

It knows text and tokens, no syntax: the parser gives text in the order of the tokens, and what it left out is skipped. The bytes of
the parts that were given for some texts, joined, are those texts (but for bytes that are no UTF-8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from helios.scheduler.request import Token
from helios.tokenizer.incremental import IncrementalDecoder
from helios.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenPart:
    """What a token gave to a text: all of its bytes, or those on this side of a marker or a stop."""

    token: Token
    spelled: bytes


class OpenToken(NamedTuple):
    """The end of a text that is the beginning of a token's: so many characters, of these tokens, the last of which goes on."""

    n_characters: int
    tokens: tuple[Token, ...]


@dataclass(slots=True)
class _Group:
    """Tokens that together make whole characters: the last completes what the others began."""

    parts: list[TokenPart]
    text: str
    start: int


class Attribution:
    """One answer's tokens on their way to being text. `push` each token, then `take` what was shown of them.

    With `keeps_all`, tokens that are not shown are parts without bytes of the text behind them, or of the `rest`.
    """

    def __init__(self, tokenizer: Tokenizer, *, keeps_all: bool = False) -> None:
        self._tokenizer = tokenizer
        self._keeps_all = keeps_all
        self._decoder = IncrementalDecoder(tokenizer, skip_special=False)
        self._unfinished: list[TokenPart] = []
        self._groups: list[_Group] = []
        self._text = ""
        self._n_gone = 0
        self._last_kind: object = None

    def push(self, token: Token) -> None:
        """The next token of the answer."""
        spelled = self._tokenizer.token_bytes(token.token_id)
        self._unfinished.append(TokenPart(token, spelled))
        self._add(self._decoder.push(token.token_id))

    def finish(self) -> None:
        """No more tokens come: a character that is unfinished stays so."""
        self._add(self._decoder.flush())

    def take(self, texts: Sequence[tuple[str, object]]) -> list[list[TokenPart]]:
        """The tokens that each of some (text, kind) came from: all texts, in order, that the last token made certain. Kinds tell
        texts apart that markers separate."""
        starts = self._starts(texts)
        taken: list[list[TokenPart]] = []
        n_taken = self._n_gone
        for (text, _), start in zip(texts, starts, strict=True):
            parts: list[TokenPart] = []
            if start >= 0:
                first, last = self._n_gone + start, self._n_gone + start + len(text)
                parts = [*self._unshown(n_taken, first), *self._between(first, last)]
                n_taken = last
            taken.append(parts)
        ends = [start + len(text) for (text, _), start in zip(texts, starts, strict=True) if start >= 0]
        if ends:
            self._last_kind = texts[-1][1]
            self._forget(ends[-1])
        return taken

    @property
    def open_token(self) -> OpenToken | None:
        """Where the last text ends within a token: what it may still go on with, unless a marker or a stop begins there."""
        if not self._groups or self._groups[0].start >= self._n_gone:
            return None
        group = self._groups[0]
        return OpenToken(self._n_gone - group.start, tuple(part.token for part in group.parts))

    def rest(self) -> list[TokenPart]:
        """With `keeps_all`, the tokens behind the last text that was shown. Call it in the end."""
        return self._unshown(self._n_gone, self._n_gone + len(self._text))

    def _unshown(self, start: int, end: int) -> list[TokenPart]:
        """The tokens of all characters from `start` to `end`, which are not shown."""
        if not self._keeps_all:
            return []
        groups = [group for group in self._groups if start <= group.start and group.start + len(group.text) <= end]
        return [TokenPart(part.token, b"") for group in groups for part in group.parts]

    def _starts(self, texts: Sequence[tuple[str, object]]) -> list[int]:
        """Where each text begins, -1 for one that no token spelled. What goes on from the last one begins at once; anything else
        follows markup, so it is looked for from the end, where markup is over."""
        starts: list[int] = []
        limit = len(self._text)
        for text, _ in reversed(texts):
            start = self._text.rfind(text, 0, limit)
            starts.append(start)
            limit = limit if start < 0 else start
        starts.reverse()
        if texts and texts[0][1] == self._last_kind and self._text.startswith(texts[0][0]):
            starts[0] = 0
        return starts

    def _add(self, text: str) -> None:
        if text:
            self._groups.append(_Group(self._unfinished, text, self._n_gone + len(self._text)))
            self._text += text
            self._unfinished = []

    def _between(self, start: int, end: int) -> Iterator[TokenPart]:
        for group in self._groups:
            first, last = max(start - group.start, 0), min(end - group.start, len(group.text))
            if first < last and group.parts:  # none when a token begins a second character that is never finished
                yield from _parts_of(group, first, last)

    def _forget(self, n_characters: int) -> None:
        """What came before the end of a text that was taken was left out of it, for good."""
        self._text = self._text[n_characters:]
        self._n_gone += n_characters
        self._groups = [group for group in self._groups if group.start + len(group.text) > self._n_gone]


def _parts_of(group: _Group, first: int, last: int) -> Iterator[TokenPart]:
    """The parts of a group's tokens that make its characters from `first` to `last`."""
    *beginnings, final = group.parts
    if (first, last) == (0, len(group.text)):
        yield from group.parts
        return
    spelled = group.text[first:last].encode()
    if first == 0:
        yield from beginnings
        spelled = spelled[sum(len(part.spelled) for part in beginnings) :]
    if spelled:
        yield TokenPart(final.token, spelled)
