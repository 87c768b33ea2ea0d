"""The body of `POST /v1/responses`, checked into the same ChatRequest that chat has.

It knows the Responses API's field names and nothing of templates, tokens or events. The server keeps nothing, so whatever asks for
something kept is refused by name; what is echoed in the response is what the request said, with the defaults that hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.conversation import Conversation
from helios.prompt.grammar.request import (
    AnswerForm,
    Form,
    StructuredRequest,
    Tool,
    read_tool,
    read_tool_choice,
    read_tools,
)
from helios.server.chat_request import ChatRequest, check_form
from helios.server.fields import Fields
from helios.server.openai_responses_input import read_input
from helios.server.options import MAX_CANDIDATES, GenerationOptions, Limits, read_options
from helios.server.template_fields import read_effort
from helios.server.unserved import OTHER_APIS, Neutral, refuse_unserved

_KEPT: Neutral = {"store": (False,), "previous_response_id": (), "conversation": (), "background": (False,)}
_UNSERVED: Neutral = {
    **OTHER_APIS, "messages": (), "max_tokens": (), "prompt": (), "truncation": ("disabled",), "context_management": ([],),
    "moderation": (),
}  # fmt: skip
_LOGPROBS = "message.output_text.logprobs"
MAX_METADATA, MAX_KEY, MAX_VALUE = 16, 64, 512  # OpenAI's
VERBOSITIES = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """What to generate, and the fields of the response that repeat the request."""

    chat: ChatRequest
    echo: Mapping[str, Any]


def read_response_request(fields: Fields, limits: Limits, new_seed: int) -> ResponseRequest:
    """Check a request body; raises RequestError naming the field. `new_seed` is used when the request gives none."""
    refuse_unserved(fields, _KEPT, hint="it keeps nothing, so give the whole conversation as input")
    refuse_unserved(fields, _UNSERVED)
    options = read_options(fields, limits, limit_names=("max_output_tokens",), new_seed=new_seed)
    sampling = dataclasses.replace(options.sampling, candidates=_read_candidates(fields))
    options = dataclasses.replace(options, sampling=sampling)
    structured = _read_structured(fields)
    check_form(structured, options, limits)
    conversation = Conversation(
        messages=read_input(fields),
        tools=tuple(map(_shown_tool, fields.list("tools") or ())) if structured.callable_tools else None,
        variables=_read_variables(fields),
    )
    return ResponseRequest(ChatRequest(conversation, structured, options), _echo(fields, structured, options))


def _read_candidates(fields: Fields) -> int | None:
    """Alternatives to report for each token, None unless log-probabilities are included."""
    n_candidates = fields.integer("top_logprobs", 0, MAX_CANDIDATES)
    is_asked = _LOGPROBS in (fields.list("include") or ())
    if n_candidates and not is_asked:
        raise InvalidValueError(f"top_logprobs needs {_LOGPROBS!r} in include", param="top_logprobs")
    return (n_candidates or 0) if is_asked else None


def _read_structured(fields: Fields) -> StructuredRequest:
    tools = read_tools(fields.value("tools"), _read_tool)
    tool_use, named = read_tool_choice(_chat_choice(fields.value("tool_choice")), tools)
    is_parallel = fields.value("parallel_tool_calls") is None or fields.boolean("parallel_tool_calls")
    return StructuredRequest(_read_form(fields), tools, tool_use, named, is_parallel)


def _read_tool(table: Mapping[str, Any], place: str) -> Tool:
    kind = table.get("type")
    if kind != "function":
        param = f"{place}.type"
        raise InvalidValueError(
            f"{param} is {str(kind)[:40]!r}, which is not supported",
            hint="this server calls no tools itself and takes functions only",
            param=param,
        )
    return read_tool(table, place)


def _chat_choice(value: Any) -> Any:
    """A named function as chat writes it."""
    if isinstance(value, dict) and value.get("type") == "function":
        return {"type": "function", "function": {"name": value.get("name")}}
    return value


def _read_form(fields: Fields) -> AnswerForm | None:
    text = fields.object("text")
    form = None if text is None else text.object("format")
    if form is None:
        return None
    match form.text("type"):
        case "text":
            return None
        case "json_object":
            return AnswerForm(Form.JSON_OBJECT, None, "text.format")
        case "json_schema":
            form.boolean("strict")
            schema = form.object("schema")
            if schema is None:
                raise form.refuse("schema", "a JSON schema")
            return AnswerForm(Form.JSON_SCHEMA, schema.table, form.param("schema"))
    raise form.refuse("type", "'text', 'json_object' or 'json_schema'")


def _read_variables(fields: Fields) -> dict[str, Any]:
    """Effort and verbosity are told to the template by name. A summary of the reasoning is never made: the text itself is shown."""
    reasoning, text = fields.object("reasoning"), fields.object("text")
    verbosity = None if text is None else text.text("verbosity")
    if text is not None and verbosity is not None and verbosity not in VERBOSITIES:
        raise text.refuse("verbosity", "one of " + ", ".join(VERBOSITIES))
    effort = {} if reasoning is None else read_effort(reasoning, "effort")
    return effort if verbosity is None else effort | {"verbosity": verbosity}


def _shown_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function as chat templates know it."""
    known = {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None}
    return {"type": "function", "function": known}


def _echo(fields: Fields, structured: StructuredRequest, options: GenerationOptions) -> dict[str, Any]:
    reasoning, text = fields.value("reasoning") or {}, fields.value("text") or {}
    tools = zip(fields.list("tools") or (), structured.tools, strict=True)
    return {
        "background": False,
        "instructions": fields.value("instructions"),
        "max_output_tokens": options.output_limit,
        "metadata": _read_metadata(fields),
        "parallel_tool_calls": structured.is_parallel,
        "previous_response_id": None,
        "prompt_cache_key": fields.text("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "safety_identifier": fields.text("safety_identifier"),
        "service_tier": "default",
        "store": False,
        "temperature": options.sampling.temperature,
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": text.get("verbosity")},
        "tool_choice": fields.value("tool_choice") or "auto",
        "tools": [_echoed_tool(given, tool) for given, tool in tools],
        "top_logprobs": options.sampling.candidates or 0,
        "top_p": options.sampling.top_p,
        "truncation": "disabled",
        "user": fields.text("user"),
    }


def _echoed_tool(given: Mapping[str, Any], tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": given.get("description"),
        "parameters": tool.parameters,
        "strict": tool.is_strict,
    }


def _read_metadata(fields: Fields) -> dict[str, Any]:
    metadata = fields.object("metadata")
    if metadata is None:
        return {}
    if len(metadata.table) > MAX_METADATA:
        raise fields.refuse("metadata", f"an object of at most {MAX_METADATA} texts")
    for name in metadata.table:
        value = metadata.text(name)
        if len(name) > MAX_KEY or value is None or len(value) > MAX_VALUE:
            limits = f"names of at most {MAX_KEY} characters with texts of at most {MAX_VALUE}"
            raise InvalidValueError(f"metadata must have {limits}", param="metadata")
    return dict(metadata.table)
