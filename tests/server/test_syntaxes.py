"""Every syntax from a scripted device to a client, over real HTTP: whole and streamed, in tokens and in text, to any end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import ARGUMENTS, EXAMPLES, Example, with_tokens
from tests.server.scripted import skipping
from tests.server.spoken import TOOL_OBJECTS, Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

CALLS = [("get_weather", ARGUMENTS), ("noargs", "{}")]


@pytest.fixture(scope="module")
def plain_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "plain.gguf"
    return tokenizer_of(vocabularies.byte_level(path, user_defined=()))


# Headers and elements of the last two count only as tokens.
_SPOKEN = [f"{each.name}-tokens" for each in EXAMPLES] + [f"{each.name}-text" for each in EXAMPLES[:-2]]


@pytest.fixture(scope="module", params=_SPOKEN)
def spoken(request: pytest.FixtureRequest, plain_tokenizer: Tokenizer) -> Iterator[tuple[Example, Speaking]]:
    name, _, kind = request.param.partition("-")
    example = next(each for each in EXAMPLES if each.name == name)
    tokenizer = with_tokens(plain_tokenizer, example.tokens) if kind == "tokens" else plain_tokenizer
    with speaking(tokenizer, example.frontend, template_of(example)) as server:
        yield example, server


def test_a_rendered_answer_reaches_the_client(spoken: tuple[Example, Speaking]) -> None:
    """FE-7, T1, T17, ST1 to ST4: reasoning, content and calls; streamed equals whole."""
    example, server = spoken
    server.device.says(example.answer)
    answer = server.chat()
    assert (answer.reasoning, answer.content) == ("Need it.", "Checking.")
    assert [(name, json.loads(arguments)) for name, arguments in answer.calls] == [
        (name, json.loads(arguments)) for name, arguments in CALLS
    ]
    assert answer.finish_reason == "tool_calls"
    assert len(set(answer.ids)) == 2


def test_without_tools_the_markup_of_calls_is_content(spoken: tuple[Example, Speaking]) -> None:
    """T10, T11: no tools, or none that may be called."""
    example, server = spoken
    server.device.says(example.answer)
    for fields in ({"tools": None}, {"tools": []}, {"tool_choice": "none"}):
        answer = server.chat(**fields)
        assert answer.reasoning == "Need it."
        assert not answer.calls
        assert answer.finish_reason == "stop"
        assert answer.content.startswith("Checking.")
        assert "get_weather" in answer.content


def test_an_answer_cut_off_anywhere_has_no_call_that_looks_complete(spoken: tuple[Example, Speaking]) -> None:
    """T8, R6: at the limit the reason is length, and complete calls stay."""
    example, server = spoken
    n_tokens = len(server.tokenizer.encode(example.answer, allow_special=True))
    server.device.says(example.answer)
    n_complete = 0
    for limit in (1, 3, 7, *range(12, n_tokens, max(1, n_tokens // 12)), n_tokens):
        answer = server.chat(max_tokens=limit)
        assert answer.finish_reason == "length"
        complete = [call for call in answer.calls if _is_json(call[1])]
        assert len(complete) >= n_complete
        n_complete = len(complete)
        assert not set("<>|") & set(answer.reasoning)
        assert "_call>" not in answer.content
        assert "function" not in answer.content


def test_a_stop_after_a_complete_call_is_told_as_a_stop(spoken: tuple[Example, Speaking]) -> None:
    """STOP-3, T18: the response finishes with stop, earlier completed calls included."""
    example, server = spoken
    server.device.says(example.answer)
    answer = server.chat(stop="noargs")
    assert answer.finish_reason == "stop"
    assert [name for name, _ in answer.calls] == ["get_weather"]
    assert "noargs" not in answer.content


def test_required_and_named_calls_are_made_under_masks(spoken: tuple[Example, Speaking]) -> None:
    """T18: required ends as tool_calls, a named choice as stop, as OpenAI has it; research 1.3: not parallel is one call."""
    example, server = spoken
    calls = _calls_alone(example.answer)
    server.device.says(calls)
    answer = server.chat(tool_choice="required")
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("Need it.", "", "tool_calls")
    assert [name for name, _ in answer.calls] == ["get_weather", "noargs"]
    assert server.device.most_constrained_in_flight == 1
    server.device.voice = skipping(server.tokenizer.encode(calls, allow_special=True))
    answer = server.chat(tool_choice={"type": "function", "function": {"name": "get_weather"}})
    assert ([name for name, _ in answer.calls], answer.finish_reason) == (["get_weather"], "stop")
    answer = server.chat(parallel_tool_calls=False)
    assert ([name for name, _ in answer.calls], answer.finish_reason) == (["get_weather"], "tool_calls")


def _calls_alone(answer: str) -> str:
    """The same answer without content, and with scalars and blank lines in the one form that the grammar has."""
    framed = answer.replace("to=user<|message|>Checking.<|eom|><|start|>assistant ", "")
    plain = framed.replace("Checking.", "").replace("True", "true").replace("None", "null")
    return plain.replace('">\n\n</', '">\n</')


def test_openais_client_puts_the_calls_together(spoken: tuple[Example, Speaking]) -> None:
    """Research item 16: stock client, whole and streamed; and takes the answer back as history (item 18)."""
    example, server = spoken
    server.device.says(example.answer)
    messages = [{"role": "user", "content": "W?"}]
    with openai.OpenAI(base_url=server.server.url + "/v1", api_key="none", max_retries=0) as client:
        create = client.chat.completions.create
        whole = create(model="sample", messages=messages, tools=TOOL_OBJECTS)  # type: ignore[call-overload]
        message = whole.choices[0].message
        assert [call.function.name for call in message.tool_calls or []] == ["get_weather", "noargs"]
        results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls or []]
        with client.chat.completions.stream(model="sample", messages=messages, tools=TOOL_OBJECTS) as stream:  # type: ignore[arg-type]
            for _ in stream:
                pass
            final = stream.get_final_completion().choices[0]
        assert [json.loads(call.function.arguments) for call in final.message.tool_calls or []] == [
            json.loads(arguments) for _, arguments in CALLS
        ]
        server.device.says("Sunny.")
        again = create(model="sample", messages=[*messages, message.model_dump(), *results], tools=TOOL_OBJECTS)
        assert again.choices[0].message.content == "Sunny."


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
