"""A parameter's raw text as JSON, by what the tool's schema says of the parameter.

It knows types, not constraints: what fits no type of the schema becomes a string, so that no call is lost. Text of a parameter
that is a string and nothing else is taken as it stands; JSON keeps its spelling of numbers and loses its blanks.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from helios.output.json_text import refuse_constant, without_surrogates

_MOST_DIGITS = 4000  # Python turns no longer decimal into an integer
_MOST_LITERAL_CHARACTERS = 100_000
_MOST_SCHEMAS = (
    200  # of one parameter, every visit counted: references may lead in circles, and alternatives double at each turn
)
_INDEX = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
_INTEGER = re.compile(r"(-?\d+)(\.0+)?", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_STRING_OR_BLANKS = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|[ \t\r\n]+')


@dataclass(frozen=True, slots=True)
class ParameterType:
    """The JSON types that a parameter may have, none for any; and its possible values where the schema lists them."""

    types: frozenset[str] = frozenset()
    members: tuple[Any, ...] = ()

    @property
    def is_text(self) -> bool:
        """Nothing but strings: the raw text is the value."""
        return self.types == {"string"}


def parameter_type(parameters: Mapping[str, Any], key: str) -> ParameterType | None:
    """What the schema of a tool's parameters says of one, None when it says nothing."""
    properties = parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, dict) else None
    if schema is True:
        return ParameterType()
    if not isinstance(schema, dict):
        schema = parameters.get("additionalProperties")
    return _SchemaReader(parameters).type_of(schema) if isinstance(schema, dict) else None


def json_of_text(text: str, kind: ParameterType) -> str:
    """The JSON of a parameter's text: the first type of the schema that it fits, else a string."""
    stripped = text.strip()
    if not kind.types:
        found = _minified(stripped, object)
        return _quoted(text) if found is None else found
    if text in (member for member in kind.members if isinstance(member, str)):
        return _quoted(text)
    candidates = (_CONVERSIONS[name](stripped) for name in _CONVERSIONS if name in kind.types)
    return next((candidate for candidate in candidates if candidate is not None), _quoted(text))


class _SchemaReader:
    """Finds the types of one parameter within a tool's schema; what it has no patience for says nothing."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._n_left = _MOST_SCHEMAS

    def type_of(self, schema: Any) -> ParameterType:
        self._n_left -= 1
        if not isinstance(schema, dict) or self._n_left < 0:
            return ParameterType()
        if isinstance(schema.get("$ref"), str):
            return self.type_of(self._resolved(schema))
        members = tuple(schema["enum"]) if isinstance(schema.get("enum"), list) else ()
        if "const" in schema:
            members = (schema["const"],)
        types = _named(schema.get("type")) or frozenset(map(_type_of_value, members))
        if not types:
            types, members = self._combined(schema)
        if not types:
            types = frozenset(name for word, name in (("properties", "object"), ("items", "array")) if word in schema)
        if types and schema.get("nullable") is True:
            types |= {"null"}
        return ParameterType(types, members)

    def _combined(self, schema: dict[str, Any]) -> tuple[frozenset[str], tuple[Any, ...]]:
        """What alternatives allow together, or the first of several parts that says a type."""
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                return _union(map(self.type_of, schema[word]))
        parts = schema["allOf"] if isinstance(schema.get("allOf"), list) else []
        return next(((each.types, each.members) for each in map(self.type_of, parts) if each.types), (frozenset(), ()))

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema behind a local reference, what stands beside it added. A reference that leads nowhere says nothing."""
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        target = _pointed(schema["$ref"], self._root)
        return {**target, **beside} if isinstance(target, dict) else beside


def _union(alternatives: Iterable[ParameterType]) -> tuple[frozenset[str], tuple[Any, ...]]:
    """What any of them allows. One that allows everything makes the others say nothing."""
    types: frozenset[str] = frozenset()
    members: tuple[Any, ...] = ()
    for each in alternatives:
        if not each.types:
            return frozenset(), ()
        types |= each.types
        members += each.members
    return types, members


def _pointed(reference: str, root: Mapping[str, Any]) -> Any:
    """What a JSON pointer in a URI fragment leads to, None when it is remote or leads nowhere."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping):
            found = found.get(name)
        else:
            return None
    return found


def _named(types: Any) -> frozenset[str]:
    names = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    return frozenset(name for name in names if isinstance(name, str) and (name in _CONVERSIONS or name == "string"))


def _type_of_value(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "string")


def _null(text: str) -> str | None:
    return "null" if text.lower() in ("null", "none") else None


def _boolean(text: str) -> str | None:
    lowered = text.lower()
    return lowered if lowered in ("true", "false") else None


def _integer(text: str) -> str | None:
    match = _INTEGER.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    return None if match is None else str(int(match[1]))


def _number(text: str) -> str | None:
    return text if _NUMBER.fullmatch(text) else None


def _object(text: str) -> str | None:
    return "{}" if not text else _minified(text, dict) or _python_literal(text, dict)


def _array(text: str) -> str | None:
    return "[]" if not text else _minified(text, list) or _python_literal(text, list)


# In the order in which they are tried. A number comes first: as an integer it would lose what makes it none.
_CONVERSIONS: Mapping[str, Callable[[str], str | None]] = {
    "null": _null,
    "boolean": _boolean,
    "number": _number,
    "integer": _integer,
    "object": _object,
    "array": _array,
}


def _minified(text: str, expected: type) -> str | None:
    """JSON without blanks between its parts, spelled as it was; None when it is none, or of another type."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
    return _STRING_OR_BLANKS.sub(lambda match: match[1] or "", text) if isinstance(value, expected) else None


def _python_literal(text: str, expected: type) -> str | None:
    """The JSON of an object or array that the model wrote as Python does."""
    if len(text) > _MOST_LITERAL_CHARACTERS:
        return None
    try:
        value = ast.literal_eval(text)
        if not isinstance(value, expected):
            return None
        return without_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
