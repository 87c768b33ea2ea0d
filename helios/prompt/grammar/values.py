"""The value of a tool's parameter where markup surrounds it: strings as they are, everything else as JSON.

It knows enforceable schemas and where a value ends, no tool and no tag. What is written is read back as a value of the schema: a
string that another type could be taken for is not offered beside that type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.grammar.lark import ANY_TEXT, LarkText, any_of, quoted, schema_pattern
from helios.prompt.grammar.opaque import opaque

# The first character of a text that is no JSON and no Python literal.
_PLAIN = r"/[^-+0-9.{\[\"tfnTFN\s](.|\n)*/"
_STRING_WORDS = frozenset(("type", "enum", "const", "pattern", "minLength", "maxLength", "allOf"))


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """Where values stand. `end` is the markup behind one; a string holds none of `exclude`. `param` names the tool's schema."""

    end: str
    exclude: tuple[str, ...]
    param: str


def string_value(lark: LarkText, place: ValuePlace, schema: Mapping[str, Any], *, is_plain: bool) -> str:
    """An expression for a raw string of `schema` and its end. `is_plain`: another type stands beside it."""
    literals = [schema["const"]] if "const" in schema else schema.get("enum")
    if literals is not None:
        texts = [text for text in literals if isinstance(text, str)]
        for text in texts:
            if any(mark in text for mark in (place.end.strip(), *place.exclude)) or text != text.strip("\n"):
                raise InvalidValueError(
                    f"{place.param} has the text {text[:60]!r}, which is this model's markup", param=place.param
                )
        return f"{any_of([quoted(text) for text in texts])} {lark.markup(place.end)}"
    for keyword in schema.keys() - _STRING_WORDS:
        raise InvalidValueError(
            f"{place.param}: the schema keyword {keyword!r} of a text is not supported", param=place.param
        )
    body = " & ".join(_limits(schema, place.param)) or (_PLAIN if is_plain else ANY_TEXT)
    if is_plain and body != _PLAIN:
        body += f" & {_PLAIN}"
    exclude = place.exclude if body in (ANY_TEXT, _PLAIN) else (place.end.strip(), *place.exclude)
    return lark.until(place.end, body=body, exclude=exclude)


def _limits(schema: Mapping[str, Any], param: str) -> Iterator[str]:
    """What a text must match, as terminals' bodies."""
    if "pattern" in schema:
        yield schema_pattern(whole(schema["pattern"], param), param)
    if "minLength" in schema or "maxLength" in schema:
        yield rf"/(.|\n){{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}/"
    for each in schema.get("allOf", ()):
        yield from _limits(each, param)


def whole(regex: str, param: str) -> str:
    """A regular expression for the whole of a text in which JSON Schema would search for `regex`."""
    has_start = regex.startswith("^")
    has_end = regex.endswith("$") and not _ends_escaped(regex[:-1])
    inner = regex[1 if has_start else 0 : len(regex) - 1 if has_end else None]
    if _anchors(inner) or ((has_start or has_end) and _has_outer_choice(inner)):
        raise InvalidValueError(
            f"{param} has the pattern {regex[:80]!r}, whose anchors are inside of it",
            hint="put ^ first and $ last",
            param=param,
        )
    return ("" if has_start else r"(?:.|\n)*") + f"(?:{inner})" + ("" if has_end else r"(?:.|\n)*")


_TOKENS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def _anchors(regex: str) -> bool:
    return any(token in "^$" for token in _TOKENS.findall(regex))


def _ends_escaped(regex: str) -> bool:
    return (len(regex) - len(regex.rstrip("\\"))) % 2 == 1


def _has_outer_choice(regex: str) -> bool:
    depth = 0
    for token in _TOKENS.findall(regex):
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            return True
    return False


def alternatives(schema: Any, definitions: Mapping[str, Any], param: str) -> Iterator[tuple[str, Any]]:
    """A schema by type: each type that a value may have and the schema for it. `any` stands for all of them."""
    if schema is True or (isinstance(schema, dict) and not schema):
        yield "any", {}
        return
    if isinstance(schema, dict) and schema.keys() == {"$ref"}:
        yield from alternatives(definitions[schema["$ref"].rpartition("/")[2]], definitions, param)
        return
    if isinstance(schema, dict) and schema.keys() == {"anyOf"}:
        for each in schema["anyOf"]:
            yield from alternatives(each, definitions, param)
        return
    names = schema.get("type") if isinstance(schema, dict) else None
    if names is None and isinstance(schema, dict) and schema.keys() & {"enum", "const"}:
        names = sorted({_type_of(value) for value in schema.get("enum", [schema.get("const")])})
    if names is None:
        raise InvalidValueError(
            f"{param} has a parameter whose type cannot be told from its schema", hint="give it a type", param=param
        )
    for name in [names] if isinstance(names, str) else names:
        yield name, _narrowed(schema, name)


def _narrowed(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The schema of one of a schema's types."""
    result = {**schema, "type": name}
    if "enum" in schema:
        result["enum"] = [
            value
            for value in schema["enum"]
            if _type_of(value) == name or (name, _type_of(value)) == ("number", "integer")
        ]
    if name == "string":
        return {key: value for key, value in result.items() if key in _STRING_WORDS}
    return result


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, (int, float)):
        return "integer" if isinstance(value, int) else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def json_value(lark: LarkText, schemas: Sequence[Any], definitions: Mapping[str, Any], place: ValuePlace) -> str:
    """An expression for a JSON value of one of `schemas` and the markup behind it."""
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    if isinstance(lark.spelling.pieces(place.end.strip())[0], str):
        schema = opaque(schema, definitions, place.param)
    elif definitions:
        schema = {**schema, "$defs": dict(definitions)}
    return f"{lark.json(schema)} {lark.markup(place.end)}"
