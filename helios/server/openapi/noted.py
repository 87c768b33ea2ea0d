"""The schema of a request body, taken from the code that reads it.

It knows how Fields is asked and nothing of any endpoint. A reader is run once over a small body that notes every question, so types
and ranges are those that are checked, and a field that is read cannot be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helios.server.fields import Fields
from helios.server.openapi.schema import FLAG, MAYBE_TEXT, TABLE, Schema, one_of, or_null


def noted_properties(read: Callable[[Fields], object], example: Mapping[str, Any]) -> dict[str, Schema]:
    """The fields that `read` asks of a body, each with its schema: {} for one whose value it looks at itself, an `enum` for one
    that may ask for nothing only. `example` is a body that is read to the end and names the objects and flags whose inside is asked
    for only when they are there."""
    table = _NotedTable(example)
    read(_NotedFields(table))
    return table.schemas


class _NotedTable(dict[str, Any]):
    """An object of the body. Every name that is looked up has a schema afterwards."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.schemas: dict[str, Schema] = {}

    def get(self, name: str, default: Any = None) -> Any:
        self.schemas.setdefault(name, {})
        return super().get(name, default)


class _NotedFields(Fields):
    """Notes what is asked, and answers it."""

    def __init__(self, table: _NotedTable, path: str = "") -> None:
        super().__init__(table, path)
        self._noted = table.schemas

    def _note(self, name: str, schema: Schema) -> None:
        if "enum" not in self._noted.get(name, {}):  # what may ask for nothing is read for its default only
            self._noted[name] = schema

    def is_neutral(self, name: str, values: Sequence[object]) -> bool:
        self._note(name, one_of([None, *values]))
        return super().is_neutral(name, values)

    def boolean(self, name: str) -> bool:
        self._note(name, FLAG)
        return super().boolean(name)

    def integer(self, name: str, low: int, high: int) -> int | None:
        self._note(name, {"type": ["integer", "null"], "minimum": low, "maximum": high})
        return super().integer(name, low, high)

    def number(self, name: str, low: float, high: float) -> float | None:
        self._note(name, {"type": ["number", "null"], "minimum": low, "maximum": high})
        return super().number(name, low, high)

    def text(self, name: str) -> str | None:
        self._note(name, MAYBE_TEXT)
        return super().text(name)

    def list(self, name: str) -> list[Any] | None:
        self._note(name, {"type": ["array", "null"]})
        return super().list(name)

    def object(self, name: str) -> Fields | None:
        value = super().value(name)
        if value is None:
            self._note(name, or_null(TABLE))
            return None
        inside = _NotedTable(value)
        inside.schemas = self._noted.get(name, {}).get("properties", inside.schemas)
        self._note(name, {**or_null(TABLE), "properties": inside.schemas})
        return _NotedFields(inside, f"{self._path}{name}.")
