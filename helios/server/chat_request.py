"""The body of `POST /v1/chat/completions`, checked into a typed ChatRequest.

It knows the OpenAI field names and nothing of templates, tokens or responses. What it returns is complete: no later step
looks at the JSON again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.conversation import Message
from helios.server.fields import Fields, checked_text
from helios.server.options import MAX_CANDIDATES, GenerationOptions, Limits, read_options

# OpenAI renamed `system` to `developer`; templates know the old name.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to continue and how."""

    messages: tuple[Message, ...]
    options: GenerationOptions


def read_chat_request(fields: Fields, limits: Limits, new_seed: int) -> ChatRequest:
    """Check a request body; raises RequestError naming the field. `new_seed` is used when the request gives none."""
    options = read_options(fields, limits, limit_names=("max_completion_tokens", "max_tokens"), new_seed=new_seed)
    sampling = dataclasses.replace(options.sampling, candidates=_read_candidates(fields))
    return ChatRequest(tuple(read_messages(fields)), dataclasses.replace(options, sampling=sampling))


def read_messages(fields: Fields) -> Iterator[Message]:
    """The `messages` list, which may not be empty."""
    values = fields.list("messages")
    if not values:
        raise fields.refuse("messages", "a list of at least one message")
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise InvalidValueError(f"messages[{index}] must be an object", param=f"messages[{index}]")
        yield _read_message(Fields(value, f"messages[{index}]."))


def _read_candidates(fields: Fields) -> int | None:
    """Alternatives to report for each token: None without `logprobs`, else `top_logprobs` or 0."""
    is_asked = fields.boolean("logprobs")
    n_candidates = fields.integer("top_logprobs", 0, MAX_CANDIDATES)
    if n_candidates and not is_asked:
        raise InvalidValueError("top_logprobs needs logprobs to be true", param="top_logprobs")
    return (n_candidates or 0) if is_asked else None


def _read_message(fields: Fields) -> Message:
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.refuse("role", "one of " + ", ".join(_ROLES))
    for name in ("tool_calls", "function_call", "audio"):
        if fields.value(name):
            param = fields.refuse(name, "").param
            raise InvalidValueError(f"{param} is not supported by this server", hint="leave it out", param=param)
    return Message(_ROLES[role], _read_content(fields))


def _read_content(fields: Fields) -> str:
    """A message's text: given whole, or as a list of text parts, which are joined."""
    content = fields.value("content")
    if isinstance(content, str):
        return fields.text("content") or ""
    if not isinstance(content, list):
        raise fields.refuse("content", "text or a list of parts")
    base = fields.refuse("content", "").param
    return "".join(_read_part(part, f"{base}[{index}]") for index, part in enumerate(content))


def _read_part(part: Any, param: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidValueError(f"{param} must be an object with a type", param=param)
    if part["type"] != "text":
        kind = part["type"][:40]
        raise InvalidValueError(f"{param} has the type {kind!r}", hint="this server takes text parts only", param=param)
    if not isinstance(part.get("text"), str):
        raise InvalidValueError(f"{param}.text must be text", param=f"{param}.text")
    return checked_text(part["text"], f"{param}.text")
