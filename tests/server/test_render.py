"""The endpoints that routers call beside those of OpenAI: the tokens of a request, the version, further names."""

from __future__ import annotations

import json

from helios.settings import VERSION
from tests.server.conftest import RunningServer

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "temperature": 0, "stream": True}


def test_a_rendered_conversation_is_what_would_be_run(server: RunningServer) -> None:
    """The tokens that the engine gets for the same body, and the fields that a router reads."""
    status, rendered = server.post("/v1/chat/completions/render", CHAT)
    assert status == 200
    assert not server.engine.generations, "nothing is generated"
    server.exchange("POST", "/v1/chat/completions", json.dumps(CHAT).encode())
    assert rendered["token_ids"] == list(server.generation().request.prompt_tokens)
    assert rendered["request_id"].startswith("chatcmpl-")
    assert (rendered["model"], rendered["stream"]) == (server.engine.served_id, True)
    assert (rendered["cache_salt"], rendered["priority"]) == (None, 0)
    assert rendered["sampling_params"]["max_tokens"] == 5
    assert rendered["sampling_params"]["temperature"] == 0


def test_each_prompt_of_a_completion_is_rendered(server: RunningServer) -> None:
    status, rendered = server.post("/v1/completions/render", {"prompt": ["one", [5, 6]], "cache_salt": "mine"})
    assert status == 200
    one = server.post("/tokenize", {"prompt": "one"})[1]["tokens"]
    assert [entry["token_ids"] for entry in rendered] == [one, [5, 6]]
    assert {entry["cache_salt"] for entry in rendered} == {"mine"}


def test_what_the_endpoint_refuses_is_not_rendered(server: RunningServer) -> None:
    """Other models, other types, prompts that fill the context."""
    assert server.post("/v1/chat/completions/render", {**CHAT, "model": "another"})[0] == 404
    assert server.post("/v1/chat/completions/render", {**CHAT, "temperature": "warm"})[0] == 400
    long = {"prompt": [5] * server.engine.context_tokens}
    status, error = server.post("/v1/completions/render", long)
    assert (status, error["error"]["code"]) == (400, "context_length_exceeded")
    assert error == server.post("/v1/completions", long)[1]


def test_fields_that_routers_add_are_taken(server: RunningServer) -> None:
    """vllm-router sends these with every conversation."""
    added = {
        "no_stop_trim": False,
        "ignore_eos": False,
        "continue_final_message": False,
        "skip_special_tokens": True,
        "separate_reasoning": True,
        "stream_reasoning": True,
        "return_hidden_states": False,
        "include_reasoning": True,
        "logprobs": False,
    }
    for path in ("/v1/chat/completions", "/v1/chat/completions/render"):
        assert server.post(path, {**CHAT, **added, "stream": False})[0] == 200, path


def test_the_version_and_the_owner_are_told(server: RunningServer) -> None:
    """What routers probe to learn which engine this is."""
    assert json.loads(server.exchange("GET", "/version")[2]) == {"version": VERSION}
    (first, *_) = json.loads(server.exchange("GET", "/v1/models")[2])["data"]
    assert first["owned_by"] == "helios"
    assert first["max_model_len"] == server.engine.context_tokens
