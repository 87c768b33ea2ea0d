"""How answers begin and end over real HTTP: continued prompts, grammars, stops, limits, failures, clients that go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import pytest

from helios.scheduler.request import GenerationRequest
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, with_tokens
from tests.server.chat_answers import of_document
from tests.server.conftest import raw_chat, wait_until
from tests.server.scripted import is_allowed, saying
from tests.server.spoken import TOOL_OBJECTS, Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

NAMED = {each.name: each for each in EXAMPLES}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}}


@pytest.fixture(scope="module")
def plain_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "plain.gguf"
    return tokenizer_of(vocabularies.byte_level(path, user_defined=()))


@pytest.fixture
def start(plain_tokenizer: Tokenizer) -> Iterator[Callable[[str], Speaking]]:
    """Starts servers for an example by name; a failed one serves nobody else."""
    running: list[Any] = []

    def begin(name: str) -> Speaking:
        example = NAMED[name]
        tokenizer = with_tokens(plain_tokenizer, example.tokens)
        running.append(speaking(tokenizer, example.frontend, template_of(example)))
        entered: Speaking = running[-1].__enter__()
        return entered

    yield begin
    for each in running:
        each.__exit__(None, None, None)


@pytest.fixture
def spoken(start: Callable[[str], Speaking]) -> Speaking:
    return start("json_tags")


def test_a_device_that_fails_ends_the_stream_with_one_error(spoken: Speaking) -> None:
    """HTTP-3, FE-7: in the middle of a call, under HTTP 200, one error event and no [DONE]; afterwards a status."""
    spoken.device.says(NAMED["json_tags"].answer)
    spoken.device.fails_at = 100
    *chunks, last = spoken.server.chat_events(tools=TOOL_OBJECTS)
    assert last["error"]["code"] == "device_error"
    assert [list(chunk) for chunk in chunks if "error" in chunk] == []
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
    assert any("tool_calls" in choice["delta"] for chunk in chunks for choice in chunk["choices"])
    status, document = spoken.server.chat()
    assert (status, document["error"]["code"]) == (500, "device_error")


def test_a_client_that_goes_in_the_middle_of_a_call_frees_its_slot(
    hold_after: Callable[[float], None], spoken: Speaking
) -> None:
    """ST6."""
    hold_after(100)
    statistics = spoken.server.engine.statistics
    spoken.device.voice = lambda request, said, mask: said and 65 or 60  # noqa: RUF021  ("<", then "a" for ever)
    connection = spoken.server.connect()
    connection.sendall(raw_chat(stream=True, tools=TOOL_OBJECTS))
    assert b" 200 " in connection.recv(4096)
    wait_until(lambda: statistics()["requests_running"] == 1)
    connection.close()
    wait_until(lambda: statistics()["requests_cancelled_total"] == 1)
    hold_after(inf)
    wait_until(lambda: statistics()["requests_running"] == 0)
    spoken.device.says("Hello")
    assert spoken.chat(tools=None).content == "Hello"


@pytest.mark.parametrize(
    ("stop", "reasoning", "content", "n_calls"),
    [
        ("it.", "Need ", "", 0),
        ("</think>", "Need it.\n", "", 0),
        ("king", "Need it.", "Chec", 0),
        ("noargs", "Need it.", "Checking.", 1),
        ('"days"', "Need it.", "Checking.", 1),
        (["zzz", "Checking.\n<tool"], "Need it.", "", 0),
    ],
)
def test_a_stop_counts_in_reasoning_and_envelopes_too(
    spoken: Speaking, stop: Any, reasoning: str, content: str, n_calls: int
) -> None:
    """STOP-2: before presentation, reasoning and tool envelopes included; STOP-3: it finishes with stop."""
    spoken.device.says(NAMED["json_tags"].answer)
    answer = spoken.chat(stop=stop)
    assert (answer.reasoning, answer.content, len(answer.calls)) == (reasoning, content, n_calls)
    assert answer.finish_reason == "stop"


def test_a_stop_that_never_completes_is_shown_in_the_end(spoken: Speaking) -> None:
    """STOP-2: EOS and the limit flush what was held."""
    spoken.device.says("Hello EN")
    assert spoken.chat(stop="END").content == "Hello EN"
    answer = spoken.chat(stop="END", max_tokens=len(spoken.tokenizer.encode("Hello EN", allow_special=True)))
    assert (answer.content, answer.finish_reason) == ("Hello EN", "length")


def test_characters_spread_over_tokens_arrive_whole(spoken: Speaking) -> None:
    """Research item 1, R11: across the boundary of reasoning too."""
    spoken.device.says("<think>é中</think>😀 👩‍👩‍👧")
    answer = spoken.chat()
    assert (answer.reasoning, answer.content) == ("é中", "😀 👩‍👩‍👧")


@pytest.mark.parametrize(
    ("prefill", "said", "reasoning", "content"),
    [
        ("Once", " upon", "", " upon"),
        ("", "<think>a</think>b", "a", "b"),
    ],
)
def test_the_last_message_is_continued(spoken: Speaking, prefill: str, said: str, reasoning: str, content: str) -> None:
    """FE-6, A11: the answer goes on inside the prepared body, and only what is new is given out."""
    spoken.device.says(said)
    messages = [{"role": "user", "content": "W?"}, {"role": "assistant", "content": prefill}]
    answer = spoken.chat(messages=messages, continue_final_message=True)
    assert (answer.reasoning, answer.content) == (reasoning, content)
    prompt = spoken.tokenizer.decode(spoken.device.requests[-1].prompt_tokens)
    assert prompt == NAMED["json_tags"].prompt + prefill


def test_text_of_users_opens_no_reasoning(spoken: Speaking) -> None:
    """R12, FE-4: markers in history and in what users write leave the answer's state alone, and are no tokens."""
    spoken.device.says("Hello")
    messages = [
        {"role": "user", "content": "say <think> and <tool_call>{"},
        {"role": "assistant", "content": "</think> <think>"},
        {"role": "user", "content": "<think>"},
    ]
    answer = spoken.chat(messages=messages)
    assert (answer.reasoning, answer.content) == ("", "Hello")
    marker = spoken.tokenizer.token_id("<think>")
    assert marker not in spoken.device.requests[-1].prompt_tokens


def greedy_for(tokenizer: Tokenizer, document: str) -> Callable[[GenerationRequest, Sequence[int], Any], int]:
    """Says a document; where the mask forbids its next token, the run fails."""
    return saying(tokenizer.encode(document, allow_special=False))


@pytest.mark.parametrize("lead", ["", "<think>\nhm\n</think>\n\n"])
def test_a_schema_binds_the_answer_behind_the_reasoning(spoken: Speaking, lead: str) -> None:
    """S1, S2, FE-3: self-opened reasoning or none, then the document, in which tags are text."""
    document = '{"city": "a </think> <tool_call> b"}'
    tokens = spoken.tokenizer.encode(lead, allow_special=True) + spoken.tokenizer.encode(document, allow_special=False)
    spelled = [each for each in tokens if not lead or each]
    spoken.device.voice = saying(_without_markers(spoken.tokenizer, spelled, lead))
    answer = spoken.chat(tools=None, response_format=SCHEMA)
    assert answer.reasoning == ("hm" if lead else "")
    assert json.loads(answer.content) == {"city": "a </think> <tool_call> b"}
    assert spoken.device.most_constrained_in_flight == 1


def _without_markers(tokenizer: Tokenizer, tokens: Sequence[int], lead: str) -> list[int]:
    """Markers inside of the document spelled out, as the mask wants them."""
    n_lead = len(tokenizer.encode(lead, allow_special=True))
    spelled: list[int] = list(tokens[:n_lead])
    for token_id in tokens[n_lead:]:
        if tokenizer.token_bytes(token_id).startswith(b"<") and len(tokenizer.token_bytes(token_id)) > 1:
            for byte in tokenizer.token_bytes(token_id):
                spelled += tokenizer.encode(chr(byte), allow_special=False)
        else:
            spelled.append(token_id)
    return spelled


def test_a_script_that_strays_from_its_mask_fails(spoken: Speaking) -> None:
    """The scripted device honours masks: otherwise no test here would mean anything."""
    spoken.device.says("Hello")
    status, document = spoken.server.chat(response_format={"type": "json_object"})
    assert status == 500
    assert "the mask forbids" in document["error"]["message"]


def test_every_choice_has_a_constraint_of_its_own(spoken: Speaking) -> None:
    """Research item 29: n answers under one grammar, each from its beginning."""
    spoken.device.voice = greedy_for(spoken.tokenizer, '{"city": "Bern"}')
    status, document = spoken.server.chat(n=4, response_format=SCHEMA)
    assert status == 200, document
    assert [of_document(document, index).content for index in range(4)] == ['{"city": "Bern"}'] * 4


def test_a_document_cut_at_the_limit_ends_with_length(spoken: Speaking) -> None:
    """S5."""
    spoken.device.voice = greedy_for(spoken.tokenizer, '{"city": "Bern"}')
    answer = spoken.chat(tools=None, response_format=SCHEMA, max_tokens=8)
    assert answer.finish_reason == "length"
    assert answer.content
    assert '{"city": "Bern"}'.startswith(answer.content)


def test_the_end_is_allowed_only_where_the_document_may_end(spoken: Speaking) -> None:
    """S6."""
    ends: list[bool] = []

    def speak(request: GenerationRequest, said: Sequence[int], mask: Any) -> int:
        tokens = spoken.tokenizer.encode('{"city": "Bern"}', allow_special=False)
        ends.append(is_allowed(mask, request.eos_tokens[0]))
        return tokens[len(said)] if len(said) < len(tokens) else request.eos_tokens[0]

    spoken.device.voice = speak
    assert spoken.server.chat(response_format=SCHEMA)[0] == 200
    assert ends == [False] * (len(ends) - 1) + [True]


def test_an_unsupported_schema_is_the_callers_error_and_others_go_on(spoken: Speaking) -> None:
    """S7, research items 21 and 24: named, before anything runs."""
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "$ref": "http://a/b"}}}
    status, document = spoken.server.chat(response_format=bad)
    assert (status, document["error"]["type"]) == (400, "invalid_request_error")
    assert document["error"]["param"].startswith("response_format")
    spoken.device.says("Hello")
    assert spoken.chat(tools=None).content == "Hello"


@pytest.mark.parametrize("name", ["function_tags", "argument_tags", "json_tags", "xtml"])
def test_an_empty_answer_is_empty_text(start: Callable[[str], Speaking], name: str) -> None:
    spoken = start(name)
    spoken.device.voice = saying(())
    answer = spoken.chat()
    assert answer.shown == ("", "", [], "stop")
    assert spoken.server.chat()[1]["choices"][0]["message"]["content"] == ""


def test_reasoning_alone_has_null_content(spoken: Speaking) -> None:
    """R6: never closed, at EOS and at the limit."""
    spoken.device.says("<think>\nNeed")
    for fields, reason in (({}, "stop"), ({"max_tokens": 4}, "length")):
        message = spoken.server.chat(**fields)[1]["choices"][0]
        assert message["message"]["content"] is None
        assert "Need".startswith(message["message"].get("reasoning_content", ""))
        assert message["finish_reason"] == reason
