"""A conversation as a chat template is given it: messages, tools, and how the prompt is to end.

It knows roles and no field of any request; tools and arguments are JSON values that were checked before. Nothing here is text to
be trusted: all of it is what people and tools wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in the assistant's turn. `arguments` is the parsed JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `role` is one of the known ones; `name` is who spoke, or which tool answers the call `tool_call_id`."""

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one prompt is made of.

    `tools` are function objects as OpenAI writes them, None without any. The prompt ends with the opened turn of the assistant when
    `adds_generation_prompt`, or inside the last message, which is the assistant's, when `continues_final_message`. `variables` are
    further names that the template may look at.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    adds_generation_prompt: bool = True
    continues_final_message: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)
