"""Whether no document fits two schemas at once, which makes `oneOf` an `anyOf`.

It knows enforceable schemas and proves by types, literals and the properties that tell objects apart. Where it finds no proof
there may still be none in common: the answer False means only that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 6
_ALL = frozenset(("null", "boolean", "number", "string", "array", "object"))


def are_disjoint(one: Any, other: Any, definitions: Mapping[str, Any], depth: int = 0) -> bool:
    """True where it is proved that no value fits both."""
    if one is False or other is False:
        return True
    if one is True or other is True or depth > _MAX_DEPTH:
        return False
    for first, second in ((one, other), (other, one)):
        if "$ref" in first:
            target = definitions[first["$ref"].rpartition("/")[2]]
            if are_disjoint(target, second, definitions, depth + 1):
                return True
        if "anyOf" in first and all(are_disjoint(each, second, definitions, depth + 1) for each in first["anyOf"]):
            return True
        if any(are_disjoint(each, second, definitions, depth + 1) for each in first.get("allOf", ())):
            return True
    types = _types(one) & _types(other)
    if not types:
        return True
    literals, others = _literals(one), _literals(other)
    if literals is not None and others is not None:
        return literals.isdisjoint(others)
    return types == {"object"} and _are_told_apart(one, other, definitions, depth)


def _are_told_apart(one: Any, other: Any, definitions: Mapping[str, Any], depth: int) -> bool:
    """By a property that one of them requires."""
    first, second = one.get("properties", {}), other.get("properties", {})
    for name in [*one.get("required", ()), *other.get("required", ())]:
        here, there = _property(one, name, first), _property(other, name, second)
        if are_disjoint(here, there, definitions, depth + 1):
            return True
    return False


def _property(node: Mapping[str, Any], name: str, properties: Mapping[str, Any]) -> Any:
    if name in properties:
        return properties[name]
    is_closed = node.get("additionalProperties") is False and not node.get("patternProperties")
    return not is_closed


def _types(node: Mapping[str, Any]) -> frozenset[str]:
    if "type" not in node:
        return _ALL
    names = [node["type"]] if isinstance(node["type"], str) else node["type"]
    return frozenset("number" if name == "integer" else name for name in names)


def _literals(node: Mapping[str, Any]) -> frozenset[str] | None:
    """The values that a schema lists, as JSON; None where it lists none."""
    if "const" not in node and "enum" not in node:
        return None
    return frozenset(map(_written, node["enum"] if "enum" in node else [node["const"]]))


def _written(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)
