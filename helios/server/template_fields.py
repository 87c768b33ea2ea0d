"""What a caller may say about how a conversation becomes a prompt.

It knows the fields and no template; names that a prompt defines itself are the template's to refuse. A prompt either opens a new
turn or continues the last one, never both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.conversation import Message
from helios.server.fields import Fields, checked_text

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class PromptEnding:
    """How the prompt ends, and the further variables of its template."""

    adds_generation_prompt: bool
    continues_final_message: bool
    variables: Mapping[str, Any]


def read_prompt_ending(fields: Fields, messages: tuple[Message, ...]) -> PromptEnding:
    """`add_generation_prompt`, `continue_final_message`, `chat_template_kwargs` and `reasoning_effort`."""
    continues = fields.boolean("continue_final_message")
    wanted = None if fields.value("add_generation_prompt") is None else fields.boolean("add_generation_prompt")
    if continues and wanted:
        raise InvalidValueError(
            "continue_final_message cannot be combined with add_generation_prompt", param="continue_final_message"
        )
    if continues and (messages[-1].role != "assistant" or messages[-1].tool_calls):
        raise InvalidValueError(
            "continue_final_message needs a last message of the assistant without calls", param="continue_final_message"
        )
    return PromptEnding(not continues if wanted is None else wanted, continues, _read_variables(fields))


def _read_variables(fields: Fields) -> dict[str, Any]:
    variables = read_effort(fields, "reasoning_effort")
    given = fields.object("chat_template_kwargs")
    if given is not None:
        for name in given.table:
            checked_text(name, "chat_template_kwargs")
        variables |= given.table
    return variables


def read_effort(fields: Fields, name: str) -> dict[str, Any]:
    """Effort is told to templates by name; "none" also under the names by which they switch reasoning off."""
    effort = fields.text(name)
    if effort is None:
        return {}
    if effort not in EFFORTS:
        raise fields.refuse(name, "one of " + ", ".join(EFFORTS))
    return {"reasoning_effort": effort} | (thinking_variables(False) if effort == "none" else {})


def thinking_variables(is_wanted: bool) -> dict[str, Any]:
    """The names by which templates switch reasoning on and off."""
    return {"enable_thinking": is_wanted, "thinking": is_wanted}
