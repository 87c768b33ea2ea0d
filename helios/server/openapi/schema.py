"""The few JSON schemas that every other one is made of.

It knows JSON Schema and no document. What is made here is open: a field that is read nowhere is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
TEXT: Schema = {"type": "string", "minLength": 1}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
FLAG: Schema = {"type": ["boolean", "null"]}
COUNT: Schema = {"type": "integer", "minimum": 0}
TABLE: Schema = {"type": "object"}
NULL: Schema = {"type": "null"}


def array(items: Schema, **limits: int) -> Schema:
    """A list of `items`; `limits` are `minItems` and `maxItems`."""
    return {"type": "array", "items": items, **limits}


def or_null(schema: Schema) -> Schema:
    """The same of a schema with one type, or null."""
    return {**schema, "type": [schema["type"], "null"]}


def one_of(values: Iterable[object]) -> Schema:
    """One of these values."""
    return {"enum": list(values)}


def any_of(schemas: Iterable[Schema]) -> Schema:
    """What keeps to one of these at least."""
    return {"anyOf": list(schemas)}


def table(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields; it may have others."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def typed(kind: str, schema: Schema) -> Schema:
    """The same of an object that says of itself that it is of this type."""
    return {
        **schema,
        "properties": {"type": {"const": kind}, **schema["properties"]},
        "required": ["type", *schema["required"]],
    }
