"""The control tokens of a prompt: what the template may spell and people may not.

It knows the vocabulary and the markers of the answer's syntax, no template. Text of people never yields a special token, nor the
token of a marker, however it is spelled; the template's own spellings yield exactly their tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helios.prompt.shield import ControlSpellings
from helios.tokenizer.tokenizer import Tokenizer


class ControlTokens:
    """Made once for a model. `markers` are spellings that delimit reasoning and tool calls."""

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str] = ()) -> None:
        single = {marker for marker in markers if tokenizer.single_token(marker) is not None}
        special = set(_special_spellings(tokenizer))
        self._tokenizer = tokenizer
        self._plain = tokenizer.guarded(single - special) if single - special else tokenizer
        self.spellings = ControlSpellings(special | single)

    def encode(self, text: str) -> list[int]:
        """The template's text, in which people's text spells nothing."""
        return self._tokenizer.encode(text, allow_special=True)

    def check_length(self, text: str, most_tokens: int) -> None:
        """Raise ContextLengthError where a prompt of this text surely has more tokens."""
        self._tokenizer.check_length(text, most_tokens)

    def encode_plain(self, text: str) -> list[int]:
        """People's text, whatever it spells."""
        return self._plain.encode(text, allow_special=False)


def _special_spellings(tokenizer: Tokenizer) -> Iterator[str]:
    for token_id in sorted(tokenizer.special_tokens):
        yield tokenizer.token_bytes(token_id).decode("utf-8", errors="replace")
