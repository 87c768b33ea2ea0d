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
    """Effort is told by name; "none" also under the names by which templates switch reasoning off."""
    effort = fields.text("reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise fields.refuse("reasoning_effort", "one of " + ", ".join(EFFORTS))
    given = fields.object("chat_template_kwargs")
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    if effort == "none":
        variables |= {"enable_thinking": False, "thinking": False}
    if given is not None:
        for name in given.table:
            checked_text(name, "chat_template_kwargs")
        variables |= given.table
    return variables
