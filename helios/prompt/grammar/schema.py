"""A JSON schema as the grammar library enforces it, or a refusal that names the keyword and its place.

It knows draft 2020-12, what older drafts wrote differently, and no tokens. Every keyword of a schema is enforced as it stands, is
rewritten into keywords that are, only describes, or is refused; nothing that would restrict the document is ever passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from helios.errors import InvalidValueError
from helios.prompt.grammar import numbers
from helios.prompt.grammar.formats import FORMATS
from helios.prompt.grammar.lark import agreed_classes, first_unreadable
from helios.prompt.grammar.objects import has_end, object_limits
from helios.prompt.grammar.unions import are_disjoint

MAX_SCHEMAS = 5_000
MAX_DEPTH = 40
MAX_ITEMS = 100_000
MAX_LENGTH = 1_000_000
MAX_OPTIONS = 10_000
MAX_OPTIONAL = 500  # the row of a mask grows with them: 1.5 ms

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
ANNOTATIONS = frozenset(
    [
        "$anchor",
        "$comment",
        "$schema",
        "$vocabulary",
        "contentEncoding",
        "contentMediaType",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "enumDescriptions",
        "enumNames",
        "example",
        "examples",
        "externalDocs",
        "markdownDescription",
        "propertyOrdering",
        "readOnly",
        "title",
        "writeOnly",
        "xml",
    ]
)
_IN_PLACE = ("allOf", "anyOf", "oneOf", "$ref")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_UNSPELLABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")  # JSON has no short escape for them


def enforceable(schema: Any, param: str, can_spell: Callable[[str], bool]) -> dict[str, Any]:
    """The schema to compile. InvalidValueError for one that cannot be enforced; `param` is the request field that holds it."""
    reader = _Reader(schema, param, can_spell)
    root = reader.schema(schema, "$", 0, is_alone=True)
    reader.check_patterns()
    table: dict[str, Any] = root if isinstance(root, dict) else ({} if root else {"enum": []})
    if not has_end(table, reader.definitions):
        reader.refuse("$", None, "has no document that ends")
    return {**table, "$defs": reader.definitions} if reader.definitions else table


class _Reader:
    """One walk over one schema. `definitions` collects what references lead to."""

    def __init__(self, root: Any, param: str, can_spell: Callable[[str], bool]) -> None:
        self.definitions: dict[str, Any] = {}
        self._root = root
        self._param = param
        self._can_spell = can_spell
        self._names: dict[tuple[str, bool], str] = {}
        self._n_schemas = 0
        self._patterns: dict[str, tuple[str, str]] = {}  # where each was first seen
        try:
            json.dumps(root, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            self.refuse("$", None, "is nested too deeply or has a lone surrogate")

    def refuse(self, path: str, keyword: str | None, reason: str) -> NoReturn:
        what = f"the schema keyword {keyword[:100]!r}" if keyword is not None else "the schema"
        raise InvalidValueError(f"{self._param}: {what} at {path[:300]} {reason}", param=self._param)

    def schema(self, node: Any, path: str, depth: int, *, is_alone: bool = True) -> Any:
        """One schema. `is_alone`: no other schema speaks of the same value, so an object without a word about further properties
        may be closed."""
        self._n_schemas += 1
        if self._n_schemas > MAX_SCHEMAS:
            self.refuse(path, None, f"has more than {MAX_SCHEMAS:,} parts")
        if depth > MAX_DEPTH:
            self.refuse(path, None, f"is nested more than {MAX_DEPTH} deep")
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            self.refuse(path, None, "must be an object, true or false")
        words = {key: value for key, value in node.items() if key not in ANNOTATIONS and not key.startswith("x-")}
        for name in ("$defs", "definitions"):
            words.pop(name, None)  # read where a reference leads to them
        for name in ("$id", "id"):
            if depth == 0 and isinstance(words.get(name), str):
                del words[name]
        result: dict[str, Any] = {}
        for keyword in words:
            if keyword not in _KEYWORDS:
                self.refuse(path, keyword, "is not supported")
        for keyword in ("type", *(each for each in words if each != "type")):
            if keyword in words:
                _KEYWORDS[keyword](self, words, keyword, path, depth, result, is_alone)
        self._close(words, path, result, is_alone)
        return result

    # What follows has one signature: the schema's words, the keyword, its place, and the result to add to.

    def _type(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        names = words["type"] if isinstance(words["type"], list) else [words["type"]]
        if not names or any(name not in TYPES for name in names):
            self.refuse(path, "type", f"must be one or several of {', '.join(TYPES)}")
        result["type"] = words["type"]

    def _literals(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        values = words[keyword] if keyword == "enum" else [words[keyword]]
        if not isinstance(values, list) or not 1 <= len(values) <= MAX_OPTIONS:
            self.refuse(path, keyword, f"must be a list of 1 to {MAX_OPTIONS:,} values")
        for value in values:
            self._literal(value, keyword, path)
        result[keyword] = words[keyword]

    def _literal(self, value: Any, keyword: str, path: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                self._text(key, keyword, path)
                self._literal(each, keyword, path)
        elif isinstance(value, list):
            for each in value:
                self._literal(each, keyword, path)
        elif isinstance(value, str):
            self._text(value, keyword, path)
        elif not isinstance(value, bool) and value is not None and not numbers.is_exact(value):
            self.refuse(path, keyword, f"has the number {value:.17g}, which is not exact in double precision")

    def _text(self, text: str, keyword: str, path: str) -> None:
        if _UNSPELLABLE.search(text) or not self._can_spell(json.dumps(text, ensure_ascii=False)):
            self.refuse(path, keyword, f"has the text {text[:60]!r}, for which this model has no tokens")

    def _in_place(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        options = words[keyword]
        if not isinstance(options, list) or not 1 <= len(options) <= MAX_OPTIONS:
            self.refuse(path, keyword, f"must be a list of 1 to {MAX_OPTIONS:,} schemas")
        is_only = is_alone and words.keys() <= {keyword, "type"} and (keyword != "allOf" or len(options) == 1)
        read = [
            self.schema(each, f"{path}.{keyword}[{index}]", depth + 1, is_alone=is_only)
            for index, each in enumerate(options)
        ]
        if keyword == "oneOf":
            for index, each in enumerate(read):
                for other in range(index):
                    if not are_disjoint(read[other], each, self.definitions):
                        self.refuse(path, "oneOf", f"has options {other} and {index} that one document may fit both")
            keyword = "anyOf"
        if keyword in result:
            result.setdefault("allOf", []).append({keyword: read})
        elif keyword == "allOf":
            result.setdefault("allOf", []).extend(read)
        else:
            result[keyword] = read

    def _reference(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        pointer = words["$ref"]
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            self.refuse(path, "$ref", "must point into this schema, as in '#/$defs/name'")
        is_only = is_alone and words.keys() <= {"$ref"}
        name = self._names.get((pointer, is_only))
        if name is None:
            name = self._names[pointer, is_only] = f"d{len(self._names)}"
            self.definitions[name] = {}
            target = self._target(pointer, path)
            self.definitions[name] = self.schema(target, _path_of(pointer), depth + 1, is_alone=is_only)
        result["$ref"] = f"#/$defs/{name}"

    def _target(self, pointer: str, path: str) -> Any:
        node = self._root
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                self.refuse(path, "$ref", f"points to {pointer[:100]!r}, which is not there")
        return node

    def _properties(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        table = words[keyword]
        if not isinstance(table, dict):
            self.refuse(path, keyword, "must be an object of schemas")
        read = {}
        for name, each in table.items():
            place = _at(path, name)
            if keyword == "patternProperties":
                self._pattern_of(name, keyword, path)
            else:
                self._text(name, keyword, place)
            read[name] = self.schema(each, place, depth + 1)
        result[keyword] = read

    def _schemas(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        """`additionalProperties`, `items`, `prefixItems`, and `items` with `additionalItems` as older drafts write a tuple."""
        value = words[keyword]
        if isinstance(value, list) and keyword in ("items", "prefixItems"):
            if keyword == "items" and "prefixItems" in words:
                self.refuse(path, "items", "must be a schema beside 'prefixItems'")
            result["prefixItems"] = [
                self.schema(each, f"{path}.{keyword}[{index}]", depth + 1) for index, each in enumerate(value)
            ]
            if len(value) > MAX_OPTIONS:
                self.refuse(path, keyword, f"has more than {MAX_OPTIONS:,} schemas")
        elif keyword == "prefixItems":
            self.refuse(path, keyword, "must be a list of schemas")
        elif keyword == "additionalItems":
            if isinstance(words.get("items"), list):
                result["items"] = self.schema(value, f"{path}.{keyword}", depth + 1)
        else:
            result[keyword] = self.schema(value, f"{path}.{keyword}", depth + 1)

    def _required(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        names = words["required"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.refuse(path, keyword, "must be a list of property names")
        for name in names:
            self._text(name, keyword, path)
        result["required"] = list(dict.fromkeys(names))

    def _count(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        value, most = words[keyword], MAX_LENGTH if keyword.endswith("Length") else MAX_ITEMS
        if not numbers.is_number(value) or value != int(value) or not 0 <= value <= most:
            self.refuse(path, keyword, f"must be a whole number from 0 to {most:,}")
        result[keyword] = int(value)

    def _flag(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        """`uniqueItems` and OpenAPI's `nullable`, which say nothing when they are false."""
        is_short = keyword == "uniqueItems" and words.get("maxItems") in (0, 1)
        if words[keyword] is not False and not is_short:
            self.refuse(path, keyword, _FLAGS[keyword])

    def _number(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        if not numbers.is_number(words[keyword]):
            self.refuse(path, keyword, "must be a number")
        is_only = is_alone and words.keys().isdisjoint(_IN_PLACE)
        if keyword == "multipleOf":
            if not is_only:
                self.refuse(path, keyword, "cannot be enforced beside other schemas of the same number")
            if not numbers.is_countable(words[keyword]):
                self.refuse(path, keyword, f"must be above 0, of at most 9 decimals and {numbers.MAX_MULTIPLE:,} steps")
            result[keyword] = words[keyword]
            return
        names = words.get("type", "number")
        is_integer = "number" not in ([names] if isinstance(names, str) else names)
        present = {name: words[name] for name in (*numbers.BOUNDS, "multipleOf") if numbers.is_number(words.get(name))}
        try:
            result |= numbers.bounded(present, is_integer=is_integer, is_alone=is_only)
        except ValueError as error:
            self.refuse(path, keyword, str(error))

    def _pattern(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        self._pattern_of(words["pattern"], keyword, path)
        _add_pattern(result, agreed_classes(words["pattern"]))

    def _pattern_of(self, regex: Any, keyword: str, path: str) -> None:
        if not isinstance(regex, str):
            self.refuse(path, keyword, "must be a regular expression")
        self._patterns.setdefault(regex, (keyword, path))

    def check_patterns(self) -> None:
        """Refuse the first regular expression that cannot be enforced. All are tried at once: a trial costs milliseconds."""
        found = first_unreadable(list(self._patterns))
        if found is not None:
            regex, reason = found
            keyword, path = self._patterns[regex]
            self.refuse(path, keyword, f"has a regular expression that cannot be enforced: {reason}")

    def _format(self, words: _Words, keyword: str, path: str, depth: int, result: _Words, is_alone: bool) -> None:
        name = words["format"]
        if name not in FORMATS:
            self.refuse(path, keyword, f"is {str(name)[:60]!r}; {', '.join(sorted(FORMATS))} are supported")
        _add_pattern(result, f"^(?:{FORMATS[name]})$")

    def _close(self, words: _Words, path: str, result: _Words, is_alone: bool) -> None:
        """Settle what concerns the object as a whole."""
        properties, required = result.get("properties", {}), result.get("required", [])
        if len(properties) - len(required) > MAX_OPTIONAL:
            self.refuse(path, "properties", f"has more than {MAX_OPTIONAL} optional properties")
        is_said = "additionalProperties" in words or "patternProperties" in words
        if (
            "properties" in result
            and not is_said
            and is_alone
            and not words.keys() & set(_IN_PLACE)
            and properties.keys() >= set(required)
        ):
            result["additionalProperties"] = False
        for keyword, reason in object_limits(result):
            self.refuse(path, keyword, reason)


_Words = dict[str, Any]
_FLAGS = {
    "uniqueItems": "cannot be enforced while the answer is being generated",
    "nullable": "is no keyword of JSON Schema: add 'null' to the type",
}
_KEYWORDS: Mapping[str, Callable[[_Reader, _Words, str, str, int, _Words, bool], None]] = {
    "type": _Reader._type,
    "enum": _Reader._literals,
    "const": _Reader._literals,
    "allOf": _Reader._in_place,
    "anyOf": _Reader._in_place,
    "oneOf": _Reader._in_place,
    "$ref": _Reader._reference,
    "properties": _Reader._properties,
    "patternProperties": _Reader._properties,
    "additionalProperties": _Reader._schemas,
    "items": _Reader._schemas,
    "prefixItems": _Reader._schemas,
    "additionalItems": _Reader._schemas,
    "required": _Reader._required,
    **dict.fromkeys(
        ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), _Reader._count
    ),
    **dict.fromkeys(_FLAGS, _Reader._flag),
    **dict.fromkeys((*numbers.BOUNDS, "multipleOf"), _Reader._number),
    "pattern": _Reader._pattern,
    "format": _Reader._format,
}


def _add_pattern(result: _Words, regex: str) -> None:
    if "pattern" in result:
        result.setdefault("allOf", []).append(
            {"pattern": regex} | ({"type": result["type"]} if "type" in result else {})
        )
    else:
        result["pattern"] = regex


def _at(path: str, name: str) -> str:
    return f"{path}.properties.{name}" if _IDENTIFIER.fullmatch(name) else f"{path}.properties[{name!r}]"


def _path_of(pointer: str) -> str:
    return "$" + "".join(f".{part}" for part in pointer.split("/")[1:])
