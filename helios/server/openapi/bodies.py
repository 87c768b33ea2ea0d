"""The request bodies of every endpoint as JSON schemas.

It knows the readers and, where a reader looks at a value itself, the form of that value. A body that breaks its schema is refused;
one that keeps to it may still be, where fields contradict each other or the model lacks what they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from helios.prompt.grammar.request import MAX_CHOICES as MAX_WORDS
from helios.prompt.grammar.request import MAX_TOOLS, read_structured
from helios.server.anthropic_messages_request import read_countable_request, read_message_request
from helios.server.chat_request import read_chat_request, read_conversation
from helios.server.completion_request import read_completion_request
from helios.server.conversation_fields import PART_TYPES
from helios.server.fields import Fields
from helios.server.openai_responses_request import read_response_request
from helios.server.openapi.noted import Schema, noted_properties
from helios.server.options import MAX_BIASES, MAX_CHOICES, MAX_SALT_CHARACTERS, Limits
from helios.server.stop_fields import MAX_SEQUENCE_TOKENS, MAX_SEQUENCES, MAX_STOP_TOKENS, MAX_STOPS
from helios.server.template_fields import EFFORTS
from helios.server.unserved import CHAT, COMPLETIONS, Neutral

_TEXT: Schema = {"type": "string", "minLength": 1}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
_HELLO = [{"role": "user", "content": "Hello"}]
_INSIDE: dict[str, Any] = {"stream_options": {}}  # its fields are asked for only where it is there


def request_bodies(limits: Limits) -> dict[str, Schema]:
    """The body of each path that takes one, for a model of these limits."""
    chat = _properties(lambda fields: read_chat_request(fields, limits, 0), _chat_example(), _chat_fields(limits), CHAT)
    plain = _properties(
        lambda fields: read_completion_request(fields, limits, 0),
        {"prompt": "Hello", **_INSIDE},
        _plain_fields(limits),
        COMPLETIONS,
    )
    messages = {"model": limits.served_id, "messages": _HELLO, "max_tokens": 1}
    return {
        "/v1/chat/completions": _object(chat, ["messages"], [_chat_example(), _chat_example() | {"stream": True}]),
        "/v1/chat/completions/render": _object(chat, ["messages"], [_chat_example()]),
        "/v1/completions": _object(plain, ["prompt"], [{"prompt": "Once upon a time", "max_tokens": 8}]),
        "/v1/completions/render": _object(plain, ["prompt"], [{"prompt": "Once upon a time", "max_tokens": 8}]),
        "/v1/responses": _object(
            _properties(lambda fields: read_response_request(fields, limits, 0), {"input": "Hello"}, _common(limits)),
            ["input"],
            [{"input": "Hello", "max_output_tokens": 8}],
        ),
        "/v1/messages": _object(
            _properties(lambda fields: read_message_request(fields, limits, 0), messages, _common(limits)),
            ["messages", "max_tokens"],
            [messages],
        ),
        "/v1/messages/count_tokens": _object(
            _properties(lambda fields: read_countable_request(fields, limits, 0), messages, _common(limits)),
            ["messages"],
            [{"messages": _HELLO}],
        ),
        "/tokenize": _tokenize(limits),
        "/detokenize": _object({"tokens": _array(_token_id(limits))}, ["tokens"], [{"tokens": [0]}]),
    }


def _properties(
    read: Callable[[Fields], object],
    example: Mapping[str, Any],
    written: Mapping[str, Schema],
    unserved: Neutral | None = None,
) -> dict[str, Schema]:
    """What is noted, with the forms that are written here for what no reader says in one call."""
    noted = noted_properties(read, example)
    neutral = {name: {"enum": [None, *values]} for name, values in (unserved or {}).items()}
    return {name: neutral.get(name, written.get(name, schema)) for name, schema in noted.items()}


def _chat_example() -> dict[str, Any]:
    return {"messages": _HELLO, "max_tokens": 8, "add_generation_prompt": True, **_INSIDE}


def _tokenize(limits: Limits) -> Schema:
    """A prompt or a conversation."""
    read: Callable[[Fields], object] = lambda fields: read_conversation(fields, read_structured(fields.table))  # noqa: E731
    flag: Schema = {"type": ["boolean", "null"]}
    conversation = _properties(read, {"messages": _HELLO, "add_generation_prompt": True}, _chat_fields(limits))
    spoken = _object({**conversation, "return_token_strs": flag}, ["messages"])
    prompt = {
        "prompt": {"type": "string"},
        "messages": {"type": "null"},
        "add_special_tokens": flag,
        "return_token_strs": flag,
    }
    return {"anyOf": [_object(prompt, ["prompt"]), spoken], "examples": [{"prompt": "Hello"}, {"messages": _HELLO}]}


def _common(limits: Limits) -> dict[str, Schema]:
    """Fields that mean the same in every API."""
    token_ids = _array(_token_id(limits))
    return {
        "model": {"enum": [limits.served_id, *limits.aliases, None]},
        "cache_salt": {**_MAYBE_TEXT, "minLength": 1, "maxLength": MAX_SALT_CHARACTERS},
        "reasoning_effort": {"enum": [*EFFORTS, None]},
        "stop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": MAX_STOPS}, {"type": "null"}]},
        "stop_token_ids": _or_null({**token_ids, "maxItems": MAX_STOP_TOKENS}),
        "stop_token_sequences": _or_null(
            {**_array({**token_ids, "minItems": 1, "maxItems": MAX_SEQUENCE_TOKENS}), "maxItems": MAX_SEQUENCES}
        ),
        "logit_bias": {
            "type": ["object", "null"],
            "maxProperties": MAX_BIASES,
            "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
    }


def _chat_fields(limits: Limits) -> dict[str, Schema]:
    return _common(limits) | _structured() | {"messages": {**_array(_message()), "minItems": 1}}


def _plain_fields(limits: Limits) -> dict[str, Schema]:
    tokens = {**_array(_token_id(limits)), "minItems": 1}
    prompts = {**_array({"anyOf": [_TEXT, tokens]}), "minItems": 1, "maxItems": MAX_CHOICES}
    forms = _structured()
    return {
        **_common(limits),
        "prompt": {"anyOf": [{"type": "string", "minLength": 1}, tokens, prompts]},
        "max_tokens": {
            "type": ["integer", "null"],
            "minimum": 0,
            "description": "0 with echo alone: the prompt's scores",
        },
        "response_format": forms["response_format"],
        "structured_outputs": forms["structured_outputs"],
    }


def _structured() -> dict[str, Schema]:
    """The forms of answers, and tools."""
    function: Schema = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"},
            "parameters": {"type": ["object", "null"]},
            "strict": {"type": ["boolean", "null"]},
        },
    }
    tool = _object({"type": {"const": "function"}, "function": function}, ["type", "function"])
    named = _object({"type": {"const": "function"}, "function": {"type": "object"}}, ["type", "function"])
    words = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_WORDS}
    return {
        "tools": _or_null({"type": "array", "items": tool, "maxItems": MAX_TOOLS}),
        "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required", None]}, named]},
        "parallel_tool_calls": {"type": ["boolean", "null"]},
        "response_format": {
            "type": ["object", "null"],
            "required": ["type"],
            "properties": {"type": {"enum": ["text", "json_object", "json_schema", "structural_tag"]}},
        },
        "structured_outputs": {
            "type": ["object", "null"],
            "minProperties": 1,
            "properties": {
                "json": {"type": ["object", "string", "boolean", "null"]},
                "regex": {"anyOf": [_TEXT, {"enum": [None, False]}]},
                "choice": {"anyOf": [words, {"enum": [None, False]}]},
                "grammar": {"anyOf": [_TEXT, {"enum": [None, False]}]},
                "json_object": {"type": ["boolean", "null"]},
                "structural_tag": {"type": ["object", "string", "boolean", "null"]},
            },
            "additionalProperties": {"enum": [None, False]},
        },
    }


def _message() -> Schema:
    """A message of any role: who may leave out the content, and who may call."""
    content = {"anyOf": [{"type": "string"}, _array(_part())]}
    shared = {"name": _MAYBE_TEXT, "content": content}
    call = _object(
        {
            "id": _MAYBE_TEXT,
            "type": {"enum": ["function", None]},
            "function": _object({"name": _TEXT, "arguments": _MAYBE_TEXT}, ["name"]),
        },
        ["function"],
    )
    spoken = {**shared, "role": {"enum": ["system", "developer", "user"]}}
    told = {**shared, "role": {"const": "tool"}, "tool_call_id": _MAYBE_TEXT}
    answered = {
        "name": _MAYBE_TEXT,
        "role": {"const": "assistant"},
        "content": {"anyOf": [*content["anyOf"], {"type": "null"}]},
        "reasoning_content": _MAYBE_TEXT,
        "tool_calls": _or_null(_array(call)),
    }
    return {
        "anyOf": [
            _object(spoken, ["role", "content"]),
            _object(told, ["role", "content"]),
            _object(answered, ["role"]),
        ]
    }


def _part() -> Schema:
    """A part of a message's content, by its type."""
    return {
        "anyOf": [
            _object({"type": {"const": kind}, name: {"type": "string"}}, ["type", name])
            for kind, name in PART_TYPES.items()
        ]
    }


def _token_id(limits: Limits) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": limits.vocabulary - 1}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: Mapping[str, Schema], required: list[str], examples: list[Any] | None = None) -> Schema:
    """Further properties are allowed: a field that is read nowhere is harmless."""
    schema: Schema = {"type": "object", "properties": dict(properties), "required": required}
    return schema if examples is None else {**schema, "examples": examples}
