"""What has to be settled for an object as a whole: how many properties it may have, and whether a document of it can end.

It knows enforceable schemas and what the grammar library can count. It counts properties that are all required, or one more than
those; and it does not notice that a map's key was there before, so a minimum that only different keys would reach is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SCALARS = frozenset(("null", "boolean", "integer", "number", "string"))


def object_limits(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rewrite `minProperties` and `maxProperties` where other keywords say the same; yields what cannot be held, and why."""
    properties, required = node.get("properties", {}), node.get("required", [])
    is_closed = node.get("additionalProperties") is False and not node.get("patternProperties")
    optional = [name for name in properties if name not in required]
    least, most = node.get("minProperties", 0), node.get("maxProperties")
    if least <= len(required):
        node.pop("minProperties", None)
        least = 0
    if is_closed and least == len(properties) > 0:
        node["required"], optional, least = list(properties), [], 0
        node.pop("minProperties", None)
    if is_closed and most is not None and most >= len(properties):
        del node["maxProperties"]
        most = None
    if is_closed and most is not None and most == len(required) and optional:
        node["properties"] = {name: properties[name] for name in properties if name in required}
        optional, most = [], None
        del node["maxProperties"]
    n_more = least - len(required)
    is_counted = is_closed and n_more <= 1 and (most is None or most == len(required) + 1)
    if n_more > 1 or (n_more == 1 and optional and not is_counted):
        yield (
            "minProperties",
            f"is {least}: beyond the required properties one more can be enforced, where no others are allowed",
        )
    if most is not None and optional and not is_counted:
        yield "maxProperties", f"is {most}, which cannot be enforced beside optional properties"


def has_end(root: Any, definitions: Mapping[str, Any]) -> bool:
    """Whether a document of `root` can be finite: what refers to itself must have a way out."""
    ended: set[str] = set()
    while True:
        more = {name for name in definitions.keys() - ended if _ends(definitions[name], ended)}
        if not more:
            return _ends(root, ended)
        ended |= more


def _ends(node: Any, ended: set[str]) -> bool:
    if isinstance(node, bool):
        return True  # `false` has no document at all, which the library notices
    if "$ref" in node and node["$ref"].rpartition("/")[2] not in ended:
        return False
    if "anyOf" in node and not any(_ends(each, ended) for each in node["anyOf"]):
        return False
    if not all(_ends(each, ended) for each in node.get("allOf", ())):
        return False
    types = node.get("type", "null")
    names = [types] if isinstance(types, str) else types
    return not _SCALARS.isdisjoint(names) or any(_container_ends(node, name, ended) for name in names)


def _container_ends(node: Mapping[str, Any], name: str, ended: set[str]) -> bool:
    if name == "object":
        properties, others = node.get("properties", {}), node.get("additionalProperties", True)
        return all(_ends(properties.get(key, others), ended) for key in node.get("required", ()))
    prefix, n_least = node.get("prefixItems", ()), node.get("minItems", 0)
    items = [node["items"]] if "items" in node and n_least > len(prefix) else []
    return all(_ends(each, ended) for each in [*prefix[:n_least], *items])
