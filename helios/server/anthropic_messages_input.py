"""The `system` and `messages` of an Anthropic body, checked into Messages.

It knows the content blocks that are conversation: text, tool calls, their results, thinking. Messages of one role in a row are one
turn, as that API has it, and results are messages of their own, as templates have it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from helios.errors import InvalidValueError
from helios.prompt.conversation import Message, ToolCall
from helios.server.conversation_fields import object_fields, read_content, with_tool_names
from helios.server.conversation_turns import joined_turns
from helios.server.fields import Fields, checked_text

BLOCKS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
}


def read_turns(fields: Fields) -> tuple[Message, ...]:
    """The conversation, the system prompt first."""
    return with_tool_names(joined_turns(_read_all(fields), _is_one_turn))


def _is_one_turn(turn: Message, message: Message) -> bool:
    return turn.role == message.role != "tool"


def _read_all(fields: Fields) -> Iterator[Message]:
    system = read_content(fields, "system", is_optional=True)
    if system:
        yield Message("system", system)
    values = fields.list("messages")
    if not values:
        raise fields.refuse("messages", "a list of at least one message")
    for index, value in enumerate(values):
        yield from _read_message(object_fields(value, f"messages[{index}]"))


def _read_message(fields: Fields) -> Iterator[Message]:
    role = fields.text("role")
    if role not in BLOCKS:
        raise fields.refuse("role", "one of " + ", ".join(BLOCKS))
    if isinstance(fields.value("content"), str):
        yield Message(role, fields.text("content") or "")
        return
    blocks = list(_blocks(fields, role))
    if role == "assistant":
        yield _read_assistant(blocks)
    else:
        yield from _read_user(role, blocks)


def _blocks(fields: Fields, role: str) -> Iterator[tuple[str, Fields]]:
    """The content, each block with its type."""
    values = fields.list("content")
    if values is None:
        raise fields.refuse("content", "text or a list of content blocks")
    for index, value in enumerate(values):
        block = object_fields(value, f"{fields.param('content')}[{index}]")
        kind = block.text("type")
        if kind not in BLOCKS[role]:
            param = block.param("type")
            message = f"{param} is {str(kind)[:40]!r}, which is not supported in a message of the {role}"
            raise InvalidValueError(message, hint=f"use {', '.join(BLOCKS[role])}", param=param)
        yield kind, block


def _read_user(role: str, blocks: list[tuple[str, Fields]]) -> Iterator[Message]:
    """Texts between results are messages of their own; the blocks of one text are joined."""
    text = ""
    for kind, block in blocks:
        if kind == "text":
            text += _text(block, "text")
            continue
        if text:
            yield Message(role, text)
            text = ""
        result = read_content(block, "content", is_optional=True)
        yield Message("tool", result, tool_call_id=_named(block, "tool_use_id"))
    if text or all(kind == "text" for kind, _ in blocks):
        yield Message(role, text)


def _read_assistant(blocks: list[tuple[str, Fields]]) -> Message:
    """One turn. Redacted thinking is nothing that anybody here could read."""
    texts = [_text(block, "text") for kind, block in blocks if kind == "text"]
    thoughts = [_text(block, "thinking") for kind, block in blocks if kind == "thinking"]
    calls = tuple(_read_call(block) for kind, block in blocks if kind == "tool_use")
    return Message("assistant", "".join(texts), reasoning="".join(thoughts) or None, tool_calls=calls)


def _read_call(block: Fields) -> ToolCall:
    arguments = block.object("input")
    if arguments is None:
        raise block.refuse("input", "an object")
    checked_text(json.dumps(arguments.table, ensure_ascii=False), block.param("input"))
    return ToolCall(_named(block, "id"), _named(block, "name"), arguments.table)


def _text(block: Fields, name: str) -> str:
    text = block.text(name)
    if text is None:
        raise block.refuse(name, "text")
    return text


def _named(block: Fields, name: str) -> str:
    text = block.text(name)
    if not text:
        raise block.refuse(name, "text that is not empty")
    return text
