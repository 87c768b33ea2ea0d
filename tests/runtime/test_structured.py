"""The default model under constraints at temperature 1: whatever it would rather say, documents and calls come out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from helios.output.opening import open_answer
from helios.output.syntax import AnswerSyntax
from helios.output.text_stream import TextStream
from helios.prompt.grammar.grammars import Grammars
from helios.prompt.grammar.opening import Opening
from helios.prompt.grammar.request import read_structured
from helios.scheduler.request import FinishReason, GenerationRequest, SamplingParameters
from tests.output.answers import read
from tests.prompt.grammar.test_documents import check, in_draft_2020
from tests.runtime.local_run import LoadedModel, Outcome

SCHEMAS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "prompt" / "grammar" / "data" / "schemas.json").read_text(encoding="utf-8")
)
OUTPUT_LIMIT = 300
RECURSIVE = ("recursive_list", "recursive_tree")  # their documents have no longest one, so the limit may cut them


@pytest.fixture(scope="module")
def model(default_core: Path) -> Iterator[LoadedModel]:
    with LoadedModel(default_core, 2, 600) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def grammars(model: LoadedModel) -> Grammars:
    contract = model.bootstrap.contract
    return Grammars(model.bootstrap.tokenizer, contract.frontend, contract.vocabulary)


def request(
    model: LoadedModel, grammars: Grammars, question: str, body: dict[str, Any], seed: int
) -> GenerationRequest:
    compiled = grammars.compile(read_structured(body), Opening.ANSWER)
    return GenerationRequest(
        tuple(prompt(model, question)),
        OUTPUT_LIMIT,
        model.bootstrap.contract.frontend.eos_tokens,
        SamplingParameters(temperature=1.0, seed=seed),
        constraint=None if compiled is None else compiled.start(),
    )


def prompt(model: LoadedModel, question: str) -> list[int]:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return model.bootstrap.tokenizer.encode(text, allow_special=True)


def said(model: LoadedModel, outcome: Outcome) -> str:
    tokens = outcome.ids[:-1] if outcome.reason is FinishReason.EOS else outcome.ids
    return model.bootstrap.tokenizer.decode(tokens)


def test_documents_of_forty_schemas(model: LoadedModel, grammars: Grammars) -> None:
    """FE-7: all at once, in company of free requests, which stay what they are alone."""
    free = [request(model, grammars, f"Tell me about the number {seed}.", {}, seed) for seed in range(2)]
    constrained = [
        request(model, grammars, f"Give me an example of {name}.", {"structured_outputs": {"json": schema}}, seed)
        for seed, (name, schema) in enumerate(SCHEMAS.items())
    ]
    outcomes = model.run([*free, *constrained])
    alone = [model.run([each])[0] for each in free]
    assert [outcome.ids for outcome in outcomes[:2]] == [outcome.ids for outcome in alone]
    for (name, schema), outcome in zip(SCHEMAS.items(), outcomes[2:], strict=True):
        if name in RECURSIVE and outcome.reason is FinishReason.LIMIT:
            continue
        assert outcome.reason is FinishReason.EOS, (name, said(model, outcome))
        check(in_draft_2020(schema), said(model, outcome))


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_calls_that_were_asked_for(model: LoadedModel, grammars: Grammars, choice: Any) -> None:
    """FE-7: tool_choice required and named always give calls that are valid."""
    body = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    outcomes = model.run([request(model, grammars, "How is it in Paris?", body, seed) for seed in range(8)])
    tokenizer = model.bootstrap.tokenizer
    syntax = AnswerSyntax(model.bootstrap.contract.frontend, tokenizer)
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}  # type: ignore[index]
    for outcome in outcomes:
        assert outcome.reason is FinishReason.EOS
        stream = TextStream(tokenizer, (), (), syntax.markup)
        text = "".join(map(stream.push, outcome.ids[:-1])) + stream.finish()
        answer = read([text], syntax, tools=schemas, opening=open_answer(prompt(model, ""), tokenizer, syntax))
        (call,) = answer.calls
        assert call.is_complete
        assert not answer.content
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])
        assert choice == "required" or call.name == "get_weather"
