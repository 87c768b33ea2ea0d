"""The structured fields of a request body: what they say, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from helios.errors import InvalidValueError
from helios.prompt.grammar.request import Form, ToolUse, read_structured

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TAG = {"begin": "<f>", "schema": True, "end": "</f>"}


@pytest.mark.parametrize(
    ("body", "form", "definition", "param"),
    [
        ({"response_format": {"type": "json_object"}}, Form.JSON_OBJECT, None, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": None}}},
            Form.JSON_SCHEMA,
            {"a": 1},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"json": '{"a": 1}'}}, Form.JSON_SCHEMA, {"a": 1}, "structured_outputs.json"),
        ({"structured_outputs": {"json": True, "regex": None}}, Form.JSON_SCHEMA, True, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "a"}}, Form.REGEX, "a", "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Form.CHOICE, ("a", "b"), "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": "g"}}, Form.GRAMMAR, "g", "structured_outputs.grammar"),
        (
            {"response_format": {"type": "structural_tag", "structures": [TAG], "triggers": ["<", "<"]}},
            Form.STRUCTURAL_TAG,
            {"structures": [TAG], "triggers": ["<"]},
            "response_format",
        ),
        (
            {"response_format": {"type": "text"}, "structured_outputs": {"json_object": True}},
            Form.JSON_OBJECT,
            None,
            "structured_outputs.json_object",
        ),
    ],
)  # fmt: skip
def test_a_form_is_read_with_the_field_that_holds_it(
    body: dict[str, Any], form: Form, definition: Any, param: str
) -> None:
    """FE-7."""
    answer = read_structured(body).answer
    assert answer is not None
    assert (answer.form, answer.definition, answer.param) == (form, definition, param)


@pytest.mark.parametrize(
    "body",
    [{}, {"response_format": None}, {"response_format": {"type": "text"}}, {"structured_outputs": None, "tools": []}],
)
def test_nothing_asked_is_nothing_constrained(body: dict[str, Any]) -> None:
    request = read_structured(body)
    assert (request.answer, request.tools, request.tool_use, request.is_constrained) == (None, (), ToolUse.NONE, False)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (ToolUse.AUTO, None)),
        ("auto", (ToolUse.AUTO, None)),
        ("none", (ToolUse.NONE, None)),
        ("required", (ToolUse.REQUIRED, None)),
        ({"type": "function", "function": {"name": "look"}}, (ToolUse.REQUIRED, "look")),
    ],
)
def test_how_tools_may_be_called(choice: Any, expected: tuple[ToolUse, str | None]) -> None:
    request = read_structured({"tools": [TOOL], "tool_choice": choice})
    assert (request.tool_use, request.named) == expected
    assert request.is_constrained == (expected[0] is ToolUse.REQUIRED)
    assert request.is_parallel
    (tool,) = request.tools
    assert (tool.name, tool.parameters, tool.is_strict, tool.param) == (
        "look",
        {"type": "object"},
        False,
        "tools[0].function.parameters",
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}},
            "response_format.json_schema.strict",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"structured_outputs": {"xpath": "//a"}}, "structured_outputs.xpath"),
        ({"structured_outputs": {"disable_any_whitespace": True, "json": {}}}, "structured_outputs.disable_any_whitespace"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": [1]}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "\ud800"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"grammar": 3}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"structural_tag": {"structures": [TAG]}}}, "structured_outputs.structural_tag.triggers"),
        (
            {"structured_outputs": {"structural_tag": {"structures": [TAG], "triggers": ["x"]}}},
            "structured_outputs.structural_tag.structures[0].begin",
        ),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a", "strict": "yes"}}]}, "tools[0].function.strict"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools[0].function.parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tools": [TOOL], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_by_its_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_structured(body)
    assert caught.value.param == param
    assert param in str(caught.value)
