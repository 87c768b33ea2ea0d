"""Which tokens of a vocabulary are markup, and text in which each such token is one private character.

It knows spellings and tokens, no syntax. The private characters are lone surrogates, which decoded text never contains: so a
delimiter that is a token is found only as that token, its plain spelling stays text, and both are searched alike (FE-3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from helios.tokenizer.tokenizer import Tokenizer

_FIRST, _LAST = 0xD800, 0xDFFF
SURROGATES = f"{chr(_FIRST)}-{chr(_LAST)}"  # for character classes


def is_markup(character: str) -> bool:
    """Whether a character of marked text stands for a token."""
    return chr(_FIRST) <= character <= chr(_LAST)


class Markup:
    """The markup tokens of one syntax. Spellings are registered while the syntax is built; after that nothing changes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters: dict[int, str] = {}
        self._spellings: dict[int, str] = {}
        self._shown: dict[int, str] = {}

    @property
    def characters(self) -> Mapping[int, str]:
        """The private character of each markup token, by token id."""
        return self._characters

    @property
    def has_shown_specials(self) -> bool:
        """Whether some markup is special tokens that are shown where they delimit nothing."""
        return any(
            self._tokenizer.is_special(token_id) and self._shown[ord(character)]
            for token_id, character in self._characters.items()
        )

    def marker(self, spelling: str) -> str:
        """A whole delimiter as it appears in marked text: one private character when the tokenizer makes it one token."""
        token_id = self._tokenizer.single_token(spelling)
        return self.tag(spelling) if token_id is None else self._character(token_id, spelling, is_control=False)

    def tag(self, text: str) -> str:
        """Markup text as it appears in marked text: the added tokens in it as private characters, the rest as it is."""
        return self._marked(text, is_control=False)

    def control(self, text: str) -> str:
        """Like `tag`, for text whose special tokens are never shown, wherever they come up."""
        return self._marked(text, is_control=True)

    def spelled(self, marked: str) -> str:
        """Marked text as the tokens spell it."""
        return marked.translate(self._spellings)

    def shown(self, marked: str) -> str:
        """Marked text as it is presented where it delimits nothing: spelled, but for special tokens of controls."""
        return marked.translate(self._shown)

    def _marked(self, text: str, *, is_control: bool) -> str:
        added = self._tokenizer.added_tokens
        names = sorted((name for name in added if name in text and not name.isspace()), key=len, reverse=True)
        if not names:
            return text
        parts = re.split("(" + "|".join(map(re.escape, names)) + ")", text)
        return "".join(
            self._character(added[part], part, is_control=is_control) if part in added else part for part in parts
        )

    def _character(self, token_id: int, spelling: str, *, is_control: bool) -> str:
        if token_id not in self._characters:
            code = _FIRST + len(self._characters)
            self._characters[token_id] = chr(code)
            self._spellings[code] = spelling
            self._shown[code] = "" if is_control and self._tokenizer.is_special(token_id) else spelling
        return self._characters[token_id]
