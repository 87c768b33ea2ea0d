"""Every keyword of JSON Schema: enforced to the letter, or refused by its name and place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helios.errors import InvalidValueError
from helios.prompt.grammar.grammars import Grammars
from helios.prompt.grammar.request import read_structured
from helios.prompt.grammar.schema import MAX_DEPTH, MAX_OPTIONAL, enforceable
from helios.tokenizer.tokenizer import Tokenizer
from tests.prompt.grammar.sampling import refused_at

PROPERTIES = {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}
A = {"type": "object", "properties": {"a": {"type": "integer"}}}


def accepts(grammars: Grammars, tokenizer: Tokenizer, schema: Any, document: str) -> bool:
    compiled = grammars.compile(read_structured({"structured_outputs": {"json": schema}}))
    assert compiled is not None
    constraint = compiled.start()
    tokens = tokenizer.encode(document, allow_special=False)
    return refused_at(constraint, tokens) is None and constraint.is_complete


def refusal(schema: Any) -> InvalidValueError:
    with pytest.raises(InvalidValueError) as caught:
        enforceable(schema, "where", lambda text: True)
    assert caught.value.param == "where"
    return caught.value


# What cannot be enforced: the schema, the keyword, the place.
REFUSED: list[tuple[Any, str, str]] = [
    ({"type": "array", "uniqueItems": True}, "uniqueItems", "$"),
    ({"properties": {"tags": {"uniqueItems": True}}}, "uniqueItems", "$.properties.tags"),
    ({"type": "object", "minProperties": 2}, "minProperties", "$"),
    ({**A, "minProperties": 2, "additionalProperties": True}, "minProperties", "$"),
    ({"properties": PROPERTIES, "minProperties": 2, "additionalProperties": False}, "minProperties", "$"),
    ({"properties": PROPERTIES, "maxProperties": 2, "additionalProperties": False}, "maxProperties", "$"),
    ({"properties": PROPERTIES, "maxProperties": 1, "additionalProperties": True}, "maxProperties", "$"),
    ({"propertyNames": {"pattern": "^a"}}, "propertyNames", "$"),
    ({"dependentRequired": {"a": ["b"]}}, "dependentRequired", "$"),
    ({"dependentSchemas": {"a": {}}}, "dependentSchemas", "$"),
    ({"dependencies": {"a": ["b"]}}, "dependencies", "$"),
    ({"if": {"type": "string"}, "then": {"minLength": 3}}, "if", "$"),
    ({"items": {"then": {}}}, "then", "$.items"),
    ({"else": {}}, "else", "$"),
    ({"anyOf": [{}, {"not": {"type": "string"}}]}, "not", "$.anyOf[1]"),
    ({"contains": {"type": "integer"}}, "contains", "$"),
    ({"minContains": 1}, "minContains", "$"),
    ({"unevaluatedProperties": False}, "unevaluatedProperties", "$"),
    ({"unevaluatedItems": False}, "unevaluatedItems", "$"),
    ({"$dynamicRef": "#a"}, "$dynamicRef", "$"),
    ({"properties": {"x": {"$id": "https://example.com/x"}}}, "$id", "$.properties.x"),
    ({"type": "string", "format": "uri-reference"}, "format", "$"),
    ({"type": "string", "format": "int32"}, "format", "$"),
    ({"type": "string", "pattern": "(?=a)b"}, "pattern", "$"),
    ({"type": "string", "pattern": r"(a)\1"}, "pattern", "$"),
    ({"type": "string", "pattern": r"\bword\b"}, "pattern", "$"),
    ({"type": "string", "pattern": "[a"}, "pattern", "$"),
    ({"patternProperties": {"(?!a)": {}}}, "patternProperties", "$"),
    ({"$ref": "https://example.com/schema"}, "$ref", "$"),
    ({"$ref": "other.json#/a"}, "$ref", "$"),
    ({"$ref": "#anchor"}, "$ref", "$"),
    ({"$ref": "#/$defs/missing", "$defs": {}}, "$ref", "$"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x y": {"not": {}}}}}}, "not", "$.$defs.a.properties['x y']"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", "$"),
    ({"oneOf": [A, {"type": "object"}]}, "oneOf", "$"),
    ({"type": "integer", "multipleOf": 99_999_989}, "multipleOf", "$"),
    ({"type": "number", "multipleOf": 0}, "multipleOf", "$"),
    ({"const": 9007199254740993}, "const", "$"),
    ({"enum": [1, 1e30]}, "enum", "$"),
    ({"const": {"a": "\x04"}}, "const", "$"),
    ({"enum": []}, "enum", "$"),
    ({"type": "number", "minimum": 1e30}, "minimum", "$"),
    ({"type": "number", "exclusiveMinimum": True, "minimum": 0}, "exclusiveMinimum", "$"),
    ({"type": "float"}, "type", "$"),
    ({"type": []}, "type", "$"),
    ({"type": "string", "nullable": True}, "nullable", "$"),
    ({"type": "string", "maxLenght": 3}, "maxLenght", "$"),
    ({"type": "string", "maxLength": "3"}, "maxLength", "$"),
    ({"type": "array", "minItems": -1}, "minItems", "$"),
    ({"type": "array", "maxItems": 10**9}, "maxItems", "$"),
    ({"required": "a"}, "required", "$"),
    ({"properties": [1]}, "properties", "$"),
    ({"properties": {f"p{index}": {} for index in range(MAX_OPTIONAL + 1)}}, "properties", "$"),
]


@pytest.mark.parametrize(
    ("schema", "keyword", "place"), REFUSED, ids=lambda each: each if isinstance(each, str) else ""
)
def test_what_cannot_be_enforced_is_refused_by_name_and_place(schema: Any, keyword: str, place: str) -> None:
    """FE-7: never ignored."""
    assert f"the schema keyword {keyword!r} at {place} " in str(refusal(schema))


# What is enforced: the schema, documents of it, and documents that are JSON but not of it.
ENFORCED: list[tuple[Any, list[str], list[str]]] = [
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, ["[1,2]"], ["[1]", "[1,2,3,4]"]),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, ["[1]"], ["[1,1]"]),
    ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, ['["a"]', "[]"], ['["a",1]', "[1]"]),
    ({"type": "array", "prefixItems": [{"type": "string"}]}, ['["a",1,{}]'], ["[1]"]),
    (
        {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}},
        ['["a",null]'],
        ['["a",1]'],
    ),
    ({"type": "array", "items": {"type": "null"}, "additionalItems": False}, ["[null,null]"], ["[1]"]),
    (A, ['{"a": 1}', "{}"], ['{"a": "x"}', '{"b": 1}']),
    ({**A, "additionalProperties": True}, ['{"a": 1, "z": [2]}'], ['{"a": "x"}']),
    ({**A, "additionalProperties": {"type": "string"}}, ['{"z": "x"}'], ['{"z": 1}', r'{"a": 1, "\u0061": "x"}']),
    ({**A, "required": ["zz"], "additionalProperties": {"type": "null"}}, ['{"zz": null}'], ["{}", '{"zz": 1}']),
    ({"type": "object", "patternProperties": {"^a": {"type": "null"}}}, ['{"ab": null, "b": 1}'], ['{"ab": 1}']),
    ({**A, "patternProperties": {"^a": {"maximum": 3}}}, ['{"a": 3}'], ['{"a": 4}', '{"ab": 4}']),
    ({"properties": PROPERTIES, "type": "object", "minProperties": 1}, ['{"b": 1}'], ["{}"]),
    (
        {"properties": PROPERTIES, "type": "object", "minProperties": 3},
        ['{"a":1,"b":1,"c":1}'],
        ["{}", '{"a":1,"b":1}'],
    ),
    ({"properties": PROPERTIES, "type": "object", "maxProperties": 1}, ['{"b": 1}', "{}"], ['{"a":1,"b":1}']),
    ({"properties": PROPERTIES, "type": "object", "maxProperties": 0}, ["{}"], ['{"a":1}']),
    ({"properties": PROPERTIES, "type": "object", "maxProperties": 3}, ['{"a":1,"b":1,"c":1}'], []),
    ({"type": "object", "minProperties": 1, "maxProperties": 2}, ['{"a": 1}'], ["{}", '{"a":1,"b":2,"c":3}']),
    ({"type": "integer", "multipleOf": 3}, ["6", "-9", "0"], ["7", "1.5"]),
    ({"type": "number", "multipleOf": 0.25}, ["0.50", "-1.75"], ["0.3", "0.125"]),
    ({"type": "integer", "minimum": 2, "exclusiveMaximum": 5}, ["2", "4"], ["1", "5", "-3"]),
    ({"type": "integer", "maximum": 9223372036854775807}, ["9007199254740993"], ["9223372036854775808"]),
    ({"type": "number", "exclusiveMaximum": 100}, ["99.9", "-5"], ["100", "99.99999999999999999"]),
    ({"type": "number", "exclusiveMinimum": 0}, ["0.001"], ["0", "-0.0", "0.000000000000000000001"]),
    ({"type": "number", "minimum": 0, "maximum": 1e300}, ["5.25"], ["-1"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"😀😀😀"'], ['"a"', '"abcd"', r'"\n"']),
    ({"type": "string", "pattern": r"^\d{2}-\w\s$"}, ['"12-a "'], ['"1-a "', '"12-é "', '"x12-a "']),
    ({"type": "string", "pattern": "b"}, ['"abc"', '"b"'], ['"ac"']),
    ({"type": "string", "pattern": "^a|b$"}, ['"ax"', '"xb"'], ['"xx"']),
    ({"type": "string", "pattern": "^[^a-z]+$", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"x"']),
    ({"type": "string"}, [r'"\"\\\n\t"', '"é😀"'], ['"a\nb"', '"\x01"', r'"\q"', r'"\ud800"']),
    ({"allOf": [A, {"properties": {"a": {"minimum": 5}}}]}, ['{"a": 5}'], ['{"a": 4}']),
    ({"allOf": [{**A, "additionalProperties": False}, {"properties": {"b": True}}]}, ['{"a": 1}'], ['{"b": 1}']),
    ({"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"type": "integer"}}}, ["5"], ["4", '"x"']),
    ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "null"}}}, ["null"], ["1"]),
    ({"$defs": {"unused": {"not": {}}}, "type": "null", "$id": "https://example.com/s"}, ["null"], ["1"]),
    ({"type": ["integer", "string"], "minLength": 3, "maximum": 4}, ["4", '"abc"'], ["5", '"ab"', "null"]),
    ({"enum": [1, "a", None, [1], {"k": 0.1}]}, ["1", '"a"', "null", "[1]", '{"k":0.1}'], ["2", '"b"', "[1,1]"]),
    ({"enum": ["a", 3], "type": "string"}, ['"a"'], ["3"]),
    ({"const": 1e-7}, ["0.0000001"], ["0", "0.0000002"]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '"a"'], ["null"]),
    ({"items": True, "type": "array"}, ['[1,"a",{}]'], ["{}"]),
    (True, ["1", "{}"], ["{", "nul"]),
    ({"type": "object", "title": "T", "x-order": 1, "examples": [1], "deprecated": True}, ["{}"], ["1"]),
    ({"type": "object", "x-guidance": {"lenient": True, "whitespace_flexible": True}}, ["{}"], ['{"a":\n\n1}']),
]


@pytest.mark.parametrize(("schema", "good", "bad"), ENFORCED)
def test_what_is_enforced_holds_for_every_document(
    schema: Any, good: list[str], bad: list[str], grammars: Grammars, tokenizer: Tokenizer
) -> None:
    """FE-7: `bad` documents are what a grammar that forgets the keyword would let through."""
    assert [each for each in good if not accepts(grammars, tokenizer, schema, each)] == []
    assert [each for each in bad if accepts(grammars, tokenizer, schema, each)] == []


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"enum": [1], "type": "string"},
        {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
        {"patternProperties": {"^a": {"type": "null"}, "b$": {"type": "string"}}},
    ],
)
def test_a_schema_without_documents_is_refused_when_it_is_compiled(schema: Any, grammars: Grammars) -> None:
    with pytest.raises(InvalidValueError, match="cannot be enforced") as caught:
        grammars.compile(
            read_structured({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
        )
    assert caught.value.param == "response_format.json_schema.schema"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_recursion_without_a_way_out_is_refused(schema: Any) -> None:
    """A grammar of it would never let the answer end."""
    assert "has no document that ends" in str(refusal(schema))


def test_nesting_and_size_are_bounded() -> None:
    deep: Any = {"type": "null"}
    for _ in range(MAX_DEPTH + 1):
        deep = {"type": "array", "items": deep}
    assert "is nested more than" in str(refusal(deep))
    assert "has more than" in str(refusal({"allOf": [{"anyOf": [{}] * 600}] * 10}))
    assert "lone surrogate" in str(refusal({"const": "\ud800"}))
    assert "must be an object, true or false" in str(refusal({"items": 3}))


def test_a_union_that_blows_up_is_refused(grammars: Grammars) -> None:
    options = [{"anyOf": [{"type": "string", "minLength": 10 * i + j} for i in range(10)]} for j in range(10)]
    with pytest.raises(InvalidValueError, match="cannot be enforced"):
        grammars.compile(read_structured({"structured_outputs": {"json": {"allOf": options}}}))


def test_text_without_tokens_is_refused(grammars: Grammars) -> None:
    """research 7.3-3: the default vocabulary has no token for the byte F1, with which U+40000 begins."""
    for schema in ({"const": "\U00040000"}, {"properties": {"\U00040000": True}}, {"enum": [{"k": ["\U00040000"]}]}):
        with pytest.raises(InvalidValueError, match="has no tokens"):
            grammars.compile(read_structured({"structured_outputs": {"json": schema}}))


def test_a_refusal_does_not_repeat_a_whole_schema() -> None:
    assert len(str(refusal({"x" * 10_000: 1}))) < 500
    assert len(str(refusal({"const": json.loads('"' + "y" * 10_000 + r'\u0001"')}))) < 500
