"""Tokens to text while they are generated, one token at a time.

It knows the vocabulary's bytes, nothing of stops or presentation. Text is given out at code point boundaries only, and what all
calls gave together is what `Tokenizer.decode` adds to the text of a prompt when these tokens follow it.
"""

from __future__ import annotations

import codecs

from helios.tokenizer.tokenizer import Tokenizer, unknown_token

_UTF8 = codecs.getincrementaldecoder("utf-8")


class IncrementalDecoder:
    """Holds the bytes of an unfinished character, at most three. One for each sequence; `flush` makes it ready for another.

    A space that encoding adds in front of a text stands at the beginning of the prompt, so every space here is the model's own.
    """

    __slots__ = ("_table", "_utf8")

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._table = tokenizer.byte_table(skip_special=skip_special)
        self._utf8 = _UTF8("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, often empty. InvalidValueError for an unknown id."""
        if not 0 <= token_id < len(self._table):
            raise unknown_token(token_id, len(self._table))
        return self._utf8.decode(self._table[token_id])

    def flush(self) -> str:
        """End the text here: U+FFFD for a character that stayed unfinished, else nothing."""
        return self._utf8.decode(b"", final=True)
