"""The bytes around a stream's texts: the documents that carry them differ in nothing else, so the rest is encoded once.

It knows JSON and no field names: the frame is taken from a document as its endpoint wrote it. What `data` gives is, byte for byte,
what encoding the whole document would have given.
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

from helios.errors import InternalError
from helios.server.exchange import to_json

MARK = "\0\0text\0\0"  # stands for the text; nothing else in a response has control characters
_MARK_JSON = encode_basestring(MARK).encode()


class TextFrame:
    """What stands before and behind the text in a document that has MARK for it."""

    __slots__ = ("_after", "_before")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._before, mark, self._after = to_json(document).partition(_MARK_JSON)
        if not mark or _MARK_JSON in self._after:
            raise InternalError("a document of a stream does not have its text once")

    def data(self, text: str) -> bytes:
        """The encoded document with `text`."""
        return b"%b%b%b" % (self._before, encode_basestring(text).encode(errors="replace"), self._after)
