"""The `messages` of a request body, checked into Messages.

It knows the OpenAI field names of every role and nothing of templates. What the server itself answers is accepted as history:
null content, reasoning, and calls whose arguments are JSON text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.conversation import Message, ToolCall
from helios.server.fields import Fields, checked_text, fault_of, parse_json

# OpenAI renamed `system` to `developer`; templates know the old name.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
REASONING_NAMES = ("reasoning_content", "reasoning")
UNSERVED = ("function_call", "audio")
PART_TYPES = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def read_messages(fields: Fields) -> tuple[Message, ...]:
    """The `messages` list, which may not be empty."""
    values = fields.list("messages")
    if not values:
        raise fields.refuse("messages", "a list of at least one message")
    return with_tool_names(list(_read_all(values)))


def _read_all(values: Sequence[Any]) -> Iterator[Message]:
    for index, value in enumerate(values):
        yield _read_message(object_fields(value, f"messages[{index}]"))


def with_tool_names(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Results get the name of the tool that they came from, which some templates show."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        is_named = message.role != "tool" or message.name is not None
        name = message.name if is_named else names.get(message.tool_call_id or "")
        named.append(dataclasses.replace(message, name=name))
    return tuple(named)


def _read_message(fields: Fields) -> Message:
    role = fields.text("role")
    if role not in ROLES:
        raise fields.refuse("role", "one of " + ", ".join(ROLES))
    for name in UNSERVED:
        _refuse(fields, name)
    is_assistant, is_tool = role == "assistant", role == "tool"
    for name in () if is_assistant else ("tool_calls",):
        _refuse(fields, name)
    return Message(
        role=ROLES[role],
        content=read_content(fields, "content", is_optional=is_assistant),
        reasoning=_read_reasoning(fields) if is_assistant else None,
        tool_calls=tuple(_read_calls(fields)) if is_assistant else (),
        tool_call_id=fields.text("tool_call_id") if is_tool else None,
        name=fields.text("name") or None,
    )


def _refuse(fields: Fields, name: str) -> None:
    if fields.value(name):
        param = fields.param(name)
        raise InvalidValueError(f"{param} is not supported by this server", hint="leave it out", param=param)


def _read_reasoning(fields: Fields) -> str | None:
    """What the assistant thought, under either of the names that servers give it."""
    texts = [fields.text(name) for name in REASONING_NAMES]
    return next((text for text in texts if text), None)


def read_content(fields: Fields, name: str, *, is_optional: bool = False) -> str:
    """The text in field `name`: given whole, or as a list of text parts, which are joined."""
    content = fields.value(name)
    if content is None and is_optional:
        return ""
    if isinstance(content, str):
        return fields.text(name) or ""
    if not isinstance(content, list):
        raise fields.refuse(name, "text or a list of parts")
    base = fields.param(name)
    return "".join(_read_part(part, f"{base}[{index}]") for index, part in enumerate(content))


def _read_part(part: Any, param: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidValueError(f"{param} must be an object with a type", param=param)
    name = PART_TYPES.get(part["type"])
    if name is None:
        kind = part["type"][:40]
        raise InvalidValueError(f"{param} has the type {kind!r}", hint="this server takes text parts only", param=param)
    if not isinstance(part.get(name), str):
        raise InvalidValueError(f"{param}.{name} must be text", param=f"{param}.{name}")
    return checked_text(part[name], f"{param}.{name}")


def _read_calls(fields: Fields) -> Iterator[ToolCall]:
    for index, value in enumerate(fields.list("tool_calls") or []):
        yield _read_call(object_fields(value, f"{fields.param('tool_calls')}[{index}]"))


def _read_call(fields: Fields) -> ToolCall:
    if fields.text("type") not in (None, "function"):
        raise fields.refuse("type", "'function'")
    function = fields.object("function")
    if function is None:
        raise fields.refuse("function", "an object with name and arguments")
    name = function.text("name")
    if not name:
        raise function.refuse("name", "the name of a function")
    return ToolCall(fields.text("id") or "", name, read_arguments(function))


def read_arguments(function: Fields) -> dict[str, Any]:
    """Arguments are JSON text of an object; no text at all is an object of nothing."""
    text = function.text("arguments")
    if not text or text.isspace():
        return {}
    param = function.param("arguments")
    try:
        arguments = parse_json(text)
    except json.JSONDecodeError as error:
        raise InvalidValueError(f"{param} is not JSON: {fault_of(error)}", param=param) from error
    except (RecursionError, ValueError) as error:
        raise InvalidValueError(f"{param} is not JSON that can be read", param=param) from error
    if not isinstance(arguments, dict):
        raise InvalidValueError(f"{param} must be the JSON of an object", param=param)
    checked_text(json.dumps(arguments, ensure_ascii=False), param)
    return arguments


def object_fields(value: Any, param: str) -> Fields:
    """The fields of an object in a list, which stands at `param`."""
    if not isinstance(value, dict):
        raise InvalidValueError(f"{param} must be an object", param=param)
    return Fields(value, f"{param}.")
