"""/tokenize and /detokenize: what would be run, and any text there and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import RunningServer
from tests.server.scripted_engine import ScriptedEngine


@given(
    text=st.text(min_size=1, max_size=40) | st.sampled_from([" a", "\r\n", "\0", "\u0301", "  ", "a\u0301 <|im_end|>"])
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back(server: RunningServer, text: str) -> None:
    """Research 1.7: leading spaces, line ends, NUL, lone combining marks, control spellings."""
    status, document = server.post("/tokenize", {"prompt": text, "return_token_strs": True})
    assert status == 200
    assert document["count"] == len(document["tokens"]) == len(document["token_strs"])
    assert server.post("/detokenize", {"tokens": document["tokens"]}) == (200, {"prompt": text})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"add_generation_prompt": False},
        {"chat_template_kwargs": {"note": "x"}, "reasoning_effort": "low"},
        {
            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "continue_final_message": True,
        },
    ],
)
def test_a_conversation_is_shown_as_it_would_be_run(server: RunningServer, fields: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "hi <|im_end|>"}], **fields}
    assert server.post("/v1/chat/completions", body)[0] == 200
    tokens = server.post("/tokenize", body)[1]["tokens"]
    assert tuple(tokens) == server.engine.generations[-1].request.prompt_tokens


def test_the_prompt_ends_as_it_was_asked_to(server: RunningServer) -> None:
    """add_generation_prompt and continue_final_message."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    decode, tokenize = server.engine.tokenizer.decode, lambda **fields: server.post("/tokenize", fields)[1]["tokens"]
    assert decode(tokenize(messages=turns)).endswith("b<|im_end|>\n<|im_start|>assistant\n")
    assert decode(tokenize(messages=turns, add_generation_prompt=False)).endswith("b<|im_end|>\n")
    assert decode(tokenize(messages=turns, continue_final_message=True)).endswith("<|im_start|>assistant\nb")


def test_a_part_of_a_prompt_begins_with_no_token_of_its_own(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    """lm-eval's remote tokenizer joins parts: only a whole prompt begins with the beginning-of-sequence token."""
    engine.adds_bos = True
    server = start_server()
    first = server.engine.tokenizer.token_id(engine.bos_text)
    whole = server.post("/tokenize", {"prompt": "hello"})[1]["tokens"]
    assert whole[0] == first
    assert server.post("/tokenize", {"prompt": "hello", "add_special_tokens": True})[1]["tokens"] == whole
    assert server.post("/tokenize", {"prompt": "hello", "add_special_tokens": False})[1]["tokens"] == whole[1:]
    assert server.post("/tokenize", {"prompt": "hello", "add_special_tokens": 0})[0] == 400


def test_harnesses_learn_what_ends_a_text(server: RunningServer) -> None:
    """lm-eval takes the tokenizer from the server where /tokenizer_info names the end token, and that is one token."""
    status, _, body = server.exchange("GET", "/tokenizer_info")
    information = json.loads(body)
    assert status == 200
    assert information["chat_template"] == server.engine.chat_template
    assert (information["bos_token"], information["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    request = {"prompt": information["eos_token"], "add_special_tokens": False}
    assert server.post("/tokenize", request)[1]["tokens"] == list(server.engine.eos_tokens)
