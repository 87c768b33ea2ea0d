"""The conversations of request bodies, as each API writes them, as JSON schemas.

It knows the messages, items and blocks that the readers take, by the readers' own tables: one that has no schema here is a KeyError
at the first look at the document. What a schema here forbids is refused.
"""

from __future__ import annotations

from helios.server import anthropic_messages_input, openai_responses_input
from helios.server.conversation_fields import PART_TYPES, REASONING_NAMES, ROLES, UNSERVED
from helios.server.openapi.schema import (
    MAYBE_TEXT,
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

_NOTHING = one_of([None, False, 0, "", [], {}])


def chat_messages() -> Schema:
    """`messages` of chat: who may leave out the content, and who may call."""
    shared = {"name": MAYBE_TEXT, **dict.fromkeys(UNSERVED, _NOTHING)}
    silent = {**shared, "tool_calls": _NOTHING}
    function = table({"name": TEXT}, {"arguments": MAYBE_TEXT})
    call = table({"function": function}, {"id": MAYBE_TEXT, "type": one_of(["function", None])})
    answered = {
        **shared,
        "content": any_of([_content(), NULL]),
        **dict.fromkeys(REASONING_NAMES, MAYBE_TEXT),
        "tool_calls": or_null(array(call)),
    }
    speakers = one_of(role for role in ROLES if role not in {"assistant", "tool"})
    return array(
        any_of(
            [
                table({"role": speakers, "content": _content()}, silent),
                table({"role": {"const": "tool"}, "content": _content()}, {**silent, "tool_call_id": MAYBE_TEXT}),
                table({"role": {"const": "assistant"}}, answered),
            ]
        ),
        minItems=1,
    )


def response_input() -> Schema:
    """`input` of Responses: a text, or items. One without a type is a message."""
    thought = table({"type": {"const": "reasoning_text"}, "text": STRING})
    items: dict[str, Schema] = {
        "message": table({"role": one_of(openai_responses_input.ROLES), "content": _content()}),
        "function_call": table({"call_id": TEXT, "name": TEXT}, {"arguments": MAYBE_TEXT}),
        "function_call_output": table({"call_id": TEXT, "output": _content()}),
        "reasoning": table({}, {"content": or_null(array(thought))}),
    }
    message = items["message"]
    untyped = {**message, "properties": {"type": one_of([None, ""]), **message["properties"]}}
    alternatives = [*(typed(kind, items[kind]) for kind in openai_responses_input.READERS), untyped]
    return any_of([STRING, array(any_of(alternatives), minItems=1)])


def message_turns() -> Schema:
    """`messages` of Messages: a text, or blocks, by whose they are."""
    blocks: dict[str, Schema] = {
        "text": table({"text": STRING}),
        "tool_result": table({"tool_use_id": TEXT}, {"content": optional_content()}),
        "tool_use": table({"id": TEXT, "name": TEXT, "input": TABLE}),
        "thinking": table({"thinking": STRING}),
        "redacted_thinking": table({}),
    }
    turns = [
        table({"role": {"const": role}, "content": any_of([STRING, array(any_of(typed(k, blocks[k]) for k in kinds))])})
        for role, kinds in anthropic_messages_input.BLOCKS.items()
    ]
    return array(any_of(turns), minItems=1)


def optional_content() -> Schema:
    """A text, given whole or in parts, or null."""
    return any_of([_content(), NULL])


def _content() -> Schema:
    parts = [table({"type": {"const": kind}, name: STRING}) for kind, name in PART_TYPES.items()]
    return any_of([STRING, array(any_of(parts))])
