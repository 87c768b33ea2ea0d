"""The schema of a request body, taken from the code that reads it.

It knows how Fields is asked and nothing of any endpoint. A reader is run once over a small body that notes every question, so types
and ranges are those that are checked, and a field that is read cannot be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from helios.server.fields import Fields

Schema = dict[str, Any]


def noted_properties(read: Callable[[Fields], object], example: Mapping[str, Any]) -> dict[str, Schema]:
    """The fields that `read` asks of a body, each with its schema; {} for one whose value it looks at itself. `example` is a body
    that is read to the end and names the objects and flags whose inside is asked for only when they are there."""
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

    def boolean(self, name: str) -> bool:
        self._noted[name] = _or_null("boolean")
        return super().boolean(name)

    def integer(self, name: str, low: int, high: int) -> int | None:
        self._noted[name] = {**_or_null("integer"), "minimum": low, "maximum": high}
        return super().integer(name, low, high)

    def number(self, name: str, low: float, high: float) -> float | None:
        self._noted[name] = {**_or_null("number"), "minimum": low, "maximum": high}
        return super().number(name, low, high)

    def text(self, name: str) -> str | None:
        self._noted[name] = _or_null("string")
        return super().text(name)

    def list(self, name: str) -> list[Any] | None:
        self._noted[name] = _or_null("array")
        return super().list(name)

    def object(self, name: str) -> Fields | None:
        noted = self._noted.setdefault(name, {})
        noted |= _or_null("object")
        value = super().value(name)
        if value is None:
            return None
        inside = _NotedTable(value)
        inside.schemas = noted.setdefault("properties", inside.schemas)
        return _NotedFields(inside, f"{self._path}{name}.")


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}
