"""Schemas whose documents hold no closing tag, for JSON that stands between tags of plain text.

It knows enforceable schemas and one rule: `</` begins a closing tag. A reader of tags looks for the first closer that a legal tag
follows, so JSON in which such text stood in a string could be cut there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from helios.errors import InvalidValueError

_SAFE = "^(?:[^<]|<+[^</])*<*$"
_ANY = "any_value"
_TYPES = ["null", "boolean", "number", "string", "array", "object"]


def opaque(schema: Any, definitions: Mapping[str, Any], param: str) -> dict[str, Any]:
    """`schema` with its definitions, in which no string and no property name has a closing tag."""
    root = _opaque(schema, param)
    anything = {"type": _TYPES, "items": _reference(), "patternProperties": {_SAFE: _reference()}}
    table = {name: _opaque(each, param) for name, each in definitions.items()}
    return {**root, "$defs": {**table, _ANY: {**anything, "pattern": _SAFE, "additionalProperties": False}}}


def _reference() -> dict[str, Any]:
    return {"$ref": f"#/$defs/{_ANY}"}


def _opaque(schema: Any, param: str) -> Any:
    if schema is False:
        return False
    if schema is True or not schema:
        return _reference()
    result = dict(schema)
    for keyword in ("anyOf", "allOf", "prefixItems"):
        if keyword in schema:
            result[keyword] = [_opaque(each, param) for each in schema[keyword]]
    for keyword in ("properties", "patternProperties"):
        if keyword in schema:
            result[keyword] = {name: _opaque(each, param) for name, each in schema[keyword].items()}
    _check_literals([schema.get("const"), schema.get("enum"), list(schema.get("properties", ()))], param)
    if schema.keys() & {"const", "enum", "$ref", "anyOf"}:
        return result
    names = schema.get("type", _TYPES)
    types = [names] if isinstance(names, str) else names
    if "string" in types and "pattern" in schema:
        result["allOf"] = [*result.get("allOf", ()), {"type": names, "pattern": _SAFE}]
    elif "string" in types:
        result["pattern"] = _SAFE
    if "array" in types:
        result["items"] = _opaque(schema.get("items", True), param)
    if "object" in types and schema.get("additionalProperties") is not False:
        result["patternProperties"] = result.get("patternProperties") or {
            _SAFE: _opaque(schema.get("additionalProperties", True), param)
        }
        result["additionalProperties"] = False
    return result


def _check_literals(values: list[Any], param: str) -> None:
    if "</" in json.dumps([value for value in values if value is not None]):
        raise InvalidValueError(f"{param} has a text with a closing tag, which this model cannot write", param=param)
