"""`/v1/responses` over real HTTP: the items and events of answers, with OpenAI's own client as a witness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from helios.errors import AdmissionError, DeviceError
from helios.scheduler.request import Token
from tests.output.answers import ARGUMENTS, EXAMPLES, TOOLS, with_tokens
from tests.server import response_events, typed_events
from tests.server.conftest import RunningServer
from tests.server.scripted import saying
from tests.server.served_model import served_model
from tests.server.spoken import Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

PATH = "/v1/responses"
EXAMPLE = next(each for each in EXAMPLES if each.name == "json_tags")
TOOL_OBJECTS = [{"type": "function", "name": name, "parameters": schema} for name, schema in TOOLS.items()]


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaking]:
    plain = tokenizer_of(vocabularies.byte_level(tmp_path_factory.mktemp("vocabulary") / "plain.gguf", user_defined=()))
    with speaking(with_tokens(plain, EXAMPLE.tokens), EXAMPLE.frontend, template_of(EXAMPLE)) as server:
        yield server


def respond(server: RunningServer, **fields: Any) -> Any:
    """The same answer whole and streamed, which must agree; the whole one."""
    fields = {"input": "W?", **fields}
    status, document = server.post(PATH, fields)
    assert status == 200, document
    whole = response_events.of_document(document)
    streamed = response_events.of_events(typed_events.stream(server, PATH, fields))
    assert response_events.shown(streamed) == response_events.shown(whole)
    assert set(streamed) == set(whole)
    return whole


def test_a_text_is_one_message(server: RunningServer) -> None:
    response = respond(
        server, input="hi", metadata={"a": "b"}, instructions="Be brief.", max_output_tokens=50, store=False
    )
    (message,) = response["output"]
    assert message["id"].startswith("msg_")
    assert (message["role"], message["status"]) == ("assistant", "completed")
    assert message["content"] == [{"type": "output_text", "text": "Hello world", "annotations": [], "logprobs": []}]
    assert response["id"].startswith("resp_")
    assert (response["model"], response["status"], response["store"]) == ("scripted-1b", "completed", False)
    echoed = {
        "metadata": {"a": "b"},
        "instructions": "Be brief.",
        "max_output_tokens": 50,
        "previous_response_id": None,
    }
    assert echoed.items() <= response.items()


def test_usage_tells_what_the_cache_held(server: RunningServer) -> None:
    usage = respond(server)["usage"]
    n_prompt = len(server.engine.generations[0].request.prompt_tokens)
    n_output = len(server.engine.tokenizer.encode("Hello world", allow_special=False)) + 1
    assert usage == {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": n_output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": n_prompt + n_output,
    }


def test_reasoning_text_and_calls_are_items_in_their_order(spoken: Speaking) -> None:
    spoken.device.says(EXAMPLE.answer)
    response = respond(spoken.server, tools=TOOL_OBJECTS)
    reasoning, message, *calls = response["output"]
    assert (reasoning["type"], reasoning["content"]) == ("reasoning", [{"type": "reasoning_text", "text": "Need it."}])
    assert message["content"][0]["text"] == "Checking."
    assert [call["name"] for call in calls] == ["get_weather", "noargs"]
    assert [json.loads(call["arguments"]) for call in calls] == [json.loads(ARGUMENTS), {}]
    assert {item["status"] for item in response["output"]} == {"completed"}
    assert len({item["id"] for item in response["output"]} | {call["call_id"] for call in calls}) == 6
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 8


def test_an_answer_cut_anywhere_is_incomplete_and_its_last_item_too(spoken: Speaking) -> None:
    """A call that was cut off never has its arguments done."""
    n_tokens = len(spoken.tokenizer.encode(EXAMPLE.answer, allow_special=True))
    spoken.device.says(EXAMPLE.answer)
    seen = set()
    for limit in (1, 5, 12, 20, *range(30, n_tokens, 9)):
        response = respond(spoken.server, tools=TOOL_OBJECTS, max_output_tokens=limit)
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["completed_at"] is None
        statuses = [item["status"] for item in response["output"]]
        assert set(statuses[:-1]) <= {"completed"}
        seen |= {(item["type"], item["status"]) for item in response["output"]}
    kinds = ("reasoning", "message", "function_call")
    assert seen == {(kind, status) for kind in kinds for status in ("completed", "incomplete")}


def test_a_call_that_the_model_left_open_is_incomplete(spoken: Speaking) -> None:
    """T8: whatever the answer ended with, it is not to be carried out."""
    spoken.device.says('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Be')
    response = respond(spoken.server, tools=TOOL_OBJECTS)
    (call,) = response["output"]
    assert (response["status"], call["type"], call["status"]) == ("completed", "function_call", "incomplete")


def test_an_empty_answer_has_no_items(spoken: Speaking) -> None:
    spoken.device.voice = saying(())
    response = respond(spoken.server)
    assert (response["output"], response["status"]) == ([], "completed")


def test_log_probabilities_come_when_they_are_included(server: RunningServer) -> None:
    server.engine.logprob = -0.25
    fields: dict[str, Any] = {
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        "top_logprobs": 2,
    }
    part = respond(server, **fields)["output"][0]["content"][0]
    assert "".join(entry["token"] for entry in part["logprobs"]) == part["text"] == "Hello world"
    assert all(entry["logprob"] == -0.25 and len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])
    events = typed_events.stream(server, PATH, {"input": "hi", **fields})
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [entry for event in deltas for entry in event["logprobs"]] == part["logprobs"]
    assert respond(server)["output"][0]["content"][0]["logprobs"] == []


def test_a_failure_behind_the_headers_is_the_last_event(server: RunningServer) -> None:
    """HTTP-3: one terminal error event; the text so far stands in it."""
    server.engine.answer = None
    connection = server.connect()
    body = json.dumps({"input": "hi", "stream": True}).encode()
    connection.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    generation = server.generation()
    for token_id in server.engine.tokenizer.encode("Hel", allow_special=False):
        generation.send(Token(token_id))
    generation.fail(DeviceError("the device is gone"))
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(65536)
    assert b" 200 " in received.split(b"\r\n")[0]
    assert received.count(b"event: response.failed\n") == 1
    assert b"[DONE]" not in received
    assert b"response.completed" not in received
    failed = json.loads(received.split(b"event: response.failed\ndata: ")[1].split(b"\n\n")[0])["response"]
    assert failed["status"] == "failed"
    assert failed["error"] == {
        "code": "server_error",
        "message": "the device is gone",
        "param": None,
        "type": "device_error",
    }
    assert [item["status"] for item in failed["output"]] == ["incomplete"]
    assert failed["output"][0]["content"][0]["text"] == "Hel"


@pytest.mark.parametrize(("error", "status"), [(AdmissionError("no page"), 503), (DeviceError("fault"), 500)])
def test_a_failure_has_its_status_when_nothing_was_sent(server: RunningServer, error: Any, status: int) -> None:
    """HTTP-3."""
    server.engine.submit_error = error
    for fields in ({}, {"stream": True}):
        got, document = server.post(PATH, {"input": "hi", **fields})
        assert (got, document["error"]["code"], document["error"]["message"]) == (status, error.code, str(error))
    assert server.engine.n_admitted == 0


def test_a_full_server_refuses(server: RunningServer) -> None:
    """HTTP-1."""
    server.engine.capacity = 0
    status, headers, body = server.exchange("POST", PATH, b'{"input": "hi"}')
    assert status == 429
    assert headers["Retry-After"]
    assert json.loads(body)["error"]["type"] == "rate_limit_error"


def test_openais_client_holds_a_conversation(spoken: Speaking) -> None:
    """Whole, streamed and parsed; what came is taken back as history."""
    spoken.device.says(EXAMPLE.answer)
    with openai.OpenAI(base_url=spoken.server.url + "/v1", api_key="none", max_retries=0) as client:
        tools: Any = TOOL_OBJECTS
        whole = client.responses.create(model="sample", input="W?", tools=tools)
        assert whole.output_text == "Checking."
        kinds = [item.type for item in whole.output]
        assert kinds == ["reasoning", "message", "function_call", "function_call"]
        with client.responses.stream(model="sample", input="W?", tools=tools) as events:
            texts = [event.delta for event in events if event.type == "response.output_text.delta"]
            final = events.get_final_response()
        assert "".join(texts) == final.output_text == "Checking."
        assert [item.type for item in final.output] == kinds
        history: Any = [{"role": "user", "content": "W?"}, *(item.model_dump() for item in whole.output)]
        for item in whole.output:
            if item.type == "function_call":
                history.append({"type": "function_call_output", "call_id": item.call_id, "output": "sunny"})
        spoken.device.says("Sunny.")
        assert client.responses.create(model="sample", input=history, tools=tools).output_text == "Sunny."
        with pytest.raises(openai.BadRequestError, match="keeps nothing"):
            client.responses.create(model="sample", input="W?", previous_response_id="resp_1")
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve("resp_1")


class Place(pydantic.BaseModel):
    city: str


def test_openais_client_parses_what_a_schema_binds(spoken: Speaking) -> None:
    spoken.device.voice = saying(spoken.tokenizer.encode('{"city":"Bern"}', allow_special=False))
    with openai.OpenAI(base_url=spoken.server.url + "/v1", api_key="none", max_retries=0) as client:
        parsed = client.responses.parse(model="sample", input="W?", text_format=Place)
        assert parsed.output_parsed == Place(city="Bern")
        assert spoken.device.requests[-1].constraint is not None


def test_the_default_model_responds_as_it_chats(default_core: Path) -> None:
    with served_model(default_core) as model:
        question = "What is the capital of France?"
        fields = {"temperature": 0, "max_output_tokens": 24}
        chat = model.chat(question, temperature=0, max_tokens=24)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{model.port}/v1", api_key="none", max_retries=0)
        with client:
            whole = client.responses.create(model=model.engine.served_id, input=question, **fields)  # type: ignore[call-overload]
            with client.responses.stream(model=model.engine.served_id, input=question, **fields) as events:  # type: ignore[arg-type]
                streamed = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert whole.output_text == streamed == chat["choices"][0]["message"]["content"]
    assert whole.usage.output_tokens == chat["usage"]["completion_tokens"]
