"""Tools, the choice among them, and the form of an answer, as each API writes them, as JSON schemas.

It knows the forms that the readers take and nothing of conversations. What a schema here forbids is refused; whether a choice names
one of the tools, and whether a grammar can be enforced, is not said here.
"""

from __future__ import annotations

from collections.abc import Mapping

from helios.prompt.grammar.request import MAX_CHOICES, MAX_TOOLS, STRUCTURED, TOOL_NAME
from helios.server.anthropic_messages_request import CHOICES, DISPLAYS, EDIT_PREFIX
from helios.server.openai_responses_request import VERBOSITIES
from helios.server.openapi.schema import (
    FLAG,
    NULL,
    STRING,
    TABLE,
    TEXT,
    Schema,
    any_of,
    array,
    one_of,
    or_null,
    table,
    typed,
)
from helios.server.options import ANY_COUNT
from helios.server.template_fields import EFFORTS

EFFORT = one_of([*EFFORTS, None])
_NAME: Schema = {"type": "string", "pattern": f"^(?:{TOOL_NAME.pattern})$"}
_SCHEMA: Schema = {"type": ["object", "boolean"]}
_ABSENT = one_of([None, False])
_WORD_CHOICE = one_of(["none", "auto", "required", None])


def chat_forms() -> dict[str, Schema]:
    """The fields of chat; those of plain completions are among them."""
    named = typed("function", table({"function": table({"name": _NAME})}))
    return {
        "tools": _tools(typed("function", table({"function": _function()}))),
        "tool_choice": any_of([_WORD_CHOICE, named]),
        "parallel_tool_calls": FLAG,
        "response_format": _response_format(),
        "structured_outputs": _structured_outputs(),
    }


def response_forms() -> dict[str, Schema]:
    """The fields of Responses."""
    tool = typed("function", _function())
    named = typed("function", table({"name": _NAME}))
    form = any_of(
        [
            typed("text", table({})),
            typed("json_object", table({})),
            typed("json_schema", _schema({"strict": FLAG})),
            NULL,
        ]
    )
    return {
        "tools": _tools(tool),
        "tool_choice": any_of([_WORD_CHOICE, named]),
        "parallel_tool_calls": FLAG,
        "text": or_null(table({}, {"format": form, "verbosity": one_of([*VERBOSITIES, None])})),
        "reasoning": or_null(table({}, {"effort": EFFORT})),
    }


def message_forms() -> dict[str, Schema]:
    """The fields of Messages."""
    tool = table({"name": _NAME, "input_schema": TABLE}, {"type": one_of(["custom", None]), "strict": FLAG})
    shared = {"disable_parallel_tool_use": FLAG}
    choices = [*(typed(kind, table({}, shared)) for kind in CHOICES), typed("tool", table({"name": _NAME}, shared))]
    shown = {"display": one_of([*DISPLAYS, None])}
    budget = {"budget_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": ANY_COUNT}}
    thinking = [
        typed("disabled", table({}, shown)),
        typed("adaptive", table({}, shown)),
        typed("enabled", table({}, shown | budget)),
    ]
    edit = table({"type": {"type": "string", "pattern": f"^{EDIT_PREFIX}"}})
    return {
        "tools": _tools(tool),
        "tool_choice": any_of([*choices, NULL]),
        "output_config": or_null(
            table({}, {"effort": EFFORT, "format": any_of([typed("json_schema", _schema({})), NULL])})
        ),
        "thinking": any_of([*thinking, NULL]),
        "context_management": or_null(table({}, {"edits": or_null(array(edit))})),
    }


def _tools(tool: Schema) -> Schema:
    return or_null(array(tool, maxItems=MAX_TOOLS))


def _function() -> Schema:
    return table({"name": _NAME}, {"parameters": or_null(TABLE), "strict": FLAG})


def _schema(optional: Mapping[str, Schema]) -> Schema:
    return table({"schema": TABLE}, optional)


def _response_format() -> Schema:
    inner = table({"schema": _SCHEMA}, {"strict": FLAG})
    return any_of(
        [
            typed("text", table({})),
            typed("json_object", table({}, {"schema": any_of([_SCHEMA, NULL])})),
            typed("json_schema", table({"json_schema": inner})),
            typed("structural_tag", _structural_tag()),
            NULL,
        ]
    )


def _structured_outputs() -> Schema:
    """Exactly one form; the others are not there, or null, or false."""
    forms: dict[str, Schema] = {
        "json": any_of([TABLE, STRING, {"const": True}]),
        "regex": TEXT,
        "choice": array(TEXT, minItems=1, maxItems=MAX_CHOICES),
        "grammar": TEXT,
        "structural_tag": any_of([_structural_tag(), STRING]),
        "json_object": {"const": True},
    }
    return any_of([*({**table({name: forms[name]}), "additionalProperties": _ABSENT} for name in STRUCTURED), NULL])


def _structural_tag() -> Schema:
    end = any_of([STRING, one_of([None, False, 0, [], {}])])
    tag = table({"begin": TEXT}, {"schema": _SCHEMA, "end": end})
    limits = {"minItems": 1, "maxItems": MAX_TOOLS}
    return table({"triggers": array(TEXT, **limits), "structures": array(tag, **limits)})
