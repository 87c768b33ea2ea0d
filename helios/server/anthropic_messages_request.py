"""The body of `POST /v1/messages`, checked into the same ChatRequest that chat has.

It knows the Anthropic API's field names and nothing of templates, tokens or events. Thinking that was not enabled is switched off
where the template can, and is not shown in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.conversation import Conversation, Message
from helios.prompt.grammar.request import (
    AnswerForm,
    Form,
    StructuredRequest,
    Tool,
    read_tool,
    read_tool_choice,
    read_tools,
)
from helios.server.anthropic_messages_input import read_turns
from helios.server.chat_request import ChatRequest, check_form
from helios.server.conversation_fields import object_fields
from helios.server.fields import Fields
from helios.server.options import ANY_COUNT, Limits, read_options
from helios.server.template_fields import read_effort, thinking_variables
from helios.server.unserved import OTHER_APIS, Neutral, refuse_unserved

_UNSERVED: Neutral = {
    **OTHER_APIS, "stop": ([],), "top_logprobs": (), "parallel_tool_calls": (), "instructions": (), "input": (),
    "container": (), "mcp_servers": ([],), "speed": ("standard",),
}  # fmt: skip
_STOPS = "stop_sequences"
CHOICES: Mapping[str, Any] = {"auto": "auto", "any": "required", "none": "none"}
DISPLAYS = ("summarized", "omitted")
EDIT_PREFIX = "clear_thinking_"


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """What to generate, and whether the client is shown what the model thinks."""

    chat: ChatRequest
    shows_thinking: bool


@dataclass(frozen=True, slots=True)
class _Thinking:
    is_shown: bool
    variables: Mapping[str, Any]


def read_message_request(fields: Fields, limits: Limits, new_seed: int) -> MessageRequest:
    """Check a request body; raises RequestError naming the field. `new_seed` is used when the request gives none."""
    if fields.value("max_tokens") is None:
        raise fields.refuse("max_tokens", "the most tokens to generate")
    return _read_request(fields, limits, new_seed)


def read_countable_request(fields: Fields, limits: Limits, new_seed: int) -> ChatRequest:
    """The same body where nothing is generated, so without a limit."""
    return _read_request(fields, limits, new_seed).chat


def _read_request(fields: Fields, limits: Limits, new_seed: int) -> MessageRequest:
    refuse_unserved(fields, _UNSERVED)
    _check_edits(fields)
    options = read_options(fields, limits, limit_names=("max_tokens",), new_seed=new_seed, stop_name=_STOPS)
    structured = _read_structured(fields)
    check_form(structured, options, limits, stop_name=_STOPS)
    thinking = _read_thinking(fields)
    messages = read_turns(fields)
    continues = _continues(messages)
    conversation = Conversation(
        messages=messages,
        tools=tuple(map(_shown_tool, fields.list("tools") or ())) if structured.callable_tools else None,
        adds_generation_prompt=not continues,
        continues_final_message=continues,
        variables={**thinking.variables, **_read_effort(fields)},
    )
    return MessageRequest(ChatRequest(conversation, structured, options), thinking.is_shown)


def _check_edits(fields: Fields) -> None:
    """What is left of earlier thinking the template decides; nothing else of a conversation is ever cleared here."""
    management = fields.object("context_management")
    edits = [] if management is None else management.list("edits") or []
    for index, edit in enumerate(edits):
        kind = object_fields(edit, f"context_management.edits[{index}]").text("type") or ""
        if not kind.startswith(EDIT_PREFIX):
            param = f"context_management.edits[{index}].type"
            raise InvalidValueError(
                f"{param} is {kind[:40]!r}, which is not supported", hint="leave it out", param=param
            )


def _continues(messages: tuple[Message, ...]) -> bool:
    """A last message of the assistant is the beginning of the answer."""
    last = messages[-1]
    if last.role == "assistant" and last.tool_calls:
        raise InvalidValueError(
            "messages end with a call that has no result", hint="add its tool_result", param="messages"
        )
    return last.role == "assistant"


def _read_thinking(fields: Fields) -> _Thinking:
    """The budget is told to the template and not enforced: `max_tokens` bounds thinking and answer together."""
    thinking = fields.object("thinking")
    if thinking is None:
        return _Thinking(False, thinking_variables(False))
    display = thinking.text("display")
    if display not in (None, *DISPLAYS):
        raise thinking.refuse("display", "one of " + ", ".join(DISPLAYS))
    is_shown = display != "omitted"
    match thinking.text("type"):
        case "disabled":
            return _Thinking(False, thinking_variables(False))
        case "adaptive":
            return _Thinking(is_shown, thinking_variables(True))
        case "enabled":
            n_budget = thinking.integer("budget_tokens", 1, ANY_COUNT)
            budget = {} if n_budget is None else {"thinking_budget": n_budget}
            return _Thinking(is_shown, thinking_variables(True) | budget)
    raise thinking.refuse("type", "'enabled', 'adaptive' or 'disabled'")


def _read_effort(fields: Fields) -> dict[str, Any]:
    config = fields.object("output_config")
    return {} if config is None else read_effort(config, "effort")


def _read_structured(fields: Fields) -> StructuredRequest:
    tools = read_tools(fields.value("tools"), _read_tool)
    choice = fields.object("tool_choice")
    if choice is None:
        return StructuredRequest(_read_form(fields), tools, *read_tool_choice(None, tools))
    use = read_tool_choice(_chat_choice(choice), tools)
    return StructuredRequest(
        _read_form(fields), tools, *use, is_parallel=not choice.boolean("disable_parallel_tool_use")
    )


def _chat_choice(choice: Fields) -> Any:
    """The choice as chat writes it."""
    kind = choice.text("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.text("name")}}
    if kind is None or kind not in CHOICES:
        raise choice.refuse("type", "'auto', 'any', 'tool' or 'none'")
    return CHOICES[kind]


def _read_tool(table: Mapping[str, Any], place: str) -> Tool:
    if table.get("type") not in (None, "custom"):
        param = f"{place}.type"
        raise InvalidValueError(
            f"{param} is {str(table['type'])[:40]!r}, which is not supported",
            hint="this server calls no tools itself; give a name and an input_schema",
            param=param,
        )
    if table.get("input_schema") is None:
        param = f"{place}.input_schema"
        raise InvalidValueError(f"{param} must be a JSON schema", param=param)
    return read_tool(table, place, "input_schema")


def _shown_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function as chat templates know it."""
    description = {} if tool.get("description") is None else {"description": tool["description"]}
    function = {"name": tool["name"], **description, "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _read_form(fields: Fields) -> AnswerForm | None:
    config = fields.object("output_config")
    form = None if config is None else config.object("format")
    if form is None:
        return None
    if form.text("type") != "json_schema":
        raise form.refuse("type", "'json_schema'")
    schema = form.object("schema")
    if schema is None:
        raise form.refuse("schema", "a JSON schema")
    return AnswerForm(Form.JSON_SCHEMA, schema.table, form.param("schema"))
