"""`/v1/messages` over real HTTP: the blocks and events of answers, errors in Anthropic's form, with its own client as a witness."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from helios.errors import AdmissionError, DeviceError
from helios.scheduler.request import Token
from tests.output.answers import ARGUMENTS, EXAMPLES, TOOLS, with_tokens
from tests.server import message_events, typed_events
from tests.server.conftest import RunningServer, wait_until
from tests.server.scripted import saying, skipping
from tests.server.scripted_engine import ScriptedEngine
from tests.server.served_model import served_model
from tests.server.spoken import Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

PATH = "/v1/messages"
EXAMPLE = next(each for each in EXAMPLES if each.name == "json_tags")
USER = [{"role": "user", "content": "W?"}]
TOOL_OBJECTS = [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()]
THINKING = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaking]:
    plain = tokenizer_of(vocabularies.byte_level(tmp_path_factory.mktemp("vocabulary") / "plain.gguf", user_defined=()))
    with speaking(with_tokens(plain, EXAMPLE.tokens), EXAMPLE.frontend, template_of(EXAMPLE)) as server:
        yield server


def ask(server: RunningServer, **fields: Any) -> Any:
    """The same answer whole and streamed, which must agree but for a call that was cut off; the whole one."""
    fields = {"messages": USER, "max_tokens": 1000, **fields}
    status, document = server.post(PATH, fields)
    assert status == 200, document
    whole = message_events.of_document(document)
    streamed = message_events.of_events(typed_events.stream(server, PATH, fields))
    complete = [block for block in streamed["content"] if block["type"] != "tool_use" or block["input"] is not None]
    assert len(streamed["content"]) - len(complete) <= 1
    assert message_events.shown({**streamed, "content": complete}) == message_events.shown(whole)
    assert set(streamed) == set(whole)
    return whole


def test_a_text_is_one_block(server: RunningServer) -> None:
    message = ask(server)
    assert message["id"].startswith("msg_")
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "scripted-1b")
    assert message["content"] == [{"type": "text", "text": "Hello world"}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)


def test_usage_parts_the_prompt_into_read_and_cached(server: RunningServer) -> None:
    usage = ask(server)["usage"]
    n_prompt = len(server.engine.generations[0].request.prompt_tokens)
    n_output = len(server.engine.tokenizer.encode("Hello world", allow_special=False)) + 1
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 1}
    assert usage == {"input_tokens": n_prompt - 1, "output_tokens": n_output, **cached}
    start = typed_events.stream(server, PATH, {"messages": USER, "max_tokens": 9})[0]
    assert start["message"]["usage"] == {"input_tokens": n_prompt, "output_tokens": 0}


def test_thinking_text_and_calls_are_blocks_in_their_order(spoken: Speaking) -> None:
    spoken.device.says(EXAMPLE.answer)
    message = ask(spoken.server, tools=TOOL_OBJECTS, thinking=THINKING)
    thinking, text, *calls = message["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "Need it.")
    assert thinking["signature"]
    assert text == {"type": "text", "text": "Checking."}
    assert [(call["name"], call["input"]) for call in calls] == [("get_weather", json.loads(ARGUMENTS)), ("noargs", {})]
    assert len({call["id"] for call in calls}) == 2
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 8}


@pytest.mark.parametrize(
    "thinking",
    [None, {"type": "disabled"}, {**THINKING, "display": "omitted"}, {"type": "adaptive", "display": "omitted"}],
)
def test_thinking_that_nobody_wants_to_see_is_not_shown(spoken: Speaking, thinking: Any) -> None:
    spoken.device.says(EXAMPLE.answer)
    message = ask(spoken.server, tools=TOOL_OBJECTS, thinking=thinking)
    assert [block["type"] for block in message["content"]] == ["text", "tool_use", "tool_use"]
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 8}


def test_numbers_that_no_reader_takes_are_given_as_text(spoken: Speaking) -> None:
    """Whole: a number of thousands of digits, or beyond the largest double, breaks no response."""
    digits = "9" * 700
    arguments = f'{{"city": {digits}, "days": -1e999, "n": 1.5, "o": {{"a": -7}}}}'
    spoken.device.says(f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>')
    status, document = spoken.server.post(PATH, {"messages": USER, "max_tokens": 2000, "tools": TOOL_OBJECTS})
    assert status == 200
    (call,) = message_events.of_document(document)["content"]
    assert call["input"] == {"city": digits, "days": "-1e999", "n": 1.5, "o": {"a": -7}}


def test_an_answer_cut_anywhere_says_so_and_has_no_broken_call(spoken: Speaking) -> None:
    n_tokens = len(spoken.tokenizer.encode(EXAMPLE.answer, allow_special=True))
    spoken.device.says(EXAMPLE.answer)
    n_calls = set()
    for limit in (1, 5, 12, 20, *range(30, n_tokens, 9)):
        message = ask(spoken.server, tools=TOOL_OBJECTS, thinking=THINKING, max_tokens=limit)
        assert message["stop_reason"] == "max_tokens"
        n_calls.add(sum(block["type"] == "tool_use" for block in message["content"]))
    assert n_calls == {0, 1}


def test_a_call_that_the_model_left_open_is_no_tool_use(spoken: Speaking) -> None:
    """T8: whatever the answer ended with, it is not to be carried out; nor are complete ones told as the reason."""
    spoken.device.says(EXAMPLE.answer[: EXAMPLE.answer.index('"noargs"') + len('"noargs", "arguments": {')])
    message = ask(spoken.server, tools=TOOL_OBJECTS)
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["stop_reason"] == "end_turn"


def test_the_end_of_the_context_is_told_apart_from_the_clients_limit(
    start_server: Callable[..., RunningServer], engine: ScriptedEngine
) -> None:
    n_prompt = start_server().post(f"{PATH}/count_tokens", {"messages": USER})[1]["input_tokens"]
    engine.context_tokens = n_prompt + 5
    server = start_server()
    assert ask(server, max_tokens=1000)["stop_reason"] == "model_context_window_exceeded"
    assert ask(server, max_tokens=5)["stop_reason"] == "max_tokens"
    engine.context_tokens = n_prompt
    status, document = start_server().post(PATH, {"messages": USER, "max_tokens": 5})
    assert (status, document["error"]["type"]) == (400, "invalid_request_error")
    assert start_server().post(f"{PATH}/count_tokens", {"messages": USER}) == (200, {"input_tokens": n_prompt})


@pytest.mark.parametrize(
    ("stops", "stop", "n_blocks"),
    [(["king", "zzz"], "king", 2), (["Need"], "Need", 0), (["noargs"], "noargs", 3)],
)
def test_the_stop_that_ended_the_answer_is_told(spoken: Speaking, stops: list[str], stop: str, n_blocks: int) -> None:
    """STOP-2, STOP-3: in text, thinking and calls; calls that came before it are there, and the reason is the stop."""
    spoken.device.says(EXAMPLE.answer)
    message = ask(spoken.server, tools=TOOL_OBJECTS, thinking=THINKING, stop_sequences=stops)
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", stop)
    assert len(message["content"]) == n_blocks


def test_a_call_that_was_asked_for_is_a_tool_use(spoken: Speaking) -> None:
    """Any tool, a named one, and one at a time."""
    calls = EXAMPLE.answer.replace("Checking.", "")
    spoken.device.voice = skipping(spoken.tokenizer.encode(calls, allow_special=True))
    for choice, names in (
        ({"type": "any"}, ["get_weather", "noargs"]),
        ({"type": "tool", "name": "get_weather"}, ["get_weather"]),
        ({"type": "auto", "disable_parallel_tool_use": True}, ["get_weather"]),
    ):
        message = ask(spoken.server, tools=TOOL_OBJECTS, tool_choice=choice)
        assert [block.get("name") for block in message["content"]] == names
        assert message["stop_reason"] == "tool_use"


def test_an_empty_answer_has_no_blocks(spoken: Speaking) -> None:
    spoken.device.voice = saying(())
    message = ask(spoken.server)
    assert (message["content"], message["stop_reason"]) == ([], "end_turn")


def test_silence_is_filled_with_pings(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(ping_interval=1)
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(_raw(stream=True))
    generation = server.generation()
    received = b""
    while b"event: ping\n" not in received:
        received += connection.recv(65536)
    generation.give(server.engine.eos_tokens[0])
    while not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(65536)
    assert b'event: ping\ndata: {"type":"ping"}\n\n' in received
    assert received.count(b"event: message_stop\n") == 1


def test_a_failure_behind_the_headers_is_the_last_event(server: RunningServer) -> None:
    """HTTP-3: one terminal error event, no message_stop."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(_raw(stream=True))
    generation = server.generation()
    for token_id in server.engine.tokenizer.encode("Hel", allow_special=False):
        generation.send(Token(token_id))
    generation.fail(DeviceError("the device is gone"))
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(65536)
    assert b" 200 " in received.split(b"\r\n")[0]
    assert b"message_stop" not in received
    assert b"[DONE]" not in received
    error = json.loads(received.split(b"event: error\ndata: ")[1].split(b"\n\n")[0])
    assert error == {"type": "error", "error": {"type": "api_error", "message": "the device is gone"}}


def test_a_client_that_goes_frees_its_slot(server: RunningServer) -> None:
    """HTTP-2."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(_raw(stream=True))
    generation = server.generation()
    connection.close()
    wait_until(lambda: generation.is_cancelled and server.engine.n_admitted == 0)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(AdmissionError("no page"), 503, "overloaded_error"), (DeviceError("fault"), 500, "api_error")],
)
def test_a_failure_has_its_status_when_nothing_was_sent(
    server: RunningServer, error: Any, status: int, kind: str
) -> None:
    """HTTP-3."""
    server.engine.submit_error = error
    for fields in ({}, {"stream": True}):
        got, document = server.post(PATH, {"messages": USER, "max_tokens": 5, **fields})
        assert (got, document) == (status, {"type": "error", "error": {"type": kind, "message": str(error)}})


def test_refusals_at_the_head_and_of_bodies_have_the_same_form(
    start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    """HTTP-1: before a body is read too, and nowhere but on this API's paths."""
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    server = start_server(api_key_file=str(keys), body_limit=1024)

    def kind(path: str, body: bytes = b"{}", method: str = "POST", **headers: str) -> tuple[int, Any]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        status, _, answer = server.exchange(method, path, body, names)
        document = json.loads(answer)
        assert isinstance(document["error"]["message"], str)
        return status, document["error"]["type"] if document.get("type") == "error" else None

    for path in (PATH, f"{PATH}/count_tokens"):
        assert kind(path) == (401, "authentication_error")
        assert kind(path, x_api_key="secret") == (400, "invalid_request_error")
        assert kind(path, b"x" * 2000, x_api_key="secret") == (413, "request_too_large")
        assert kind(path, method="PUT", x_api_key="secret") == (405, "invalid_request_error")
        assert kind(path, b'{"model": "other", "max_tokens": 1}', x_api_key="secret") == (404, "not_found_error")
    assert kind("/v1/chat/completions") == (401, None)
    server.engine.capacity = 0
    assert kind(PATH, x_api_key="secret") == (429, "rate_limit_error")


def test_anthropics_client_holds_a_conversation(spoken: Speaking) -> None:
    """Whole and streamed; what came is taken back as history, and its prompt is counted."""
    spoken.device.says(EXAMPLE.answer)
    messages: Any = [*USER]
    asked: dict[str, Any] = {"model": "sample", "max_tokens": 500, "tools": TOOL_OBJECTS, "thinking": THINKING}
    with anthropic.Anthropic(base_url=spoken.server.url, api_key="none", max_retries=0) as client:
        whole = client.messages.create(messages=messages, **asked)
        kinds = [block.type for block in whole.content]
        assert kinds == ["thinking", "text", "tool_use", "tool_use"]
        with client.messages.stream(messages=messages, **asked) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == "Checking."
        assert [block.type for block in final.content] == kinds
        assert [b.input for b in final.content if b.type == "tool_use"] == [json.loads(ARGUMENTS), {}]
        assert final.usage.output_tokens == whole.usage.output_tokens
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
            for block in whole.content
            if block.type == "tool_use"
        ]
        messages += [{"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
        spoken.device.says("Sunny.")
        again = client.messages.create(messages=messages, **asked)
        assert [block.text for block in again.content if block.type == "text"] == ["Sunny."]
        beta = client.beta.messages.create(messages=messages, betas=["interleaved-thinking-2025-05-14"], **asked)
        assert [block.text for block in beta.content if block.type == "text"] == ["Sunny."]
        n_counted = client.messages.count_tokens(model="sample", messages=messages, tools=asked["tools"]).input_tokens
        assert n_counted == len(spoken.device.requests[-1].prompt_tokens)
        with pytest.raises(anthropic.NotFoundError, match="not served here"):
            client.messages.create(model="other", max_tokens=5, messages=messages)
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            client.messages.create(model="sample", max_tokens=5, messages=messages, extra_body={"temperature": 3})


def test_the_default_model_answers_as_it_chats(default_core: Path) -> None:
    with served_model(default_core) as model:
        question = "What is the capital of France?"
        chat = model.chat(question, temperature=0, max_tokens=24)
        fields: dict[str, Any] = {"model": model.engine.served_id, "max_tokens": 24, "extra_body": {"temperature": 0}}
        fields["messages"] = [{"role": "user", "content": question}]
        url = f"http://127.0.0.1:{model.port}"
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
            whole = client.messages.create(**fields)
            with client.messages.stream(**fields) as stream:
                streamed = "".join(stream.text_stream)
    assert [block.text for block in whole.content] == [streamed] == [chat["choices"][0]["message"]["content"]]
    assert whole.usage.output_tokens == chat["usage"]["completion_tokens"]
    n_prompt = (whole.usage.cache_read_input_tokens or 0) + whole.usage.input_tokens
    assert n_prompt == chat["usage"]["prompt_tokens"]


def _raw(**fields: Any) -> bytes:
    body = json.dumps({"messages": USER, "max_tokens": 100, **fields}).encode()
    return b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
