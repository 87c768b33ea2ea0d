"""What observers are told: raw tokens, their times, usage and performance, of a real engine over a scripted device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, with_tokens
from tests.server.chat_answers import of_document, of_events
from tests.server.spoken import EOS_TEXT, Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

EXAMPLE = next(each for each in EXAMPLES if each.name == "json_tags")


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaking]:
    plain = tokenizer_of(vocabularies.byte_level(tmp_path_factory.mktemp("vocabulary") / "plain.gguf", user_defined=()))
    tokenizer = with_tokens(plain, EXAMPLE.tokens)
    with speaking(tokenizer, EXAMPLE.frontend, template_of(EXAMPLE)) as server:
        yield server


def token(tokenizer: Tokenizer, text: str) -> int:
    found = tokenizer.token_id(text)
    assert found is not None
    return found


def chunks_of(spoken: Speaking, **fields: Any) -> list[Any]:
    events = spoken.server.chat_events(**fields)
    assert events[-1] == "[DONE]"
    return events[:-1]


def test_raw_tokens_are_told_apart_from_the_text(spoken: Speaking) -> None:
    """OBS-1, ST5: one metadata-only chunk a token, EOS and markup included; nothing of it in the deltas."""
    ids = [*spoken.tokenizer.encode(EXAMPLE.answer, allow_special=True), token(spoken.tokenizer, EOS_TEXT)]
    spoken.device.says(EXAMPLE.answer)
    answer = spoken.chat(return_token_ids=True)
    assert answer.token_ids == ids
    chunks = chunks_of(spoken, return_token_ids=True)
    observed = [choice for chunk in chunks for choice in chunk["choices"] if "token_ids" in choice]
    assert all(choice["delta"] == {} and len(choice["token_ids"]) == 1 for choice in observed)
    assert all("token_timestamps_ns" not in choice for choice in observed)
    prompt = list(spoken.device.requests[-1].prompt_tokens)
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [prompt] + [None] * (len(chunks) - 1)
    document = spoken.server.chat(return_token_ids=True)[1]
    assert document["prompt_token_ids"] == prompt
    assert document["choices"][0]["token_ids"] == ids


def test_hidden_stop_tokens_are_observed(spoken: Speaking) -> None:
    """OBS-1, STOP-4: what a stop leaves out of the text is among the raw tokens; usage counts it."""
    ids = spoken.tokenizer.encode("Hello ABC world", allow_special=True)
    stop = spoken.tokenizer.encode("ABC", allow_special=True)
    spoken.device.says("Hello ABC world")
    answer = spoken.chat(tools=None, return_token_ids=True, stop_token_sequences=[stop])
    assert (answer.content, answer.finish_reason) == ("Hello ", "stop")
    assert answer.token_ids == ids[: ids.index(stop[-1]) + 1]
    answer = spoken.chat(tools=None, return_token_ids=True, stop_token_ids=[stop[1]])
    assert (answer.content, answer.finish_reason) == ("Hello A", "stop")
    assert answer.token_ids[-1] == stop[1]
    answer = spoken.chat(tools=None, return_token_ids=True, stop="BC")
    assert answer.content == "Hello A"
    assert answer.token_ids[-1] == stop[2]


def test_unobserved_answers_say_nothing_of_it(spoken: Speaking) -> None:
    """OBS-2: no clock is read for them, no event is sent."""
    spoken.device.says("Hello")
    for fields in ({}, {"return_token_ids": False}, {"return_token_ids": None, "return_token_timestamps": None}):
        document = spoken.server.chat(**fields)[1]
        assert not {"prompt_token_ids", "reused_prompt_tokens", "performance"} & set(document)
        assert not {"token_ids", "token_timestamps_ns"} & set(document["choices"][0])
        chunks = chunks_of(spoken, **fields)
        assert not any(
            {"prompt_token_ids", "reused_prompt_tokens", "performance", "usage"} & set(chunk) for chunk in chunks
        )
        assert all(choice["delta"] or choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
        assert not spoken.device.requests[-1].is_timed


@pytest.mark.parametrize("is_stream", [False, True])
def test_times_rise_from_ingress_to_the_last_token(spoken: Speaking, is_stream: bool) -> None:
    """OBS-2, OBS-3: aligned with the ids, on one clock with the performance object."""
    spoken.device.says("Hello world")
    fields = {"return_token_ids": True, "return_token_timestamps": True}
    if is_stream:
        events = spoken.server.chat_events(**fields)
        answer, last = of_events(events), events[-2]
    else:
        last = spoken.server.chat(**fields)[1]
        answer = of_document(last)
    assert len(answer.times_ns) == len(answer.token_ids) > 2
    performance = last["performance"]
    assert list(performance) == ["ingress_ns", "enqueue_ns", "reused_prompt_tokens"]
    moments = [0, performance["ingress_ns"], performance["enqueue_ns"], *answer.times_ns]
    assert all(isinstance(moment, int) for moment in moments)
    assert all(first <= second for first, second in itertools.pairwise(moments))
    assert performance["reused_prompt_tokens"] == last["reused_prompt_tokens"]
    assert spoken.device.requests[-1].is_timed


def test_usage_is_on_the_terminal_chunk_unless_it_has_its_own(spoken: Speaking) -> None:
    """OBS-3, OBS-4, ST3."""
    spoken.device.says("Hello")
    observed = chunks_of(spoken, return_token_ids=True)
    assert ["usage" in chunk for chunk in observed] == [False] * (len(observed) - 1) + [True]
    assert observed[-1]["choices"][0]["finish_reason"] == "stop"
    assert {"usage", "reused_prompt_tokens"} <= set(observed[-1])
    assert "performance" not in observed[-1]
    counted = chunks_of(spoken, return_token_ids=True, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in counted[:-1])
    assert counted[-1]["choices"] == []
    assert counted[-1]["usage"]["completion_tokens"] == observed[-1]["usage"]["completion_tokens"]
    assert "reused_prompt_tokens" in counted[-1]


def test_reused_tokens_are_counted(spoken: Speaking) -> None:
    """OBS-3, CACHE-3: the second time, whole pages of the prompt are there; another salt shares nothing."""
    messages = [{"role": "user", "content": "the same long prompt " * 4}]
    spoken.device.says("Hello")
    for salt, is_reused in (("a", False), ("a", True), ("b", False)):
        document = spoken.server.chat(messages=messages, return_token_ids=True, cache_salt=salt)[1]
        n_reused = document["reused_prompt_tokens"]
        assert bool(n_reused) == is_reused
        assert n_reused == document["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_choices_are_observed_each_by_itself(spoken: Speaking) -> None:
    """OBS-1 with n: usage of the whole comes with the choice that ends last."""
    spoken.device.says("Hi")
    events = spoken.server.chat_events(n=2, return_token_ids=True)
    ids = [*spoken.tokenizer.encode("Hi", allow_special=True), token(spoken.tokenizer, EOS_TEXT)]
    assert [of_events(events, index).token_ids for index in (0, 1)] == [ids, ids]
    with_usage = [event for event in events[:-1] if event.get("usage")]
    assert with_usage == [events[-2]]
    assert with_usage[0]["usage"]["completion_tokens"] == 2 * len(ids)


def test_reasoning_tokens_are_counted_without_their_markers(spoken: Speaking) -> None:
    """Research syntax 5: completion_tokens_details.reasoning_tokens."""
    spoken.device.says(EXAMPLE.answer)
    document = spoken.server.chat()[1]
    n_reasoning = len(spoken.tokenizer.encode("Need it.", allow_special=True))
    assert document["usage"]["completion_tokens_details"] == {"reasoning_tokens": n_reasoning}


def test_completions_are_observed_too(spoken: Speaking) -> None:
    spoken.device.says("Hi")
    status, document = spoken.server.post("/v1/completions", {"prompt": "Once", "return_token_ids": True})
    assert status == 200
    assert document["prompt_token_ids"] == spoken.tokenizer.encode("Once", allow_special=True)
    assert spoken.tokenizer.decode(document["choices"][0]["token_ids"]) == "Hi" + EOS_TEXT
