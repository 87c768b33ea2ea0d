"""A conversation rendered by the model's own Jinja template and turned into tokens.

It knows no HTTP, no limits and no model names. The template runs in a sandbox without host objects and within a budget; what it
spells as control tokens becomes control tokens, and what people, tools and other callers wrote never does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import jinja2
import jinja2.exceptions
import jinja2.meta

from helios.errors import ContractError, InvalidValueError
from helios.prompt.budget import BudgetError, RenderingBudget
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation, Message
from helios.prompt.sandbox import BUDGET, SHIELD, RefusalError, TemplateEnvironment
from helios.prompt.shield import Shield

# What a rendering defines itself; nobody else may.
RESERVED = ("messages", "tools", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token")
# Words of function objects that templates look up and compare with. Not one of them is a control token by itself.
_SCHEMA_WORDS = frozenset(
    (
        *("type", "function", "name", "description", "parameters", "strict", "properties", "required", "items", "enum"),
        *("anyOf", "oneOf", "allOf", "const", "default", "format", "additionalProperties", "$ref", "$defs", "title"),
        *("nullable", "return", "object", "array", "string", "number", "integer", "boolean", "null"),
    )
)
_MAX_MESSAGE_CHARACTERS = 500


class ChatTemplate:
    """The compiled template of one model. Safe to use from several threads; `clock` tells it the date."""

    def __init__(
        self,
        source: str,
        controls: ControlTokens,
        *,
        bos_text: str,
        eos_text: str,
        clock: Callable[[], datetime],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._controls = controls
        self._constants = {"bos_token": bos_text, "eos_token": eos_text}
        self._timer = timer
        environment = TemplateEnvironment(clock)
        try:
            self._template = environment.from_string(source)
            names = jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:  # syntax, or a filter that there is not
            line = getattr(error, "lineno", None) or 1
            raise ContractError(f"the chat template does not compile, line {line}: {error.message}") from error
        except Exception as error:  # nested deeper than the parser goes, or than the Python that it becomes may be
            raise ContractError(
                f"the chat template does not compile: {type(error).__name__}: {str(error)[:_MAX_MESSAGE_CHARACTERS]}"
            ) from error
        self.takes_tools = "tools" in names
        self.reserved_names = frozenset(RESERVED).union(environment.globals)

    def encode(self, conversation: Conversation, most_tokens: int | None = None) -> list[int]:
        """The prompt tokens of a conversation. InvalidValueError when the template does not take it, ContextLengthError where its
        text surely has more than `most_tokens`."""
        self._check(conversation)
        shield = Shield(self._controls.spellings, _texts(conversation), self._source)
        text = self._render(conversation, shield)
        if most_tokens is not None:
            self._controls.check_length(shield.uncover(text) if shield.is_used else text, most_tokens)
        if not shield.is_used:
            return self._controls.encode(text)
        tokens: list[int] = []
        for index, piece in enumerate(self._controls.spellings.split(text)):
            is_control = index % 2 == 1
            tokens += self._controls.encode(piece) if is_control else self._controls.encode_plain(shield.uncover(piece))
        return tokens

    def _check(self, conversation: Conversation) -> None:
        if conversation.tools is not None and not self.takes_tools:
            raise InvalidValueError("this model's chat template takes no tools", hint="leave them out", param="tools")
        for name in conversation.variables:
            if name in self.reserved_names:
                raise InvalidValueError(
                    f"chat_template_kwargs has {name[:100]!r}, which the prompt itself defines",
                    param="chat_template_kwargs",
                )

    def _render(self, conversation: Conversation, shield: Shield) -> str:
        """The text of the prompt, people's texts covered by `shield`; it ends where the assistant goes on."""
        mark = shield.take_mark() if conversation.continues_final_message else None
        budget = RenderingBudget(sum(map(len, _texts(conversation))), self._timer)
        context = {
            **{name: shield.cover_value(value) for name, value in conversation.variables.items()},
            **self._constants,
            "messages": list(_covered(conversation.messages, shield, mark or "")),
            "tools": _covered_tools(conversation, shield),
            "add_generation_prompt": conversation.adds_generation_prompt,
            "continue_final_message": conversation.continues_final_message,
            BUDGET: budget,
            SHIELD: shield,
        }
        text = self._run(context, budget)
        return text if mark is None else _up_to(text, mark)

    def _run(self, context: Mapping[str, Any], budget: RenderingBudget) -> str:
        pieces = []
        try:
            for piece in self._template.generate(context):
                budget.characters(len(piece))
                pieces.append(piece)
        except RefusalError as refusal:
            raise InvalidValueError(str(refusal)[:_MAX_MESSAGE_CHARACTERS], param="messages") from refusal
        except (jinja2.exceptions.SecurityError, jinja2.TemplateNotFound, BudgetError) as error:
            says = f"it includes {error}" if isinstance(error, jinja2.TemplateNotFound) else str(error)
            raise ContractError(f"the chat template may not do this: {says[:_MAX_MESSAGE_CHARACTERS]}") from error
        except Exception as error:  # a template is a program from the core: what it raises can be anything
            raise InvalidValueError(
                f"the chat template cannot render these messages: {str(error)[:_MAX_MESSAGE_CHARACTERS]}",
                param="messages",
            ) from error
        return "".join(pieces)


def _up_to(text: str, mark: str) -> str:
    """The prompt of a continuation: all of it up to the end of what the last message says."""
    before, found, after = text.partition(mark)
    if not found or mark in after:
        raise InvalidValueError(
            "the chat template does not show the last message once, so it cannot be continued",
            param="continue_final_message",
        )
    return before


def _covered(messages: tuple[Message, ...], shield: Shield, mark: str) -> Iterator[dict[str, Any]]:
    """Messages as templates expect them; the last one's text ends with `mark`."""
    for index, message in enumerate(messages):
        is_last = index == len(messages) - 1
        ends_in_reasoning = not message.content and message.reasoning is not None
        yield _covered_message(
            message,
            shield,
            mark if is_last and not ends_in_reasoning else "",
            mark if is_last and ends_in_reasoning else "",
        )


def _covered_message(message: Message, shield: Shield, mark: str, reasoning_mark: str) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": shield.cover(message.content) + mark}
    if message.reasoning is not None:
        turn["reasoning_content"] = turn["reasoning"] = shield.cover(message.reasoning) + reasoning_mark
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": shield.cover(call.id),
                "type": "function",
                "function": {"name": shield.cover(call.name), "arguments": shield.cover_value(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = shield.cover(message.tool_call_id)
    if message.name is not None:
        turn["name"] = shield.cover(message.name)
    return turn


def _covered_tools(conversation: Conversation, shield: Shield) -> list[Any] | None:
    if conversation.tools is None:
        return None
    return [shield.cover_value(tool, _SCHEMA_WORDS) for tool in conversation.tools]


def _texts(conversation: Conversation) -> Iterator[str]:
    """Every text in a conversation that somebody wrote."""
    for message in conversation.messages:
        yield message.content
        yield from (text for text in (message.reasoning, message.tool_call_id, message.name) if text is not None)
        for call in message.tool_calls:
            yield from (call.id, call.name)
            yield from _value_texts(call.arguments)
    yield from _value_texts(conversation.tools)
    yield from _value_texts(conversation.variables)


def _value_texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)
