"""Tokens to text while they are generated, one token at a time.

It knows the vocabulary's bytes, nothing of stops or presentation. Text is given out at code point boundaries only, and what all
calls gave together is what `Tokenizer.decode` gives for all tokens at once.
"""

from __future__ import annotations

import codecs

from helios.tokenizer.tokenizer import Tokenizer, unknown_token

_UTF8 = codecs.getincrementaldecoder("utf-8")


class IncrementalDecoder:
    """Holds the bytes of an unfinished character, at most three. One for each sequence; `flush` makes it ready for another."""

    __slots__ = ("_drops_space", "_has_dummy_prefix", "_table", "_utf8")

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._table = tokenizer.byte_table(skip_special=skip_special)
        self._utf8 = _UTF8("replace")
        self._has_dummy_prefix = tokenizer.has_dummy_prefix
        self._drops_space = self._has_dummy_prefix

    def push(self, token_id: int) -> str:
        """The text that this token completes, often empty. InvalidValueError for an unknown id."""
        if not 0 <= token_id < len(self._table):
            raise unknown_token(token_id, len(self._table))
        piece = self._table[token_id]
        if self._drops_space and piece:
            self._drops_space = False
            piece = piece.removeprefix(b" ")
        return self._utf8.decode(piece)

    def interrupt(self) -> str:
        """Something that is no text comes between: what was unfinished stays so, and no later space is the added one."""
        self._drops_space = False
        return self._utf8.decode(b"", final=True)

    def flush(self) -> str:
        """End the sequence: U+FFFD for a character that stayed unfinished, else nothing."""
        self._drops_space = self._has_dummy_prefix
        return self._utf8.decode(b"", final=True)
