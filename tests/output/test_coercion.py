"""Raw text to JSON by schema: the table of the syntaxes without types on the wire (T14)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.output.coercion import json_of_text, parameter_type

DEFINITIONS = {
    "count": {"type": "integer"},
    "loop": {"$ref": "#/$defs/loop"},
    "maybe": {"anyOf": [{"$ref": "#/$defs/count"}, {"type": "null"}]},
    "a/b": {"type": "boolean"},
    "a b": {"type": "boolean"},
    "some": [{"type": "boolean"}, {"type": "integer"}],
}


def coerced(text: str, schema: Any) -> str:
    """The JSON that a parameter with this schema becomes."""
    kind = parameter_type({"properties": {"x": schema}, "$defs": DEFINITIONS}, "x")
    assert kind is not None
    return json_of_text(text, kind)


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        # string, and only that: the text as it stands
        ({"type": "string"}, "null", '"null"'),
        ({"type": "string"}, "02134", '"02134"'),
        ({"type": "string"}, "1e5", '"1e5"'),
        ({"type": "string"}, ' {"a": 1}\n', '" {\\"a\\": 1}\\n"'),
        ({"type": "string"}, "é\x01", '"é\\u0001"'),
        ({"type": ["string"]}, "true", '"true"'),
        # integer
        ({"type": "integer"}, "3", "3"),
        ({"type": "integer"}, " -3\n", "-3"),
        ({"type": "integer"}, "007", "7"),
        ({"type": "integer"}, "5.0", "5"),
        ({"type": "integer"}, "5.5", '"5.5"'),
        ({"type": "integer"}, "1e5", '"1e5"'),
        ({"type": "integer"}, "three", '"three"'),
        ({"type": "integer"}, "٣", '"٣"'),
        ({"type": "integer"}, "9" * 5000, f'"{"9" * 5000}"'),
        # number: the model's own spelling
        ({"type": "number"}, "1.0", "1.0"),
        ({"type": "number"}, "1e5", "1e5"),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "007", '"007"'),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "number"}, "+1", '"+1"'),
        ({"type": ["integer", "number"]}, "5.0", "5.0"),
        # boolean and null
        ({"type": "boolean"}, "True", "true"),
        ({"type": "boolean"}, "false", "false"),
        ({"type": "boolean"}, "1", '"1"'),
        ({"type": "null"}, "None", "null"),
        ({"type": "null"}, "nil", '"nil"'),
        # object and array
        ({"type": "object"}, '{"a": [1, 2.50, "x y"]}', '{"a":[1,2.50,"x y"]}'),
        ({"type": "object"}, "", "{}"),
        ({"type": "array"}, " \n", "[]"),
        ({"type": "object"}, "{'a': True, 'b': None}", '{"a":true,"b":null}'),
        ({"type": "object"}, "{'a': '\\ud83d'}", '{"a":"\ufffd"}'),
        ({"type": "object"}, "[1]", '"[1]"'),
        ({"type": "array"}, "(1, 2)", '"(1, 2)"'),
        ({"type": "object"}, '{"a": NaN}', '"{\\"a\\": NaN}"'),
        ({"type": "object"}, '{"a": 1', '"{\\"a\\": 1"'),
        ({"type": "object"}, '{"a": "\\ud83d"}', '{"a":"\\ud83d"}'),
        ({"type": "array"}, "[" * 100_000, f'"{"[" * 100_000}"'),
        ({"properties": {"a": {}}}, '{"a": 1}', '{"a":1}'),
        ({"items": {}}, "[1]", "[1]"),
        # several types: what is no string first
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "null"]}, "nullable", '"nullable"'),
        ({"type": ["string", "integer"]}, "12", "12"),
        ({"type": ["string", "integer"]}, "1 2", '"1 2"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "None", "null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "x", '"x"'),
        ({"oneOf": [{"type": "integer"}, {"type": "array"}]}, "[1]", "[1]"),
        ({"anyOf": [{"type": "integer"}, {}]}, "x", '"x"'),
        ({"allOf": [{"description": "d"}, {"type": "integer"}]}, "3", "3"),
        ({"type": "string", "nullable": True}, "null", "null"),
        ({"type": "string", "nullable": True}, "3", '"3"'),
        # enum and const without a type
        ({"enum": ["a", "b"]}, "a", '"a"'),
        ({"enum": ["1", 2, None]}, "1", '"1"'),
        ({"enum": ["1", 2, None]}, "2", "2"),
        ({"enum": ["1", 2, None]}, "None", "null"),
        ({"enum": ["1", 2, None]}, "other", '"other"'),
        ({"enum": [True, "yes"]}, "True", "true"),
        ({"enum": [1, 2]}, "true", '"true"'),
        ({"const": 5}, "5", "5"),
        ({"type": "string", "enum": ["1", "2"]}, "1", '"1"'),
        # references
        ({"$ref": "#/$defs/count"}, "3", "3"),
        ({"$ref": "#/$defs/maybe"}, "null", "null"),
        ({"$ref": "#/$defs/maybe"}, "4", "4"),
        ({"$ref": "#/$defs/a~1b"}, "True", "true"),
        ({"$ref": "#/%24defs/a%7E1b"}, "True", "true"),
        ({"$ref": "#/$defs%2Fa%20b"}, "True", "true"),
        ({"$ref": "#/$defs/some/0"}, "True", "true"),
        ({"$ref": "#/$defs/some/00"}, "True", '"True"'),
        ({"$ref": "#/$defs/some/2"}, "True", '"True"'),
        ({"$ref": "#/$defs/some/" + "9" * 5000}, "True", '"True"'),
        ({"$ref": "#/$defs/loop"}, "3", "3"),
        ({"$ref": "#/$defs/none"}, "3", "3"),
        ({"$ref": "https://example.invalid/x"}, "3", "3"),
        ({"$ref": "#/$defs/count", "description": "d"}, "3", "3"),
        # no type: JSON if it is, else a string
        ({}, "3", "3"),
        ({}, '{"a": 1}', '{"a":1}'),
        ({}, "True", '"True"'),
        (True, "3", "3"),
        ({}, "007", '"007"'),
        ({}, "", '""'),
        ({"type": "nonsense"}, "3", "3"),
    ],
)  # fmt: skip
def test_the_table(schema: Any, text: str, expected: str) -> None:
    """T14."""
    assert coerced(text, schema) == expected


def test_schemas_that_lead_in_circles_take_no_time() -> None:
    """T14: references and alternatives come from a request; a million million visits would stop the server."""
    twice = {"anyOf": [{"$ref": "#/$defs/twice"}] * 10}
    parameters = {"properties": {"x": {"$ref": "#/$defs/twice"}}, "$defs": {"twice": twice}}
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(5000):
        deep = {"allOf": [deep]}
    parameters["properties"]["y"] = deep
    for key in ("x", "y"):
        kind = parameter_type(parameters, key)
        assert kind is not None
        assert json_of_text("3", kind) == "3"


def test_a_parameter_that_no_schema_knows_has_no_type() -> None:
    """T14: its text is a string."""
    assert parameter_type({}, "x") is None
    assert parameter_type({"properties": {"y": {}}, "additionalProperties": False}, "x") is None
    assert parameter_type({"properties": None}, "x") is None
    assert parameter_type({"properties": {"x": False}, "additionalProperties": True}, "x") is None
    other = parameter_type({"additionalProperties": {"type": "integer"}}, "x")
    assert other is not None
    assert json_of_text("3", other) == "3"


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
_TYPES = st.lists(
    st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"]), min_size=1, unique=True
)


@given(value=st.recursive(_SCALARS | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_value(value: Any) -> None:
    """T14: what is JSON of the schema's type arrives as that value."""
    text = json.dumps(value)
    names = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    for schema in ({}, {"type": names.get(type(value), "string")}):
        if not isinstance(value, str):
            assert json.loads(coerced(text, schema)) == value


@given(text=st.text(max_size=20), types=_TYPES)
def test_any_text_becomes_json_of_one_of_the_types_or_a_string(text: str, types: list[str]) -> None:
    """T14: conversion never fails."""
    value = json.loads(coerced(text, {"type": types}))
    jsonschema.validate(value, {"type": sorted({*types, "string"})})
