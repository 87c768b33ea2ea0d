"""The default model over HTTP at temperature 1, under schemas and forced calls: jsonschema accepts all of it, whole and streamed.

`--seeds N` repeats everything for N seeds instead of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.prompt.grammar.test_documents import check, in_draft_2020
from tests.server.chat_answers import ClientAnswer, of_document, of_events
from tests.server.served_model import ServedModel, served_model

SCHEMAS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "prompt" / "grammar" / "data" / "schemas.json").read_text(encoding="utf-8")
)
OBJECTS = {name: schema for name, schema in SCHEMAS.items() if schema.get("type") == "object"}
RECURSIVE = ("recursive_list", "recursive_tree")  # their documents have no longest one, so the limit may cut them
N_AT_ONCE = 16
OUTPUT_LIMIT = 320


@pytest.fixture(scope="module")
def model(default_core: Path) -> Iterator[ServedModel]:
    with served_model(default_core) as served:
        yield served


def ask(model: ServedModel, fields: dict[str, Any]) -> ClientAnswer:
    """The same answer whole and streamed."""
    whole = of_document(model.post("/v1/chat/completions", fields))
    streamed = of_events([*model.stream("/v1/chat/completions", fields), "[DONE]"])
    assert streamed.shown == whole.shown
    return whole


def ask_all(model: ServedModel, bodies: Sequence[dict[str, Any]]) -> list[ClientAnswer]:
    with ThreadPoolExecutor(N_AT_ONCE) as clients:
        return list(clients.map(lambda body: ask(model, body), bodies))


def body(question: str, seed: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"messages": messages, "temperature": 1, "seed": seed, "max_tokens": OUTPUT_LIMIT} | fields


def is_cut(name: str, answer: ClientAnswer) -> bool:
    return name in RECURSIVE and answer.finish_reason == "length"


def test_documents_of_forty_schemas(model: ServedModel, seeds: Sequence[int]) -> None:
    """FE-7: `response_format` with each schema."""
    cases = [(name, seed) for name in SCHEMAS for seed in seeds]
    answers = ask_all(
        model,
        [
            body(
                f"Give me an example of {name}.",
                seed,
                response_format={"type": "json_schema", "json_schema": {"name": name, "schema": SCHEMAS[name]}},
            )
            for name, seed in cases
        ],
    )
    for (name, seed), answer in zip(cases, answers, strict=True):
        if is_cut(name, answer):
            continue
        assert (answer.finish_reason, answer.calls) == ("stop", []), (name, seed, answer.content)
        check(in_draft_2020(SCHEMAS[name]), answer.content)


TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in {
        "get_time": {"type": "object", "properties": {}},
        **{
            name: OBJECTS[name]
            for name in ("flat_object", "nullable", "nested_objects", "literal_tags", "weather_tool")
        },
    }.items()
]


def test_calls_of_every_schema_by_name(model: ServedModel, seeds: Sequence[int]) -> None:
    """FE-7: a named tool is called, once, with arguments of its schema."""
    cases = [(name, seed) for name in OBJECTS for seed in seeds]
    answers = ask_all(
        model,
        [
            body(
                "Do what you think is right.",
                seed,
                tools=[{"type": "function", "function": {"name": name, "parameters": OBJECTS[name]}}],
                tool_choice={"type": "function", "function": {"name": name}},
            )
            for name, seed in cases
        ],
    )
    for (name, seed), answer in zip(cases, answers, strict=True):
        if is_cut(name, answer):
            continue
        ((called, arguments),) = answer.calls
        assert (called, answer.content, answer.finish_reason) == (name, "", "stop"), (name, seed, answer)
        check(OBJECTS[name], arguments)


@pytest.mark.parametrize("is_parallel", [False, True])
def test_calls_that_are_required(model: ServedModel, seeds: Sequence[int], is_parallel: bool) -> None:
    """FE-7: `tool_choice: required` gives calls and nothing else; without parallel calls exactly one."""
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": is_parallel, "max_tokens": 160}
    answers = ask_all(
        model, [body("How is it in Paris?", seed + 100 * i, **fields) for seed in seeds for i in range(8)]
    )
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}  # type: ignore[index]
    for answer in answers:
        assert answer.content == ""
        complete = answer.calls if answer.finish_reason == "tool_calls" else answer.calls[:-1]
        assert answer.finish_reason == "tool_calls" or (is_parallel and answer.finish_reason == "length"), answer
        assert complete
        assert is_parallel or len(complete) == 1
        for name, arguments in complete:
            check(schemas[name], arguments)


CHOICES = ["sunny", "rainy", "I do not know"]
FORMS: list[tuple[dict[str, Any], Callable[[str], object]]] = [
    ({"structured_outputs": {"choice": CHOICES}}, CHOICES.__contains__),
    ({"structured_outputs": {"regex": r"[0-9]{2,4}-[a-f]{1,9}"}}, re.compile(r"[0-9]{2,4}-[a-f]{1,9}").fullmatch),
    ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
    ({"structured_outputs": {"grammar": 'start: ("ab" | "cd"){1,9} "."'}}, re.compile(r"(ab|cd){1,9}\.").fullmatch),
]


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_other_forms(model: ServedModel, seeds: Sequence[int], form: int) -> None:
    """FE-7, item 3: choices, patterns, any object, grammars. An object may go on until the limit."""
    fields, is_right = FORMS[form]
    fields = {**fields, "max_tokens": 60}
    for answer in ask_all(
        model, [body("How is the weather?", seed + 100 * i, **fields) for seed in seeds for i in range(4)]
    ):
        is_cut = answer.finish_reason == "length" and "response_format" in fields
        assert is_cut or is_right(answer.content), answer
