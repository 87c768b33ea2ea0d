"""Tokens to text while they are generated, one token at a time.

It knows the vocabulary's bytes, nothing of stops or presentation. Text is given out at code point boundaries only, and what all
calls gave together is what `Tokenizer.decode` adds to the text of a prompt when these tokens follow it.
"""

from __future__ import annotations

import codecs

from helios.tokenizer.tokenizer import Tokenizer, unknown_token


class IncrementalDecoder:
    """Holds the bytes of an unfinished character, at most three. One for each sequence; `flush` makes it ready for another.

    A space that encoding adds in front of a text stands at the beginning of the prompt, so every space here is the model's own.
    """

    __slots__ = ("_table", "_unfinished")

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._table = tokenizer.byte_table(skip_special=skip_special)
        self._unfinished = b""

    def push(self, token_id: int) -> str:
        """The text that this token completes, often empty. InvalidValueError for an unknown id."""
        if not 0 <= token_id < len(self._table):
            raise unknown_token(token_id, len(self._table))
        spelled = self._unfinished + self._table[token_id]
        text, n_decoded = codecs.utf_8_decode(spelled, "replace", False)
        self._unfinished = spelled[n_decoded:]
        return text

    def flush(self) -> str:
        """End the text here: U+FFFD for a character that stayed unfinished, else nothing."""
        unfinished, self._unfinished = self._unfinished, b""
        return unfinished.decode(errors="replace")
