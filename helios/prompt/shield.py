"""Keeps text that people and tools wrote from being read as control tokens, through a template that may do anything with it.

It knows spellings only, no tokenizer and no template. Each character that begins a control spelling in such a text is
replaced by a private-use character that occurs nowhere else; after rendering, every spelling still in the text is the
template's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from helios.errors import InvalidValueError

_PRIVATE_USE = range(0xE000, 0xF900)


class ControlSpellings:
    """How a vocabulary's control tokens are spelled, and where those spellings are in a text. Immutable; made once a model."""

    def __init__(self, spellings: Iterable[str]) -> None:
        ordered = sorted({spelling for spelling in spellings if spelling}, key=len, reverse=True)
        self._longest = len(ordered[0]) if ordered else 0
        self._prefixes = {spelling[:end] for spelling in ordered for end in range(1, len(spelling))}
        self._suffixes = {spelling[start:] for spelling in ordered for start in range(1, len(spelling))}
        self._joined = "\0".join(ordered)
        first = "".join(re.escape(character) for character in sorted({spelling[0] for spelling in ordered}))
        alternatives = "|".join(map(re.escape, ordered))
        # The character class spares the alternatives at most positions; `(?!)` matches nowhere.
        self._starts = re.compile(f"(?=[{first}])(?={alternatives})" if ordered else "(?!)")
        self._whole = re.compile(f"({alternatives})" if ordered else "(?!)")

    def split(self, text: str) -> list[str]:
        """`text` cut at its spellings: plain, spelling, plain, ..., plain; the even ones may be empty."""
        return self._whole.split(text)

    def risky_positions(self, text: str) -> set[int]:
        """Where a character has to change so that `text` holds no spelling, whatever text is put before and after it."""
        positions = {match.start() for match in self._starts.finditer(text)}
        for length in range(1, min(len(text), self._longest) + 1):
            if text[len(text) - length :] in self._prefixes:
                positions.add(len(text) - length)
            if text[:length] in self._suffixes:
                positions.add(0)
        if 0 < len(text) <= self._longest and text in self._joined:
            positions.add(0)
        return positions


class Shield:
    """One rendering's substitutions. Texts keep their length, so a template may trim, split and slice them as ever."""

    def __init__(self, spellings: ControlSpellings, texts: Iterable[str], template: str) -> None:
        used = set(template).union(*map(set, texts))
        self._free: Iterator[str] = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        self._stand_ins: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._spellings = spellings

    @property
    def is_used(self) -> bool:
        """True when a text held anything that had to be replaced."""
        return bool(self._stand_ins)

    def cover(self, text: str) -> str:
        """`text` with no control spelling in it, nor a part of one at its edges that its neighbour could complete."""
        positions = self._spellings.risky_positions(text)
        if not positions:
            return text
        characters = list(text)
        for position in positions:
            characters[position] = self._stand_in(characters[position])
        return "".join(characters)

    def cover_value(self, value: Any, spared: Collection[str] = ()) -> Any:
        """A JSON value with all its texts covered, keys as well. `spared` keys, and `spared` values of a key among them, stay."""
        if isinstance(value, str):
            return self.cover(value)
        if isinstance(value, Mapping):
            return {self._cover_key(key, spared): self._cover_item(key, item, spared) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.cover_value(item, spared) for item in value]
        return value

    def _cover_key(self, key: str, spared: Collection[str]) -> str:
        return key if key in spared else self.cover(key)

    def _cover_item(self, key: str, item: Any, spared: Collection[str]) -> Any:
        is_spared = isinstance(item, str) and item in spared and key in spared
        return item if is_spared else self.cover_value(item, spared)

    def take_mark(self) -> str:
        """A character that stands nowhere in this rendering, for a place to be found again."""
        mark = next(self._free, None)
        if mark is None:
            raise _no_characters_left()
        return mark

    def to_ascii(self, text: str) -> str:
        """JSON text with every character beyond ASCII escaped, as `json.dumps` does, but what was replaced still to be put back."""
        return "".join(character if character < "\x80" else self._escaped(character) for character in text)

    def _escaped(self, character: str) -> str:
        original = self._originals.get(character, character)
        return character if original < "\x80" else json.dumps(original)[1:-1]

    def uncover(self, text: str) -> str:
        """The characters that were replaced, put back."""
        return text.translate({ord(stand_in): character for stand_in, character in self._originals.items()})

    def _stand_in(self, character: str) -> str:
        if character not in self._stand_ins:
            stand_in = next(self._free, None)
            if stand_in is None:
                raise _no_characters_left()
            self._stand_ins[character] = stand_in
            self._originals[stand_in] = character
        return self._stand_ins[character]


def _no_characters_left() -> InvalidValueError:
    return InvalidValueError(
        f"the messages use all {len(_PRIVATE_USE):,} private-use characters beside control tokens", param="messages"
    )
