"""Chat completions over a real socket: the wire shapes, with OpenAI's own client as a witness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from helios.errors import AdmissionError, DeviceError
from tests.server.conftest import RunningServer
from tests.server.scripted_engine import Defaults, ScriptedEngine

USER = [{"role": "user", "content": "hi"}]


def texts(events: list[Any], index: int = 0) -> list[str]:
    return [
        choice["delta"]["content"]
        for event in events
        if event != "[DONE]"
        for choice in event["choices"]
        if choice["index"] == index and choice["delta"].get("content")
    ]


def test_a_response_is_what_openai_specifies(server: RunningServer) -> None:
    status, document = server.chat()
    assert status == 200
    ChatCompletion.model_validate(document, strict=True)
    assert document["id"].startswith("chatcmpl-")
    assert document["model"] == "scripted-1b"
    assert document["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello world", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    n_prompt, n_output = document["usage"]["prompt_tokens"], document["usage"]["completion_tokens"]
    assert document["usage"]["total_tokens"] == n_prompt + n_output
    assert n_output == len(server.engine.tokenizer.encode("Hello world", allow_special=False)) + 1


def test_a_stream_opens_with_the_role_and_closes_with_the_reason(server: RunningServer) -> None:
    events = server.chat_events()
    chunks = events[:-1]
    assert events[-1] == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        assert "usage" not in chunk
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    first, *middle, last = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert last["delta"] == {}
    assert last["finish_reason"] == "stop"
    assert all(choice["finish_reason"] is None and "role" not in choice["delta"] for choice in (first, *middle)[1:])
    assert "".join(texts(events)) == "Hello world"
    assert all(choice["delta"]["content"] for choice in middle)


@pytest.mark.parametrize(
    ("options", "is_asked"),
    [({}, False), ({"stream_options": {}}, False), ({"stream_options": None}, False)]
    + [({"stream_options": {"include_usage": value}}, value is True) for value in (None, False, True)],
)
def test_usage_comes_last_and_only_when_asked_for(
    server: RunningServer, options: dict[str, Any], is_asked: bool
) -> None:
    """OBS-4: a usage-only chunk before [DONE], `usage` null in the chunks before it."""
    *chunks, done = server.chat_events(**options)
    assert done == "[DONE]"
    if not is_asked:
        assert all("usage" not in chunk for chunk in chunks)
        return
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("is_stream", [False, True])
def test_characters_spread_over_tokens_arrive_whole(server: RunningServer, is_stream: bool) -> None:
    """Research item 1: every delta is whole text."""
    answer = "é 中 😀 👩‍👩‍👧"
    server.engine.answer = answer
    if is_stream:
        pieces = texts(server.chat_events())
        assert "".join(pieces) == answer
        assert not any("\ufffd" in piece for piece in pieces)
    else:
        assert server.chat()[1]["choices"][0]["message"]["content"] == answer


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        ("END", "one two "),
        ("zzz", "one two END three"),
        (["three", "two"], "one "),
        ("one", ""),
        ([], "one two END three"),
    ],
)
def test_a_stop_removes_itself_and_what_follows(server: RunningServer, is_stream: bool, stop: Any, shown: str) -> None:
    """STOP-2: streamed or not, the same text; a stop that never completes is shown in the end."""
    server.engine.answer = "one two END three"
    if is_stream:
        events = server.chat_events(stop=stop)
        assert "".join(texts(events)) == shown
        assert events[-2]["choices"][0]["finish_reason"] == "stop"
    else:
        choice = server.chat(stop=stop)[1]["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (shown, "stop")


def test_the_limit_ends_with_length(server: RunningServer) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        document = server.chat(**{name: 3})[1]
        assert document["choices"][0]["finish_reason"] == "length"
        assert document["usage"]["completion_tokens"] == 3
    assert server.chat(max_tokens=None)[1]["choices"][0]["finish_reason"] == "stop"


def test_choices_have_seeds_of_their_own(server: RunningServer) -> None:
    document = server.chat(n=3, seed=41)[1]
    assert [choice["index"] for choice in document["choices"]] == [0, 1, 2]
    assert [generation.request.sampling.seed for generation in server.engine.generations] == [41, 42, 43]
    prompts = {generation.request.prompt_tokens for generation in server.engine.generations}
    assert len(prompts) == 1
    one = server.chat(seed=41)[1]["usage"]
    assert document["usage"]["prompt_tokens"] == one["prompt_tokens"]
    assert document["usage"]["completion_tokens"] == 3 * one["completion_tokens"]


def test_streamed_choices_interleave_by_index(server: RunningServer) -> None:
    *chunks, done = server.chat_events(n=2)
    assert done == "[DONE]"
    for index in (0, 1):
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert [choice["finish_reason"] for choice in mine].count("stop") == 1
        assert "".join(texts(chunks, index)) == "Hello world"


def test_seeds_are_taken_as_64_bits_or_drawn_afresh(server: RunningServer) -> None:
    for seed in (-1, -(1 << 63), (1 << 64) - 1, 1 << 40):
        server.chat(seed=seed)
    server.chat()
    server.chat()
    seeds = [generation.request.sampling.seed for generation in server.engine.generations]
    assert seeds[:4] == [(1 << 64) - 1, 1 << 63, (1 << 64) - 1, 1 << 40]
    assert seeds[4] != seeds[5]


def test_defaults_come_from_the_core_then_from_openai(server: RunningServer, engine: ScriptedEngine) -> None:
    """CON-2: an explicit request value wins over the core's."""
    server.chat()
    server.chat(temperature=0.25, top_k=-1)
    assert engine.generations[0].request.sampling.temperature == 1.0
    assert engine.generations[1].request.sampling.temperature == 0.25
    assert engine.generations[1].request.sampling.top_k == 0


def test_core_defaults_fill_what_the_request_leaves_out(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """CON-2."""
    engine.sampling_defaults = Defaults(temperature=0.2, top_p=0.9, top_k=40, frequency_penalty=0.5)
    server = start_server()
    server.chat(top_k=5)
    sampling = engine.generations[0].request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.frequency_penalty) == (0.2, 0.9, 5, 0.5)


@pytest.mark.parametrize("is_stream", [False, True])
def test_log_probabilities_spell_the_answer(server: RunningServer, is_stream: bool) -> None:
    server.engine.logprob = -0.25
    server.engine.answer = "Hello 😀 END x"
    fields = {"logprobs": True, "top_logprobs": 2, "stop": "END"}
    if is_stream:
        chunks = server.chat_events(**fields)[:-1]
        entries = [
            entry
            for chunk in chunks
            for choice in chunk["choices"]
            if choice["logprobs"]
            for entry in choice["logprobs"]["content"]
        ]
    else:
        document = server.chat(**fields)[1]
        ChatCompletion.model_validate(document, strict=True)
        entries = document["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == "Hello 😀 "
    assert all(entry["logprob"] == -0.25 and len(entry["top_logprobs"]) == 2 for entry in entries)
    assert server.engine.generations[0].request.sampling.candidates == 2


def test_content_parts_are_joined_and_harmless_fields_ignored(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ignored = {"user": "u", "metadata": {}, "store": True, "service_tier": "auto", "tools": [], "tool_choice": "none"}
    ignored |= {"response_format": {"type": "text"}, "reasoning_effort": "low", "nobody_knows": [1]}
    status, _ = server.chat(messages=[{"role": "developer", "content": parts}], **ignored)
    assert status == 200
    prompt = server.engine.tokenizer.decode(server.engine.generations[0].request.prompt_tokens)
    assert prompt == "<|im_start|>system\nab<|im_end|>\n<|im_start|>assistant\n"


def test_ignore_eos_runs_to_the_limit(server: RunningServer) -> None:
    assert server.chat(ignore_eos=True, max_tokens=5)[1]["choices"][0]["finish_reason"] == "length"
    assert server.engine.generations[0].request.eos_tokens == ()


def test_openais_client_reads_both_kinds(server: RunningServer) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(model="scripted", messages=USER)  # type: ignore[arg-type]
        assert whole.choices[0].message.content == "Hello world"
        stream = client.chat.completions.create(
            model="scripted",
            messages=USER,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello world"
        assert chunks[-1].usage is not None
        assert [model.id for model in client.models.list()] == ["scripted-1b", "scripted"]
        plain = client.completions.create(model="scripted", prompt="Once")
        assert plain.choices[0].text == "Hello world"
        with pytest.raises(openai.NotFoundError, match="not served here"):
            client.chat.completions.create(model="other", messages=USER)  # type: ignore[arg-type]
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(model="scripted", messages=USER, temperature=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "status"), [(AdmissionError("no page"), 503), (DeviceError("fault"), 500)])
def test_a_failure_has_its_status_when_nothing_was_sent(server: RunningServer, error: Any, status: int) -> None:
    """HTTP-3: scheduler rejection 503, device errors 500, for a response that is not streamed."""
    server.engine.submit_error = error
    got, document = server.chat()
    assert got == status
    assert document["error"]["message"] == str(error)
    assert document["error"]["code"] == error.code


def test_completions_take_text_tokens_and_lists_of_them(server: RunningServer) -> None:
    encode = server.engine.tokenizer.encode
    for prompt, expected in (
        ("hello", [encode("hello", allow_special=True)]),
        ([1, 2, 3], [[1, 2, 3]]),
        (["a", "b"], [encode("a", allow_special=True), encode("b", allow_special=True)]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ):
        server.engine.generations.clear()
        status, document = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 100})
        assert status == 200
        assert document["object"] == "text_completion"
        assert [choice["text"] for choice in document["choices"]] == ["Hello world"] * len(expected)
        assert [list(one.request.prompt_tokens) for one in server.engine.generations] == expected


def test_tokenize_shows_what_would_be_run(server: RunningServer) -> None:
    messages = [{"role": "user", "content": "hi <|im_end|>"}]
    server.chat(messages=messages)
    status, document = server.post("/tokenize", {"messages": messages})
    assert status == 200
    assert tuple(document["tokens"]) == server.engine.generations[0].request.prompt_tokens
    text = " a\r\n\0b é<|im_end|>"
    tokens = server.post("/tokenize", {"prompt": text})[1]["tokens"]
    assert server.post("/detokenize", {"tokens": tokens})[1] == {"prompt": text}
