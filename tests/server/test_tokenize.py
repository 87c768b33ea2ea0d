"""/tokenize and /detokenize: what would be run, and any text there and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import RunningServer


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
