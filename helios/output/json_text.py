"""JSON text taken in piece by piece: where one value ends, and whether it still is JSON.

It knows RFC 8259 and builds nothing. What it accepts to the end is a JSON value, but for raw control characters in strings, which
models write and `escaped` mends.
"""

from __future__ import annotations

import enum
import re
from typing import NoReturn

_PRIMITIVE = re.compile(r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_PRIMITIVE_CHARACTERS = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_BLANKS = frozenset(" \t\r\n")
_HEX = frozenset("0123456789abcdefABCDEF")
_MOST_NESTED = 200  # a reader with the usual limits can still take it


class Progress(enum.Enum):
    """What a character did to the value."""

    MORE = enum.auto()
    DONE = enum.auto()  # the character is the value's last
    DONE_BEFORE = enum.auto()  # the value ended in front of it
    BROKEN = enum.auto()  # this is no JSON


class _Expects(enum.Enum):
    VALUE = enum.auto()
    VALUE_OR_END = enum.auto()
    KEY = enum.auto()
    KEY_OR_END = enum.auto()
    COLON = enum.auto()
    COMMA = enum.auto()


class JsonScanner:
    """One JSON value. `push` its characters in turn until one does not answer MORE. `is_in_string`: the next is inside a string."""

    def __init__(self) -> None:
        self._expects = _Expects.VALUE
        self._open: list[str] = []
        self._primitive = ""
        self.is_in_string = False
        self._is_escaped = False
        self._n_hex = 0

    def push(self, character: str) -> Progress:
        if self.is_in_string:
            return self._in_string(character)
        if self._primitive:
            if character in _PRIMITIVE_CHARACTERS:
                self._primitive += character
                return Progress.MORE
            if not _PRIMITIVE.fullmatch(self._primitive):
                return Progress.BROKEN
            self._primitive = ""
            if self._value_ended() is Progress.DONE:
                return Progress.DONE_BEFORE
        if character in _BLANKS:
            return Progress.MORE
        return self._structure(character)

    def _in_string(self, character: str) -> Progress:
        if self._n_hex:
            self._n_hex -= 1
            return Progress.MORE if character in _HEX else Progress.BROKEN
        if self._is_escaped:
            self._is_escaped = False
            self._n_hex = 4 if character == "u" else 0
            return Progress.MORE if character in '"\\/bfnrtu' else Progress.BROKEN
        self._is_escaped = character == "\\"
        if character != '"':
            return Progress.MORE
        self.is_in_string = False
        if self._expects is _Expects.COLON:
            return Progress.MORE
        return self._value_ended()

    def _structure(self, character: str) -> Progress:
        expects = self._expects
        if character in "}]":
            may_end = expects in (_Expects.COMMA, _Expects.KEY_OR_END, _Expects.VALUE_OR_END)
            if not may_end or not self._open or self._open.pop() != character:
                return Progress.BROKEN
            return self._value_ended()
        if character == ":" and expects is _Expects.COLON:
            self._expects = _Expects.VALUE
        elif character == "," and expects is _Expects.COMMA:
            self._expects = _Expects.KEY if self._open[-1] == "}" else _Expects.VALUE
        elif character == '"' and expects in (_Expects.KEY, _Expects.KEY_OR_END):
            self.is_in_string, self._expects = True, _Expects.COLON
        elif expects in (_Expects.VALUE, _Expects.VALUE_OR_END):
            return self._begin_value(character)
        else:
            return Progress.BROKEN
        return Progress.MORE

    def _begin_value(self, character: str) -> Progress:
        self._expects = _Expects.VALUE
        if character == '"':
            self.is_in_string = True
        elif character in "{[":
            self._open.append("}" if character == "{" else "]")
            self._expects = _Expects.KEY_OR_END if character == "{" else _Expects.VALUE_OR_END
        elif character in _PRIMITIVE_CHARACTERS:
            self._primitive = character
        else:
            return Progress.BROKEN
        return Progress.MORE if len(self._open) <= _MOST_NESTED else Progress.BROKEN

    def _value_ended(self) -> Progress:
        self._expects = _Expects.COMMA
        return Progress.MORE if self._open else Progress.DONE


def escaped(character: str) -> str:
    """A character inside of a JSON string, spelled as JSON wants control characters spelled."""
    return f"\\u{ord(character):04x}" if character < " " else character


def refuse_constant(name: str) -> NoReturn:
    """For `json.loads`, which takes NaN and the infinities unless it is told what to do."""
    raise ValueError(f"{name} is no JSON")


def without_surrogates(text: str) -> str:
    """Text in which half a surrogate pair, which JSON and Python can spell, is the replacement character, so that it has bytes."""
    return _SURROGATE.sub("\ufffd", text)
