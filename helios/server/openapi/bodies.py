"""The request bodies of every endpoint as JSON schemas.

It knows the readers and, where a reader looks at a value itself, the form of that value. A body that breaks its schema is refused;
one that keeps to it may still be, where fields contradict each other or the model lacks what they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from helios.prompt.grammar.request import read_structured
from helios.server.anthropic_messages_request import read_countable_request, read_message_request
from helios.server.chat_request import read_chat_request, read_conversation
from helios.server.completion_request import read_completion_request
from helios.server.fields import Fields
from helios.server.openai_responses_request import MAX_KEY, MAX_METADATA, MAX_VALUE, read_response_request
from helios.server.openapi.conversations import chat_messages, message_turns, optional_content, response_input
from helios.server.openapi.forms import EFFORT, chat_forms, message_forms, response_forms
from helios.server.openapi.noted import noted_properties
from helios.server.openapi.schema import (
    COUNT,
    FLAG,
    MAYBE_TEXT,
    NULL,
    STRING,
    TEXT,
    Schema,
    any_of,
    array,
    one_of,
    or_null,
)
from helios.server.options import MAX_BIASES, MAX_CHOICES, MAX_SALT_CHARACTERS, Limits
from helios.server.stop_fields import MAX_SEQUENCE_TOKENS, MAX_SEQUENCES, MAX_STOP_TOKENS, MAX_STOPS

_Reader = Callable[[Fields, Limits, int], object]
_HELLO = [{"role": "user", "content": "Hello"}]
# Their fields are asked for only where they are there.
_INSIDE: dict[str, Any] = {"stream_options": {}}


def request_bodies(limits: Limits) -> dict[str, Schema]:
    """The body of each path that takes one, for a model of these limits."""
    common = _common(limits)

    def properties(read: _Reader, example: Mapping[str, Any], written: dict[str, Schema]) -> dict[str, Schema]:
        return _properties(lambda fields: read(fields, limits, 0), example, common | written)

    hello = {"messages": _HELLO, "max_tokens": 1}
    chat = properties(read_chat_request, _chat_example(), _chat_fields())
    plain = properties(read_completion_request, {"prompt": "Hello", **_INSIDE}, _plain_fields(limits))
    responses = properties(read_response_request, {"input": "Hello", **_INSIDE}, _response_fields())
    messages = properties(read_message_request, hello | _INSIDE, _message_fields())
    countable = properties(read_countable_request, hello | _INSIDE, _message_fields())
    return {
        "/v1/chat/completions": _body(chat, ["messages"], [_chat_example(), _chat_example() | {"stream": True}]),
        "/v1/chat/completions/render": _body(chat, ["messages"], [_chat_example()]),
        "/v1/completions": _body(plain, ["prompt"], [{"prompt": "Once upon a time", "max_tokens": 8}]),
        "/v1/completions/render": _body(plain, ["prompt"], [{"prompt": "Once upon a time", "max_tokens": 8}]),
        "/v1/responses": _body(responses, ["input"], [{"input": "Hello", "max_output_tokens": 8}]),
        "/v1/messages": _body(messages, ["messages", "max_tokens"], [hello | {"model": limits.served_id}]),
        "/v1/messages/count_tokens": _body(countable, ["messages"], [{"messages": _HELLO}]),
        "/tokenize": _tokenize(),
        "/detokenize": _body({"tokens": array(_token_id(limits))}, ["tokens"], [{"tokens": [0]}]),
    }


def _properties(
    read: Callable[[Fields], object], example: Mapping[str, Any], written: Mapping[str, Schema]
) -> dict[str, Schema]:
    """What is noted, with the forms that are `written` for what no reader says in one call."""
    noted = noted_properties(read, example)
    return {name: schema if "enum" in schema else written.get(name, schema) for name, schema in noted.items()}


def _chat_example() -> dict[str, Any]:
    return {"messages": _HELLO, "max_tokens": 8, "add_generation_prompt": True, **_INSIDE}


def _tokenize() -> Schema:
    """A prompt or a conversation."""
    conversation = _properties(
        lambda fields: read_conversation(fields, read_structured(fields.table)), _chat_example(), _chat_fields()
    )
    prompt = {"prompt": STRING, "messages": NULL, "add_special_tokens": FLAG, "return_token_strs": FLAG}
    bodies = [_body(prompt, ["prompt"]), _body({**conversation, "return_token_strs": FLAG}, ["messages"])]
    return {**any_of(bodies), "examples": [{"prompt": "Hello"}, {"messages": _HELLO}]}


def _common(limits: Limits) -> dict[str, Schema]:
    """Fields that mean the same in every API."""
    token_ids = array(_token_id(limits), maxItems=MAX_STOP_TOKENS)
    sequence = array(_token_id(limits), minItems=1, maxItems=MAX_SEQUENCE_TOKENS)
    return {
        "model": one_of([limits.served_id, *limits.aliases, None]),
        "cache_salt": {**MAYBE_TEXT, "minLength": 1, "maxLength": MAX_SALT_CHARACTERS},
        "stop": _stops(),
        "stop_token_ids": or_null(token_ids),
        "stop_token_sequences": or_null(array(sequence, maxItems=MAX_SEQUENCES)),
        "logit_bias": {
            "type": ["object", "null"],
            "maxProperties": MAX_BIASES,
            "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
    }


def _stops() -> Schema:
    return any_of([TEXT, array(TEXT, maxItems=MAX_STOPS), NULL])


def _chat_fields() -> dict[str, Schema]:
    return {**chat_forms(), "messages": chat_messages(), "reasoning_effort": EFFORT}


def _plain_fields(limits: Limits) -> dict[str, Schema]:
    tokens = array(_token_id(limits), minItems=1)
    prompts = array(any_of([TEXT, tokens]), minItems=1, maxItems=MAX_CHOICES)
    return {
        **chat_forms(),
        "prompt": any_of([TEXT, tokens, prompts]),
        "max_tokens": {**or_null(COUNT), "description": "0 with echo alone: the prompt's scores"},
    }


def _response_fields() -> dict[str, Schema]:
    metadata = {
        "type": ["object", "null"],
        "maxProperties": MAX_METADATA,
        "propertyNames": {"maxLength": MAX_KEY},
        "additionalProperties": {**STRING, "maxLength": MAX_VALUE},
    }
    return {**response_forms(), "input": response_input(), "metadata": metadata}


def _message_fields() -> dict[str, Schema]:
    return {
        **message_forms(),
        "system": optional_content(),
        "messages": message_turns(),
        "stop_sequences": _stops(),
    }


def _token_id(limits: Limits) -> Schema:
    return {**COUNT, "maximum": limits.vocabulary - 1}


def _body(properties: Mapping[str, Schema], required: list[str], examples: list[Any] | None = None) -> Schema:
    """An object whose required fields are not null either."""
    given = {name: _not_null(properties[name]) for name in required}
    schema: Schema = {"type": "object", "properties": {**properties, **given}, "required": required}
    return schema if examples is None else {**schema, "examples": examples}


def _not_null(schema: Schema) -> Schema:
    types = schema.get("type")
    return {**schema, "type": next(iter(set(types) - {"null"}))} if isinstance(types, list) else schema
