"""Calls that are JSON: an object with name and arguments, or a list of such objects, taken in piece by piece.

It knows the fields and writes the call as soon as its name is whole; arguments that come before the name wait for it. What turns
out to be no call before anything was written is handed back as text.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable

from helios.output.arguments import CallWriter
from helios.output.json_text import JsonScanner, Progress, escaped, without_surrogates
from helios.output.markup import is_markup

_ARGUMENT_KEYS = ("arguments", "parameters")
_BLANKS = " \t\r\n"


class _At(enum.Enum):
    ITEM = enum.auto()
    AFTER_ITEM = enum.auto()
    KEY = enum.auto()
    KEY_OR_END = enum.auto()
    COLON = enum.auto()
    VALUE = enum.auto()
    COMMA = enum.auto()
    DONE = enum.auto()
    BROKEN = enum.auto()


class JsonCalls:
    """One JSON text of calls behind `opener`, whose last character begins it. `spelled` turns markup characters into text."""

    def __init__(self, writer: CallWriter, spelled: Callable[[str], str], opener: str) -> None:
        self._writer = writer
        self._spelled = spelled
        self._at = _At.ITEM
        self._is_list = False
        self._raw = [opener]
        self._has_written = False
        self._begin_call()
        self._push(opener[-1])

    @property
    def is_done(self) -> bool:
        return self._at is _At.DONE

    @property
    def is_broken(self) -> bool:
        return self._at is _At.BROKEN

    @property
    def refused_text(self) -> str:
        """Opener and all of a broken text when nothing of it became a call, else nothing."""
        return "".join(self._raw) if self.is_broken and not self._has_written else ""

    def push(self, marked: str) -> int:
        """Take in text up to the end of the JSON; how many characters that was."""
        n_taken = 0
        for character in marked:
            n_taken += 1
            for each in self._spelled(character) if is_markup(character) else character:
                self._push(each)
            if not self._has_written:
                self._raw.append(character)
            if self._at in (_At.DONE, _At.BROKEN):
                break
        self._write_arguments()
        return n_taken

    def _begin_call(self) -> None:
        self._name = ""
        self._key = ""
        self._scanner: JsonScanner | None = None
        self._text: list[str] = []
        self._arguments: list[str] = []
        self._has_arguments = False
        self._is_streaming = False
        self._is_begun = False

    def _push(self, character: str) -> None:
        if self._scanner is not None:
            was_in_string = self._scanner.is_in_string
            progress = self._scanner.push(character)
            if progress is Progress.BROKEN:
                self._fail()
                return
            if progress is not Progress.DONE_BEFORE:
                self._text.append(escaped(character) if was_in_string else character)
                if progress is Progress.DONE:
                    self._value_ended()
                return
            self._value_ended()
        if character not in _BLANKS:
            self._structure(character)

    def _structure(self, character: str) -> None:
        """A character of the call's object, or of the list around it, that is not inside of a value."""
        at = self._at
        if at is _At.VALUE or (character == '"' and at in (_At.KEY, _At.KEY_OR_END)):
            self._begin_value(character)
        elif at is _At.ITEM and character == "{":
            self._begin_call()
            self._at = _At.KEY_OR_END
        elif at is _At.ITEM and character == "[" and not self._is_list:
            self._is_list = True
        elif character == "]" and self._is_list and at in (_At.ITEM, _At.AFTER_ITEM):
            self._at = _At.DONE
        elif at is _At.AFTER_ITEM and character == ",":
            self._at = _At.ITEM
        elif at is _At.COLON and character == ":":
            self._at = _At.VALUE
        elif at is _At.COMMA and character == ",":
            self._at = _At.KEY
        elif at in (_At.COMMA, _At.KEY_OR_END) and character == "}":
            self._end_call()
        else:
            self._fail()

    def _begin_value(self, character: str) -> None:
        self._scanner, self._text = JsonScanner(), [character]
        self._is_streaming = self._at is _At.VALUE and self._key in _ARGUMENT_KEYS and character == "{"
        if self._scanner.push(character) is Progress.BROKEN:
            self._fail()

    def _value_ended(self) -> None:
        text = "".join(self._text)
        is_key = self._at in (_At.KEY, _At.KEY_OR_END)
        self._at = _At.COLON if is_key else _At.COMMA
        self._scanner = None
        if is_key:
            self._key = json.loads(text)
            return
        if self._key in _ARGUMENT_KEYS:
            self._arguments += self._text if self._is_streaming else [_arguments_of(text)]
        elif self._key == "name" and text.startswith('"'):
            self._name = without_surrogates(json.loads(text))
        self._text, self._is_streaming = [], False
        self._has_arguments |= self._key in _ARGUMENT_KEYS
        self._begin_writing()

    def _begin_writing(self) -> None:
        """Begin the call once it has its name; with its arguments nothing of it is missing, whatever follows."""
        if self._name and not self._is_begun:
            self._is_begun = self._has_written = True
            self._raw.clear()
            self._writer.begin(self._name)
        if self._is_begun and self._has_arguments:
            self._write_arguments()
            self._writer.end()

    def _write_arguments(self) -> None:
        """Give out what is certain of the arguments, when the call has its name."""
        if self._is_streaming:
            self._arguments += self._text
            self._text = []
        if self._is_begun and self._arguments:
            self._writer.arguments("".join(self._arguments))
            self._arguments = []

    def _end_call(self) -> None:
        self._write_arguments()
        if not self._is_begun:
            self._fail()
            return
        self._writer.end()
        self._at = _At.AFTER_ITEM if self._is_list else _At.DONE
        self._is_begun = False

    def _fail(self) -> None:
        self._write_arguments()
        self._at, self._scanner = _At.BROKEN, None
        self._writer.abandon()


def _arguments_of(text: str) -> str:
    """The arguments' object where they came as something else: as a string that spells it, or as null."""
    if text == "null":
        return "{}"
    return without_surrogates(json.loads(text)) if text.startswith('"') else text
