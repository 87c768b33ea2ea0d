"""What a body of `/v1/messages` becomes: the conversation that a template is given, options, and refusals by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.output.answers import EXAMPLES
from tests.server.conftest import RunningServer
from tests.server.scripted_engine import ScriptedEngine

PATH = "/v1/messages"
ECHO = (
    "{{ messages | tojson }} | {{ tools | tojson }} | {{ reasoning_effort | default('?') }}"
    " | {{ enable_thinking | default('?') }} | {{ thinking_budget | default('?') }}"
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"name": "f", "description": "Does it.", "input_schema": SCHEMA}
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def asked(start_server: Callable[..., RunningServer], engine: ScriptedEngine) -> RunningServer:
    """A server whose template says what it was given."""
    json_tags = next(each for each in EXAMPLES if each.name == "json_tags")
    engine.frontend = dataclasses.replace(json_tags.frontend, eos_tokens=engine.eos_tokens)
    engine.chat_template = ECHO
    return start_server()


def prompt_of(server: RunningServer, **fields: Any) -> list[str]:
    fields = {"messages": USER, "max_tokens": 100, **fields}
    status, document = server.post(PATH, fields)
    assert status == 200, document
    tokens = server.engine.generations[-1].request.prompt_tokens
    counted = {name: value for name, value in fields.items() if name != "max_tokens"}
    assert server.post(f"{PATH}/count_tokens", counted) == (200, {"input_tokens": len(tokens)})
    return server.engine.tokenizer.decode(tokens).split(" | ")


def messages_of(server: RunningServer, messages: Any, **fields: Any) -> Any:
    return json.loads(prompt_of(server, messages=messages, **fields)[0])


def text(*texts: str) -> list[Any]:
    return [{"type": "text", "text": each, "cache_control": {"type": "ephemeral"}} for each in texts]


def result(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


def use(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def test_the_system_prompt_comes_first_and_blocks_are_joined(asked: RunningServer) -> None:
    messages = [{"role": "user", "content": text("a", "b")}]
    expected = [{"role": "system", "content": "One.Two."}, {"role": "user", "content": "ab"}]
    assert messages_of(asked, messages, system=text("One.", "Two.")) == expected
    assert messages_of(asked, USER, system="One.")[0] == {"role": "system", "content": "One."}
    assert messages_of(asked, USER, system="") == [{"role": "user", "content": "hi"}]
    inside = [{"role": "system", "content": "Two."}, *USER]
    assert messages_of(asked, inside, system="One.")[0] == {"role": "system", "content": "One.\n\nTwo."}


def test_messages_of_one_role_in_a_row_are_one_turn(asked: RunningServer) -> None:
    messages = [*USER, {"role": "user", "content": text("you")}, {"role": "assistant", "content": "a"}]
    messages += [{"role": "assistant", "content": [use("f", "c1")]}, {"role": "user", "content": [result("c1")]}]
    turns = messages_of(asked, messages)
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool"]
    assert turns[0]["content"] == "hi\n\nyou"
    assert (turns[1]["content"], turns[1]["tool_calls"][0]["id"]) == ("a", "c1")


def test_calls_and_results_arrive_as_templates_expect_them(asked: RunningServer) -> None:
    thoughts = [{"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    results = [result("c2", content=text("tw", "o")), result("c1", content="one", is_error=True), result("c3")]
    messages = [
        *USER,
        {
            "role": "assistant",
            "content": [*thoughts, *text("Looking."), use("f", "c1", a=1), use("g", "c2"), use("f", "c3")],
        },
        {"role": "user", "content": [*results, *text("And", " now?")]},
    ]
    turns = messages_of(asked, messages, tools=[TOOL])
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert (turns[1]["reasoning_content"], turns[1]["content"]) == ("Hm.", "Looking.")
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in turns[1]["tool_calls"]]
    assert calls == [("c1", "f", {"a": 1}), ("c2", "g", {}), ("c3", "f", {})]
    named = [(turn["tool_call_id"], turn["name"], turn["content"]) for turn in turns[2:5]]
    assert named == [("c2", "g", "two"), ("c1", "f", "one"), ("c3", "f", "")]
    assert turns[5]["content"] == "And now?"


def test_a_last_message_of_the_assistant_is_continued(server: RunningServer) -> None:
    opening = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_of(server) == [opening]
    for content in ("Once", text("On", "ce")):
        assert prompt_of(server, messages=[*USER, {"role": "assistant", "content": content}]) == [opening + "Once"]


def test_templates_get_tools_as_chat_gives_them(asked: RunningServer) -> None:
    shown = [{"type": "function", "function": {"name": "f", "description": "Does it.", "parameters": SCHEMA}}]
    for fields in ({}, {"tool_choice": {"type": "auto"}}):
        assert json.loads(prompt_of(asked, tools=[{**TOOL, "type": "custom"}], **fields)[1]) == shown
    assert prompt_of(asked, tools=[TOOL], tool_choice={"type": "none"})[1] == "null"


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({}, ["?", "False", "?"]),
        ({"thinking": {"type": "disabled"}}, ["?", "False", "?"]),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, ["low", "True", "?"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, ["?", "True", "2048"]),
    ],
)
def test_thinking_is_told_to_the_template(asked: RunningServer, fields: Any, variables: list[str]) -> None:
    assert prompt_of(asked, **fields)[2:5] == variables


def test_options_are_chats(asked: RunningServer) -> None:
    prompt_of(
        asked, temperature=0.25, top_p=0.5, top_k=4, max_tokens=3, stop_sequences=["zz"], metadata={"user_id": "u"}
    )
    request = asked.engine.generations[-1].request
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (0.25, 0.5, 4)
    assert request.output_limit == 3
    assert request.host_stop is not None


def test_headers_of_the_api_are_taken(asked: RunningServer) -> None:
    body = json.dumps({"messages": USER, "max_tokens": 5}).encode()
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "k"}
    assert asked.exchange("POST", PATH, body, headers)[0] == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": {"type": "none"}, "mcp_servers": [], "speed": "standard", "stop_sequences": []},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "service_tier": "auto"},
        {"cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"}, "nobody_knows": [1]},
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
    ],
)
def test_what_asks_for_nothing_is_taken(asked: RunningServer, fields: dict[str, Any]) -> None:
    prompt_of(asked, **fields)
    assert asked.engine.generations[-1].request.constraint is None


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
        {"tools": [{**TOOL, "strict": True}]},
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ],
)
def test_what_asks_for_a_form_is_constrained(asked: RunningServer, fields: dict[str, Any]) -> None:
    asked.engine.answer = ""
    prompt_of(asked, **fields)
    assert asked.engine.generations[-1].request.constraint is not None


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type is 'image'"),
        ({"messages": [{"role": "user", "content": [use("f", "c")]}]}, "messages[0].content[0].type is 'tool_use'"),
        (
            {"messages": [{"role": "assistant", "content": [result("c")]}]},
            "messages[0].content[0].type is 'tool_result'",
        ),
        ({"messages": [{"role": "user", "content": [result("")]}]}, "messages[0].content[0].tool_use_id"),
        (
            {"messages": [{"role": "assistant", "content": [{**use("f", "c"), "input": "{}"}]}]},
            "messages[0].content[0].input",
        ),
        ({"messages": [*USER, {"role": "assistant", "content": [use("f", "c")]}]}, "messages end with a call"),
        (
            {"messages": [{"role": "user", "content": [result("c", content=[{"type": "image"}])]}]},
            "content[0].content[0]",
        ),
        ({"system": 5}, "system"),
        ({"stop_sequences": ["x"] * 5}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        (
            {"stop_sequences": ["x"], "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "stop_sequences",
        ),
        ({"stop": "x"}, "stop"),
        ({"temperature": -1}, "temperature"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "display": "x"}}, "thinking.display"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [{**TOOL, "input_schema": 1}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0].type"),
        ({"context_management": {"edits": ["x"]}}, "context_management.edits[0]"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 2}, "n is"),
    ],
)
def test_what_is_wrong_or_not_served_is_named(asked: RunningServer, fields: dict[str, Any], name: str) -> None:
    status, document = asked.post(PATH, {"messages": USER, "max_tokens": 100, **fields})
    assert status == 400, document
    assert set(document) == {"type", "error"}
    assert document["error"]["type"] == "invalid_request_error"
    assert name in document["error"]["message"]
    assert asked.engine.n_admitted == 0
    assert asked.engine.generations == []
