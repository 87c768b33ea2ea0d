"""The schemas of request bodies against the readers, place by place: what a schema forbids is refused, and what is taken, allowed;
what is refused and allowed is known by name."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jsonschema
import pytest

from helios.errors import RequestError
from helios.prompt.grammar.request import read_structured
from helios.server.anthropic_messages_request import read_countable_request, read_message_request
from helios.server.chat_request import read_chat_request, read_conversation
from helios.server.completion_request import read_completion_request
from helios.server.fields import Fields
from helios.server.openai_responses_request import read_response_request
from helios.server.openapi.bodies import request_bodies
from helios.server.options import Limits
from tests.server.scripted_engine import Defaults

LIMITS = Limits("model", ("alias",), 1000, Defaults(), calls_tools=True, scores_prompts=True)
BODIES = request_bodies(LIMITS)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "what it does", "parameters": SCHEMA, "strict": True}
PARTS = [{"type": "text", "text": "a"}, {"type": "input_text", "text": ""}, {"type": "refusal", "refusal": "no"}]
TAGS = {"triggers": ["<a"], "structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}, {"begin": "<a"}]}
HELLO = [{"role": "user", "content": "hi"}]
TALK = [
    {"role": "system", "content": PARTS, "name": "s"},
    {"role": "developer", "content": "", "function_call": None, "tool_calls": []},
    {"role": "user", "content": "hi", "audio": None},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "reasoning": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"function": {"name": "g"}},
        ],
    },
    {"role": "tool", "content": [{"type": "output_text", "text": "r"}], "tool_call_id": "1", "name": "f"},
    {"role": "assistant", "content": "done"},
]
CHAT: list[dict[str, Any]] = [
    {"messages": TALK, "stream_options": {"include_usage": True}, "chat_template_kwargs": {"a": 1}},
    {"messages": HELLO, "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"},
    {
        "messages": HELLO,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
    },
    {"messages": HELLO, "response_format": {"type": "text"}},
    {"messages": HELLO, "response_format": {"type": "json_object", "schema": SCHEMA}},
    {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {"schema": True, "strict": False}}},
    {"messages": HELLO, "response_format": {"type": "structural_tag", **TAGS}},
    *(
        {"messages": HELLO, "structured_outputs": form}
        for form in (
            {"json": SCHEMA, "regex": None},
            {"json": json.dumps(SCHEMA)},
            {"regex": "a+", "json": False},
            {"choice": ["a", "b"]},
            {"grammar": 'start: "a"'},
            {"structural_tag": TAGS},
            {"json_object": True, "structural_tag": False},
        )
    ),
    {"messages": HELLO, "stop": ["a"], "logit_bias": {"7": -1.5}, "n": 2, "seed": 5, "model": "alias"},
    {"messages": HELLO, "stop_token_ids": [1], "stop_token_sequences": [[1, 2]], "best_of": 1, "suffix": ""},
]
COMPLETIONS: list[dict[str, Any]] = [
    {"prompt": "hi", "max_tokens": 0, "echo": True, "logprobs": 3},
    {"prompt": [1, 2], "response_format": {"type": "json_object"}, "tools": []},
    {"prompt": ["a", [1, 2]], "stream_options": {"include_usage": None}, "structured_outputs": {"choice": ["a"]}},
]
RESPONSES: list[dict[str, Any]] = [
    {
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "message", "role": "developer", "content": PARTS},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": ""}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": PARTS},
            {"type": None, "role": "assistant", "content": ""},
        ],
        "instructions": "be brief",
        "metadata": {"a": "b"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "store": False,
    },
    {"input": "hi", "tools": [{"type": "function", **FUNCTION}], "tool_choice": {"type": "function", "name": "f"}},
    {"input": "", "tools": [{"type": "function", "name": "f"}], "tool_choice": "auto", "parallel_tool_calls": False},
    {"input": "hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}},
    {"input": "hi", "text": {"format": {"type": "text"}, "verbosity": "low"}, "reasoning": {"effort": "none"}},
    {"input": "hi", "text": {"format": {"type": "json_object"}}, "reasoning": {"summary": "auto"}},
]
MESSAGES: list[dict[str, Any]] = [
    {
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                    {"type": "text", "text": ""},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": PARTS[:1]}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": None}]},
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "stop_sequences": ["a"],
    },
    {"max_tokens": 9, "messages": HELLO, "system": None, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"max_tokens": 9, "messages": HELLO, "system": "s", "thinking": {"type": "adaptive", "display": "omitted"}},
    {"max_tokens": 9, "messages": HELLO, "thinking": {"type": "disabled", "display": None}},
    {
        "max_tokens": 9,
        "messages": HELLO,
        "tools": [{"type": "custom", "name": "f", "description": "d", "input_schema": SCHEMA, "strict": False}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    },
    {"max_tokens": 9, "messages": HELLO, "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any"}},
    {"max_tokens": 9, "messages": HELLO, "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}}},
]  # fmt: skip


def read_tokenizable(fields: Fields, limits: Limits, new_seed: int) -> object:
    fields.boolean("return_token_strs")
    return read_conversation(fields, read_structured(fields.table))


# Of each path: its reader, and bodies that are taken.
READERS: dict[str, tuple[Callable[[Fields, Limits, int], object], list[dict[str, Any]]]] = {
    "/v1/chat/completions": (read_chat_request, CHAT),
    "/v1/completions": (read_completion_request, COMPLETIONS),
    "/v1/responses": (read_response_request, RESPONSES),
    "/v1/messages": (read_message_request, MESSAGES),
    "/v1/messages/count_tokens": (read_countable_request, MESSAGES[:1]),
    "/tokenize": (read_tokenizable, CHAT[:2]),
}
# Values of every kind, put in every place of a body.
KINDS: list[Any] = [
    None, True, False, 0, -1, 1.5, 1 << 40, "", "x", "a b", "x" * 2000, "function", "text", "json_object", "user",
    [], ["x"], [None], [{}], {}, {"x": 1}, {"type": "text"}, {"type": "function"}, [{"type": "text"}], [{"role": "assistant"}],
]  # fmt: skip
# Fields where a value is refused that its schema allows: for what a text says, or for what stands elsewhere in the body.
UNSAID = {
    "/v1/chat/completions": {
        "messages[].tool_calls[].function.arguments",  # text that is no JSON of an object
        "response_format.structures[].begin",  # behind none of the triggers
        "return_token_timestamps",  # without return_token_ids
        "structured_outputs.json",  # text that is no JSON
        "structured_outputs.structural_tag",
        "structured_outputs.structural_tag.structures[].begin",
        "tool_choice",  # of a tool that is not there
    },
    "/v1/completions": {"max_tokens", "return_token_timestamps"},  # 0 without echo
    "/v1/responses": {"input[].arguments", "tool_choice", "top_logprobs"},  # without log-probabilities
    "/v1/messages": {"tool_choice"},
    "/v1/messages/count_tokens": set(),
    "/tokenize": {"messages[].tool_calls[].function.arguments", "tool_choice"},
}


def fault(path: str, body: dict[str, Any]) -> str | None:
    """The field for which the reader refuses the body, places in lists left open; None where it takes it."""
    try:
        READERS[path][0](Fields(body), LIMITS, 0)
    except RequestError as error:
        return re.sub(r"\[\d+\]", "[]", error.param or str(error))
    return None


def changed(value: Any) -> Iterator[Any]:
    """What may stand in a value's place: every kind, and the same with one place inside it changed or left out."""
    yield from KINDS
    keys: Iterable[Any] = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        other = copy.copy(value)
        for inside in changed(value[key]):
            other[key] = inside
            yield copy.copy(other)
        del other[key]
        yield other


@pytest.mark.parametrize("path", READERS)
def test_what_is_taken_is_allowed_and_what_is_forbidden_is_refused(path: str) -> None:
    """And what is refused is forbidden, but for what no schema of one field can say. Every field there is, is changed."""
    schema = BODIES[path].get("anyOf", [BODIES[path]])[-1]
    fields = {name: jsonschema.Draft202012Validator(each) for name, each in schema["properties"].items()}
    first, *others = READERS[path][1]
    taken, unsaid = [], set()
    for body in (dict.fromkeys(fields) | first, *others):
        assert fault(path, body) is None
        jsonschema.validate(body, BODIES[path], jsonschema.Draft202012Validator)
        for name in body.keys() & fields.keys():
            for value in changed(body[name]):
                field, is_allowed = fault(path, body | {name: value}), fields[name].is_valid(value)
                if field is None and not is_allowed:
                    taken.append({name: value})
                elif field is not None and is_allowed:
                    unsaid.add(field)
    assert taken == []
    assert unsaid == UNSAID[path]


@pytest.mark.parametrize("path", READERS)
def test_a_field_is_required_where_it_has_to_be_there(path: str) -> None:
    schema = BODIES[path].get("anyOf", [BODIES[path]])[-1]
    body = READERS[path][1][0]
    needed = [name for name in body if fault(path, {other: body[other] for other in body if other != name}) == name]
    assert needed == [name for name in body if name in schema["required"]]
