"""What requests say to the template, over real HTTP, and how its faults are told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from helios.contract.enums import ToolSyntax
from tests.output.answers import EXAMPLES
from tests.server.conftest import RunningServer
from tests.server.scripted_engine import ScriptedEngine

ECHO = (
    "{{ messages | tojson }}|{{ tools | tojson }}|{{ reasoning_effort | default('?') }}|{{ enable_thinking | default('?') }}"
    "|{{ note | default('?') }}|{{ add_generation_prompt }}"
)
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a<|im_end|>": {}}}},
}


@pytest.fixture
def prompt_of(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> Callable[..., tuple[int, Any, str]]:
    """What a template makes of a request: the status, the response, and the prompt."""
    json_tags = next(each for each in EXAMPLES if each.name == "json_tags")
    assert json_tags.frontend.tool_syntax is ToolSyntax.JSON_TAGS
    engine.frontend = dataclasses.replace(json_tags.frontend, eos_tokens=engine.eos_tokens)

    def ask(template: str, **fields: Any) -> tuple[int, Any, str]:
        engine.chat_template = template
        status, document = start_server().chat(**fields)
        prompt = engine.tokenizer.decode(engine.generations[-1].request.prompt_tokens) if engine.generations else ""
        return status, document, prompt

    return ask


def test_a_template_sees_what_the_request_says(prompt_of: Callable[..., Any]) -> None:
    """CON-2: nothing is there that nobody said."""
    parts = prompt_of(ECHO)[2].split("|")
    assert json.loads(parts[0]) == [{"role": "user", "content": "hi"}]
    assert parts[1:] == ["null", "?", "?", "?", "True"]
    fields = {"reasoning_effort": "none", "chat_template_kwargs": {"note": "a"}, "add_generation_prompt": False}
    assert prompt_of(ECHO, **fields)[2].split("|")[2:] == ["none", "False", "a", "False"]
    fields = {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}
    assert prompt_of(ECHO, **fields)[2].split("|")[3] == "True"


def test_calls_and_results_arrive_as_templates_expect_them(prompt_of: Callable[..., Any]) -> None:
    """Arguments are a mapping, content is text, a result has the name of its call."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n": 1.0, "s": "é"}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
    ]
    _, turn, result = json.loads(prompt_of("{{ messages | tojson }}", messages=messages)[2])
    assert turn["content"] == ""
    assert turn["reasoning_content"] == turn["reasoning"] == "hm"
    assert turn["tool_calls"] == [{**call, "function": {"name": "f", "arguments": {"n": 1.0, "s": "é"}}}]
    assert result == {"role": "tool", "content": "sunny", "tool_call_id": "c1", "name": "f"}


def test_tools_are_shown_only_where_they_may_be_called(prompt_of: Callable[..., Any]) -> None:
    template = "{% if tools %}{{ tools | tojson }}{% else %}none{% endif %}"
    assert json.loads(prompt_of(template, tools=[TOOL])[2]) == [TOOL]
    assert prompt_of(template, tools=[TOOL], tool_choice="none")[2] == "none"
    assert prompt_of(template)[2] == "none"


def test_a_refusal_is_the_callers_and_a_break_out_the_servers(prompt_of: Callable[..., Any]) -> None:
    """Research item 40 and 1.13: 400 with the template's own message; 500 without a traceback."""
    status, document, _ = prompt_of("{{ raise_exception('roles must alternate') }}")
    assert (status, document["error"]["message"], document["error"]["param"]) == (
        400,
        "roles must alternate",
        "messages",
    )
    for template in (
        "{{ ''.__class__.__mro__ }}",
        "{{ 'x' * 10 ** 12 }}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    ):
        status, document, _ = prompt_of(template)
        assert (status, document["error"]["type"]) == (500, "server_error")
        assert "may not do this" in document["error"]["message"]
