"""Bodies of `/v1/responses` and `/v1/messages` with anything in any place: answered or refused by name, never a fault of ours."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES
from tests.server.conftest import RunningServer, run_server, wait_until
from tests.server.scripted_engine import ScriptedEngine

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
RESPONSE: dict[str, Any] = {
    "instructions": "x",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    ],
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True}],
    "tool_choice": "auto",
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "metadata": {"a": "b"},
    "top_logprobs": 1,
    "max_output_tokens": 3,
    "store": False,
    "stream": False,
}
MESSAGE: dict[str, Any] = {
    "max_tokens": 3,
    "system": [{"type": "text", "text": "x"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]}],
        },
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 5, "display": "summarized"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    "stop_sequences": [],
    "stream": False,
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "name", "content", "a"]), inner)
    ),
    max_leaves=5,
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything is in a document."""
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*place, key))


def with_value(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return changed


@pytest.fixture(scope="module")
def server(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    engine = ScriptedEngine(tokenizer, answer="", chat_template="{{ messages | tojson }}{{ tools | tojson }}")
    json_tags = next(each for each in EXAMPLES if each.name == "json_tags")
    engine.frontend = dataclasses.replace(json_tags.frontend, eos_tokens=engine.eos_tokens)
    running = run_server(engine, Settings(port=0, drain_timeout=0.2))
    yield running
    running.stop()


@pytest.mark.parametrize(("path", "body"), [("/v1/responses", RESPONSE), ("/v1/messages", MESSAGE)])
def test_anything_anywhere_is_answered_or_refused(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    """HTTP-3: invalid preparation is a 400."""
    status, document = server.post(path, body)
    assert status == 200, document

    @settings(max_examples=150)
    @given(st.sampled_from(list(places(body))), VALUES)
    def check(place: tuple[Any, ...], value: Any) -> None:
        status, _, answer = server.exchange("POST", path, json.dumps(with_value(body, place, value)).encode())
        assert status in (200, 400, 404), answer
        if status != 200:
            assert json.loads(answer)["error"]["message"]

    check()
    wait_until(lambda: server.engine.n_admitted == 0)
