"""Calls written out as events: a name once and whole, then the JSON of the arguments in fragments.

It knows the request's tools and no markup. The fragments of one call join to the exact JSON of its arguments, in the order in
which the model gave them; of a parameter given twice the first stands, because it has been given out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from helios.output.coercion import ParameterType, json_of_text, parameter_type
from helios.output.events import OutputEvent, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from helios.output.json_text import refuse_constant
from helios.output.states import ValueKind


class CallWriter:
    """The calls of one answer in turn. `tools` are the registered names with the JSON Schema of their parameters."""

    def __init__(
        self, tools: Mapping[str, Mapping[str, Any]], ids: Callable[[], str], emit: Callable[[OutputEvent], None]
    ) -> None:
        self._tools = tools
        self._ids = ids
        self._emit = emit
        self._index = -1
        self._is_open = False
        self._parameters: Mapping[str, Any] = {}
        self._keys: set[str] = set()
        self._is_empty = True
        self._given: list[str] = []
        self._value: _Text | _Typed | None = None

    def begin(self, name: str) -> None:
        """A call begins. One without a name is none, and nothing of it is written."""
        self.abandon()
        if not name:
            return
        self._index += 1
        self._is_open = self._is_empty = True
        self._keys = set()
        self._given = []
        self._parameters = self._tools.get(name, {})
        self._emit(ToolCallStart(self._index, self._ids(), name))

    def begin_value(self, key: str, kind: ValueKind) -> None:
        self._value = None
        if not self._is_open or key in self._keys:
            return
        self._write(("," if self._keys else "{") + json.dumps(key, ensure_ascii=False) + ":")
        self._keys.add(key)
        declared = parameter_type(self._parameters, key)
        if declared is None:
            is_text = kind is not ValueKind.JSON
        else:
            is_text = kind is ValueKind.TEXT or declared.is_text
        self._value = _Text(self._write) if is_text else _Typed(self._write, declared or ParameterType())

    def text(self, text: str) -> None:
        """More of the parameter's text."""
        if self._value is not None:
            self._value.push(text)

    def end_value(self) -> None:
        if self._value is not None:
            self._value.end()
            self._value = None

    def arguments(self, text: str) -> None:
        """More of the arguments as JSON that the model gave for all of them."""
        if text:
            self._given.append(text)
            self._write(text)

    def end(self) -> None:
        """The call is complete, unless what was given as its JSON is none."""
        if not self._is_open:
            return
        if self._given and not _is_json("".join(self._given)):
            self.abandon()
            return
        if self._is_empty:
            self._write("{}")
        elif self._keys:
            self._write("}")
        self._emit(ToolCallEnd(self._index))
        self._is_open = False

    def abandon(self) -> None:
        """The call stays incomplete."""
        self._is_open = False
        self._value = None

    def reopened(self, events: Iterable[OutputEvent]) -> list[OutputEvent]:
        """Of the events so far those of the open call, which counts as this answer's first from now on; none when none is open."""
        kept: list[OutputEvent] = [
            replace(event, index=0)
            for event in events
            if self._is_open and isinstance(event, (ToolCallStart, ToolArgumentsDelta)) and event.index == self._index
        ]
        self._index = 0 if self._is_open else -1
        return kept

    def _write(self, fragment: str) -> None:
        if self._is_open and fragment:
            self._is_empty = False
            self._emit(ToolArgumentsDelta(self._index, fragment))


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


class _Text:
    """A parameter whose text is a string: written as it comes."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        write('"')

    def push(self, text: str) -> None:
        self._write(json.dumps(text, ensure_ascii=False)[1:-1])

    def end(self) -> None:
        self._write('"')


class _Typed:
    """A parameter that is known only when its text is whole."""

    def __init__(self, write: Callable[[str], None], kind: ParameterType) -> None:
        self._write = write
        self._kind = kind
        self._parts: list[str] = []

    def push(self, text: str) -> None:
        self._parts.append(text)

    def end(self) -> None:
        self._write(json_of_text("".join(self._parts), self._kind))
