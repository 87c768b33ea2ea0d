"""Bad bodies: each one OpenAI-shaped error that names the field, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from helios.tokenizer.tokenizer import Tokenizer
from tests.server.conftest import RunningServer
from tests.server.scripted_engine import ScriptedEngine

USER = [{"role": "user", "content": "hi"}]


ARGUMENTS = "messages[0].tool_calls[0].function.arguments"


def call(name: str | None = None, arguments: Any = "{}", kind: str = "function") -> Any:
    return {"id": "c1", "type": kind, "function": {"name": name, "arguments": arguments}}


def assert_error(document: Any, param: str | None = None, code: str = "invalid_value") -> None:
    assert list(document) == ["error"]
    error = document["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


def refused(server: RunningServer, body: bytes, path: str = "/v1/chat/completions") -> Any:
    status, headers, answer = server.exchange("POST", path, body)
    assert status == 400, answer
    assert headers["Content-Type"] == "application/json"
    return json.loads(answer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b'{"messages": [],}',
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": ' + b"1" * 5000 + b"}",
        b'{"user": "\xff\xfe"}',
        '{"messages": []}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
)
def test_a_body_that_is_not_a_json_object_in_utf8_is_refused(server: RunningServer, body: bytes) -> None:
    """Research items 23 and 38."""
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        document = refused(server, body, path)
        assert document["error"]["type"] == "invalid_request_error"
    assert server.chat()[0] == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [123]}, "messages[0]"),
        ({"messages": [{}]}, "messages[0].role"),
        ({"messages": [{"role": 123, "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
        ({"messages": [*USER, {"role": "user", "content": 123}]}, "messages[1].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "teapot"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [7]}]}, "messages[0].tool_calls[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        ({"messages": [{"role": "assistant", "tool_calls": [call()]}]}, "messages[0].tool_calls[0].function.name"),
        ({"messages": [{"role": "assistant", "tool_calls": [call("f", 7)]}]}, ARGUMENTS),
        ({"messages": [{"role": "assistant", "tool_calls": [call("f", "{")]}]}, ARGUMENTS),
        ({"messages": [{"role": "assistant", "tool_calls": [call("f", "[]")]}]}, ARGUMENTS),
        ({"messages": [{"role": "assistant", "tool_calls": [call("f", "[" * 9999)]}]}, ARGUMENTS),
        ({"messages": [{"role": "assistant", "tool_calls": [call("f", '{"a": "\\ud800"}')]}]}, ARGUMENTS),
        ({"messages": [{"role": "assistant", "tool_calls": [call("f", "{}", "x")]}]}, "messages[0].tool_calls[0].type"),
        ({"messages": [{"role": "tool", "content": "a", "tool_call_id": 7}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "a", "name": 7}]}, "messages[0].name"),
        ({"messages": [{"role": "assistant", "reasoning_content": 7}]}, "messages[0].reasoning_content"),
        ({"model": 7}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": "true"}}, "stream_options.include_usage"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1e9}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": 1.0}, "seed"),
        ({"seed": 1 << 64}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"logprobs": 3}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": ""}, "stop"),
        ({"stop": 7}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ["é" * 1025, "é" * 1024]}, "stop"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias[a]"),
        ({"logit_bias": {"-1": 1}}, "logit_bias[-1]"),
        ({"logit_bias": {"7": 1, "07": 1}}, "logit_bias[07]"),
        ({"logit_bias": {"99999": 1}}, "logit_bias[99999]"),
        ({"logit_bias": {str(1 << 31): 1}}, f"logit_bias[{1 << 31}]"),
        ({"logit_bias": {str(1 << 63): 1}}, f"logit_bias[{1 << 63}]"),
        ({"logit_bias": {"1": 101}}, "logit_bias[1]"),
        ({"logit_bias": {"1": "x"}}, "logit_bias[1]"),
        ({"logit_bias": {"٣": 1}}, "logit_bias[٣]"),
    ],
)
def test_a_wrong_value_is_refused_by_name(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    """Research items 33, 34 and 38; STOP-1."""
    document = refused(server, json.dumps({"messages": USER, **fields}).encode())
    assert_error(document, param)
    assert server.engine.n_admitted == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"min_tokens": 4},
        {"best_of": True},
        {"prompt_logprobs": 1},
        {"echo": True},
        {"functions": [{"name": "f"}]},
        {"function_call": {"name": "f"}},
        {"guided_json": {}},
        {"chat_template": "{{ 1 }}"},
        {"documents": [{}]},
        {"include_stop_str_in_output": True},
        {"skip_special_tokens": False},
        {"modalities": ["audio"]},
    ],
)
def test_what_would_change_the_answer_is_refused_not_ignored(server: RunningServer, fields: dict[str, Any]) -> None:
    status, document = server.chat(**fields)
    assert status == 400
    assert_error(document, *fields)
    assert "not supported" in document["error"]["message"]


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": TOOLS}, "tools"),  # a model without tool calls
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"stop_token_ids": 7}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [1, 1 << 63]}, "stop_token_ids[1]"),
        ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [1] * 1025}, "stop_token_ids"),
        ({"stop_token_sequences": [1]}, "stop_token_sequences[0]"),
        ({"stop_token_sequences": [[]]}, "stop_token_sequences[0]"),
        ({"stop_token_sequences": [[1] * 65]}, "stop_token_sequences[0]"),
        ({"stop_token_sequences": [[1]] * 17}, "stop_token_sequences"),
        ({"stop_token_sequences": [[1], [99999]]}, "stop_token_sequences[1][0]"),
        ({"stop": "a", "stop_token_ids": [1]}, "stop"),
        ({"stop": ["a"], "stop_token_sequences": [[1]]}, "stop"),
        ({"stop": "a", "response_format": {"type": "json_object"}}, "stop"),
        ({"ignore_eos": True, "structured_outputs": {"choice": ["a"]}}, "ignore_eos"),
        ({"return_token_ids": 1}, "return_token_ids"),
        ({"return_token_ids": True, "return_token_timestamps": "yes"}, "return_token_timestamps"),
        ({"return_token_timestamps": True}, "return_token_timestamps"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "x" * 1025}, "cache_salt"),
        ({"priority": "high"}, "priority"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"add_generation_prompt": "yes"}, "add_generation_prompt"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
    ],
)
def test_what_a_request_asks_for_is_checked(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    """STOP-1, STOP-4, OBS-2, OBS-4; research item 34."""
    document = refused(server, json.dumps({"messages": USER, **fields}).encode())
    assert_error(document, param)
    assert server.engine.n_admitted == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": None, "tool_choice": "auto"},
        {"tools": TOOLS, "tool_choice": "none"},
        {"parallel_tool_calls": False},
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"stop": "a", "response_format": {"type": "text"}},
        {"stop": [], "stop_token_ids": [1], "stop_token_sequences": [[1] * 64] * 16},
        {"stop_token_ids": []},
        {"return_token_ids": None, "return_token_timestamps": False},
        {"stream_options": {"include_usage": True}},
        {"cache_salt": "mine", "priority": -3},
        {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "flex", "safety_identifier": "x"},
        {"prompt_cache_key": "k", "verbosity": "low", "prediction": None, "seed": None},
        {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
        {"add_generation_prompt": False},
        {"max_tokens": None, "max_completion_tokens": 4},
    ],
)
def test_what_clients_send_is_taken(server: RunningServer, fields: dict[str, Any]) -> None:
    """Research 1.5: the matrix of bodies."""
    status, document = server.chat(**fields)
    assert status == 200, document


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": None, "tool_calls": [call("f")]},
        {"role": "assistant", "content": "", "tool_calls": [call("f", "")]},
        {"role": "assistant", "tool_calls": [call("f", '{"a": [1, {"b": null}]}'), call("g")]},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "reasoning_content": "hm"},
        {"role": "assistant", "content": "a", "reasoning": "hm", "refusal": None, "audio": None, "function_call": None},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]},
        {"role": "tool", "content": [{"type": "text", "text": "sunny"}], "tool_call_id": "c1"},
        {"role": "tool", "content": "sunny"},
        {"role": "user", "content": "", "name": "ann"},
    ],
)
def test_every_kind_of_history_is_taken(server: RunningServer, turn: Any) -> None:
    """Research item 18: null, missing or empty content beside calls, and what the server answered itself."""
    status, document = server.chat(messages=[*USER, turn, *USER])
    assert status == 200, document


def test_neutral_values_ask_for_nothing(server: RunningServer) -> None:
    fields = {"tools": None, "functions": [], "min_tokens": 0, "best_of": 1, "echo": False, "logit_bias": None}
    fields |= {"temperature": None, "top_p": 0, "seed": None, "stop": None, "n": None, "logprobs": None, "stream": None}
    assert server.chat(**fields)[0] == 200


def test_the_largest_token_id_is_accepted(server: RunningServer) -> None:
    """Research item 34: the range is the model's own vocabulary."""
    last = server.engine.vocabulary - 1
    assert server.chat(logit_bias={str(last): -100})[0] == 200
    assert server.engine.generations[0].request.sampling.logit_bias == ((last, -100.0),)
    assert_error(server.chat(logit_bias={str(last + 1): 1})[1], f"logit_bias[{last + 1}]")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"user": "a\x01"}', "the body is not JSON: Invalid control character at character 11"),
        (b'{"user": "a', "the body is not JSON: Unterminated string starting at character 9"),
        (b"[1, 2]", "the body must be a JSON object, not a list of 2"),
        (b'{"messages": []}', "messages must be a list of at least one message, not an empty list"),
        (b'{"messages": [{"role": "user", "content": "a"}], "stop": ["a", "b", "c", "d", "e"]}', ", not a list of 5"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(server: RunningServer, body: bytes, says: str) -> None:
    assert refused(server, body, "/v1/chat/completions")["error"]["message"].endswith(says)


def test_an_unknown_model_is_not_found(server: RunningServer) -> None:
    for name in ("other", "", "x" * 5000, "scripted-1b/../x"):
        status, document = server.chat(model=name)
        assert status == 404
        assert_error(document, "model", "model_not_found")
        assert len(document["error"]["message"]) < 300
    for name in ("scripted-1b", "scripted"):
        assert server.chat(model=name)[0] == 200


@pytest.mark.parametrize("spelled", ["word ", "<|im_end|> word "])
def test_a_prompt_that_is_far_too_long_is_not_tokenised(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    """HTTP-1: it would take seconds of a preparation thread."""
    encode = Tokenizer.encode

    def encode_short(tokenizer: Tokenizer, text: str, *, allow_special: bool) -> list[int]:
        assert len(text) < 1000
        return encode(tokenizer, text, allow_special=allow_special)

    monkeypatch.setattr(Tokenizer, "encode", encode_short)
    text = spelled * 20_000
    conversation = {"messages": [{"role": "user", "content": text}]}
    for path, body in (
        ("/v1/chat/completions", conversation),
        ("/v1/chat/completions/render", conversation),
        ("/v1/completions", {"prompt": text}),
        ("/v1/completions/render", {"prompt": ["short", text]}),
        ("/v1/messages", {**conversation, "model": server.engine.served_id, "max_tokens": 5}),
        ("/v1/responses", {"input": text}),
    ):
        status, document = server.post(path, body)
        assert status == 400, path
        assert " tokens or more, the limit is " in document["error"]["message"], path


def test_a_prompt_longer_than_the_context_says_both_counts(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """Research item 45: prompts of the context less one, of the context and of one more."""
    n_frame = len(engine.tokenizer.encode("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n", allow_special=True))
    engine.context_tokens, engine.answer = 64, "x" * 100
    server = start_server()
    for is_stream in (False, True):
        for n_prompt in (64, 65):
            text = "x" * (n_prompt - n_frame)
            messages = [{"role": "user", "content": text}]
            status, document = server.chat(messages=messages, stream=is_stream, max_tokens=4)
            assert status == 400
            assert_error(document, "messages", "context_length_exceeded")
            assert f"{n_prompt} tokens, the limit is 63" in document["error"]["message"]
    status, document = server.chat(messages=[{"role": "user", "content": "x" * (63 - n_frame)}])
    assert document["choices"][0]["finish_reason"] == "length"
    assert document["usage"]["prompt_tokens"] == 63
    assert document["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [[]], [""], 7, {}, [-1], [1.5], [True], ["a", [1]], [1, "a"], [1 << 31], [1 << 63], ["a"] * 17],
)
def test_completion_prompts_are_checked(server: RunningServer, prompt: Any) -> None:
    """Research item 34."""
    if prompt == ["a", [1]]:
        assert server.post("/v1/completions", {"prompt": prompt})[0] == 200
        return
    status, document = server.post("/v1/completions", {"prompt": prompt})
    assert status == 400
    assert document["error"]["param"].startswith("prompt")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": 1}, "echo"),
        ({"echo": True, "logprobs": 1}, "echo"),  # a model that scores no prompts
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "max_tokens": False}, "max_tokens"),
        ({"tools": TOOLS}, "tools"),
        ({"best_of": 2}, "best_of"),
        ({"prompt": ["a", "b"], "return_token_ids": True}, "return_token_ids"),
    ],
)
def test_completions_refuse_what_they_do_not_do(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    status, document = server.post("/v1/completions", {"prompt": "a", **fields})
    assert status == 400
    assert_error(document, param)


def test_detokenize_checks_every_id(server: RunningServer) -> None:
    for tokens in (None, "a", [server.engine.vocabulary], [-1], ["1"]):
        assert server.post("/detokenize", {"tokens": tokens})[0] == 400
    assert server.post("/detokenize", {"tokens": []})[1] == {"prompt": ""}


def test_a_byte_order_mark_is_no_reason_to_refuse(server: RunningServer) -> None:
    body = b"\xef\xbb\xbf" + json.dumps({"messages": USER}).encode()
    assert server.exchange("POST", "/v1/chat/completions", body)[0] == 200
