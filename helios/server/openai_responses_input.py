"""The `instructions` and `input` of a response's body, checked into Messages.

It knows the items of the Responses API that are conversation: messages, function calls, their outputs, reasoning. Items of one turn
become one message, and what the server itself answers is accepted as history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from helios.errors import InvalidValueError
from helios.prompt.conversation import Message, ToolCall
from helios.server.conversation_fields import object_fields, read_arguments, read_content, with_tool_names
from helios.server.conversation_turns import joined_turns
from helios.server.fields import Fields

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def read_input(fields: Fields) -> tuple[Message, ...]:
    """The conversation, instructions first."""
    return with_tool_names(joined_turns(_read_all(fields), _is_one_turn))


def _is_one_turn(turn: Message, message: Message) -> bool:
    """An assistant's turn is reasoning, then text, then calls. Instructions before the conversation are one system message."""
    if turn.role != message.role:
        return False
    if turn.role == "assistant":
        return bool(message.tool_calls) or not (turn.content or turn.tool_calls)
    return turn.role == "system"


def _read_all(fields: Fields) -> Iterator[Message]:
    instructions = fields.text("instructions")
    if instructions:
        yield Message("system", instructions)
    items = fields.value("input")
    if isinstance(items, str):
        yield Message("user", fields.text("input") or "")
        return
    if not isinstance(items, list) or not items:
        raise fields.refuse("input", "text or a list of at least one item")
    for index, item in enumerate(items):
        yield _read_item(object_fields(item, f"input[{index}]"))


def _read_item(fields: Fields) -> Message:
    """An item; one without a type is a message."""
    kind = fields.text("type") or "message"
    if kind not in READERS:
        param = fields.param("type")
        hint = "give the item itself" if kind == "item_reference" else f"this server takes {', '.join(READERS)}"
        raise InvalidValueError(f"{param} is {kind[:40]!r}, which is not supported", hint=hint, param=param)
    return READERS[kind](fields)


def _read_message(fields: Fields) -> Message:
    role = fields.text("role")
    if role not in ROLES:
        raise fields.refuse("role", "one of " + ", ".join(ROLES))
    return Message(ROLES[role], read_content(fields, "content"))


def _read_call(fields: Fields) -> Message:
    call = ToolCall(_required(fields, "call_id"), _required(fields, "name"), read_arguments(fields))
    return Message("assistant", "", tool_calls=(call,))


def _read_output(fields: Fields) -> Message:
    return Message("tool", read_content(fields, "output"), tool_call_id=_required(fields, "call_id"))


def _read_reasoning(fields: Fields) -> Message:
    """The text in `content`. A summary is not what the model thought, and encrypted reasoning nobody here can read."""
    parts = fields.list("content") or []
    texts = [_read_thought(object_fields(part, f"{fields.param('content')}[{i}]")) for i, part in enumerate(parts)]
    return Message("assistant", "", reasoning="".join(texts) or None)


def _read_thought(fields: Fields) -> str:
    if fields.text("type") != "reasoning_text":
        raise fields.refuse("type", "'reasoning_text'")
    return _required(fields, "text", is_empty_allowed=True)


def _required(fields: Fields, name: str, *, is_empty_allowed: bool = False) -> str:
    text = fields.text(name)
    if text is None or not (text or is_empty_allowed):
        raise fields.refuse(name, "text" if is_empty_allowed else "text that is not empty")
    return text


READERS: Mapping[str, Callable[[Fields], Message]] = {
    "message": _read_message,
    "function_call": _read_call,
    "function_call_output": _read_output,
    "reasoning": _read_reasoning,
}
