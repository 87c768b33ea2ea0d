"""What a body of `/v1/responses` becomes: the conversation that a template is given, options, and refusals by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.output.answers import EXAMPLES
from tests.server.conftest import RunningServer
from tests.server.scripted_engine import ScriptedEngine

PATH = "/v1/responses"
ECHO = (
    "{{ messages | tojson }}|{{ tools | tojson }}|{{ reasoning_effort | default('?') }}|{{ enable_thinking | default('?') }}"
    "|{{ verbosity | default('?') }}|{{ add_generation_prompt }}"
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "name": "f", "description": "Does it.", "parameters": SCHEMA, "strict": None}


@pytest.fixture
def asked(start_server: Callable[..., RunningServer], engine: ScriptedEngine) -> RunningServer:
    """A server whose template says what it was given."""
    json_tags = next(each for each in EXAMPLES if each.name == "json_tags")
    engine.frontend = dataclasses.replace(json_tags.frontend, eos_tokens=engine.eos_tokens)
    engine.chat_template = ECHO
    return start_server()


def prompt_of(server: RunningServer, **fields: Any) -> list[str]:
    status, document = server.post(PATH, fields)
    assert status == 200, document
    return server.engine.tokenizer.decode(server.engine.generations[-1].request.prompt_tokens).split("|")


def messages_of(server: RunningServer, items: Any, **fields: Any) -> Any:
    return json.loads(prompt_of(server, input=items, **fields)[0])


def refusal(server: RunningServer, **fields: Any) -> Any:
    status, document = server.post(PATH, {"input": "hi", **fields})
    assert status == 400, document
    return document["error"]


def call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def output(call_id: str, content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def test_text_is_the_users(asked: RunningServer) -> None:
    assert messages_of(asked, "hi") == [{"role": "user", "content": "hi"}]
    parts = prompt_of(asked, input="hi")
    assert parts[1:] == ["null", "?", "?", "?", "True"]


def test_instructions_and_leading_system_messages_are_one(asked: RunningServer) -> None:
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Two"}, {"type": "input_text", "text": "!"}]},
        {"type": "message", "role": "user", "content": "hi"},
    ]
    expected = [{"role": "system", "content": "One.\n\nTwo!"}, {"role": "user", "content": "hi"}]
    assert messages_of(asked, items, instructions="One.") == expected


def test_items_of_one_turn_are_one_message(asked: RunningServer) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    said["content"] = [{"type": "output_text", "text": "Looking.", "annotations": []}]
    items = [
        {"role": "user", "content": "W?"},
        *(thought, said, call("f", "c1", '{"a": 1}'), call("g", "c2", "")),
        *(output("c2", [{"type": "input_text", "text": "two"}]), output("c1", "one")),
        thought,
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
        call("f", "c3"),
        output("c3", ""),
    ]
    turns = messages_of(asked, items, tools=[TOOL])
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "assistant", "assistant", "tool"]
    first = turns[1]
    assert (first["reasoning_content"], first["content"]) == ("Hm.", "Looking.")
    assert [each["function"] for each in first["tool_calls"]] == [
        {"name": "f", "arguments": {"a": 1}},
        {"name": "g", "arguments": {}},
    ]
    assert [(turn["tool_call_id"], turn["name"], turn["content"]) for turn in turns[2:4]] == [
        ("c2", "g", "two"),
        ("c1", "f", "one"),
    ]
    assert (turns[4]["reasoning_content"], turns[4]["content"]) == ("Hm.", "Done.")
    assert (turns[5]["content"], turns[5]["tool_calls"][0]["id"]) == ("Really.", "c3")


def test_reasoning_that_nobody_can_read_is_left_out(asked: RunningServer) -> None:
    hidden = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "x"}],
        "encrypted_content": "e",
    }
    turns = messages_of(asked, [hidden, {"role": "assistant", "content": "A"}, {"role": "user", "content": "B"}])
    assert turns[0] == {"role": "assistant", "content": "A"}


def test_templates_get_tools_as_chat_gives_them(asked: RunningServer) -> None:
    shown = [{"type": "function", "function": {"name": "f", "description": "Does it.", "parameters": SCHEMA}}]
    assert json.loads(prompt_of(asked, input="hi", tools=[TOOL])[1]) == shown
    assert prompt_of(asked, input="hi", tools=[TOOL], tool_choice="none")[1] == "null"
    document = asked.post(PATH, {"input": "hi", "tools": [TOOL]})[1]
    assert document["tools"] == [{**TOOL, "strict": False}]


def test_effort_and_verbosity_reach_the_template(asked: RunningServer) -> None:
    fields = {"reasoning": {"effort": "none", "summary": "auto"}, "text": {"verbosity": "low"}}
    assert prompt_of(asked, input="hi", **fields)[2:5] == ["none", "False", "low"]


def test_options_are_chats(asked: RunningServer) -> None:
    fields: dict[str, Any] = {"temperature": 0.25, "top_p": 0.5, "max_output_tokens": 3, "seed": 7, "top_k": 4}
    document = asked.post(PATH, {"input": "hi", **fields})[1]
    request = asked.engine.generations[-1].request
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.25, 0.5, 4, 7)
    assert request.output_limit == 3
    assert (document["temperature"], document["top_p"], document["max_output_tokens"]) == (0.25, 0.5, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"text": {"format": {"type": "json_object"}}},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
        {"tools": [{**TOOL, "strict": True}]},
        {"tools": [TOOL], "parallel_tool_calls": False},
    ],
)
def test_what_asks_for_a_form_is_constrained(asked: RunningServer, fields: dict[str, Any]) -> None:
    asked.engine.answer = ""
    assert asked.post(PATH, {"input": "hi", **fields})[0] == 200
    assert asked.engine.generations[-1].request.constraint is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"store": False, "background": False, "truncation": "disabled", "n": 1, "previous_response_id": None},
        {"text": {"format": {"type": "text"}}, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"user": "u", "prompt_cache_key": "k", "safety_identifier": "s", "service_tier": "auto", "nobody_knows": [1]},
        {"tools": [TOOL], "stream_options": {"include_obfuscation": False}, "reasoning": {"summary": "detailed"}},
    ],
)
def test_what_asks_for_nothing_is_taken(asked: RunningServer, fields: dict[str, Any]) -> None:
    assert asked.post(PATH, {"input": "hi", **fields})[0] == 200
    assert asked.engine.generations[-1].request.constraint is None


@pytest.mark.parametrize("name", ["store", "background"])
def test_nothing_is_kept(asked: RunningServer, name: str) -> None:
    error = refusal(asked, **{name: True})
    assert error["param"] == name
    assert "it keeps nothing" in error["message"]
    error = refusal(asked, previous_response_id="resp_1", conversation="conv_1")
    assert (error["param"], error["type"]) == ("previous_response_id", "invalid_request_error")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "messages"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 2}, "n"),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"$ref": "http://a/b"}}}}, "text.format.schema"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [{**TOOL, "parameters": 1}]}, "tools[0].parameters"),
        ({"tools": [{**TOOL, "strict": 1}]}, "tools[0].strict"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
        ({"instructions": ["x"]}, "instructions"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [call("f", "c", "{")]}, "input[0].arguments"),
        ({"input": [call("", "c")]}, "input[0].name"),
        ({"input": [output("", "x")]}, "input[0].call_id"),
        ({"input": [{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}]}, "input[0].content[0].type"),
    ],
)
def test_what_is_wrong_or_not_served_is_named(asked: RunningServer, fields: dict[str, Any], param: str) -> None:
    error = refusal(asked, **fields)
    assert error["param"] == param
    assert param.partition("[")[0].partition(".")[0] in error["message"]
    assert error["type"] == "invalid_request_error"
    assert asked.engine.n_admitted == 0
