"""Log-probabilities: of chat content with everything parsed out around it, of completions, and of prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion

from helios.scheduler.request import PromptScores, Token
from helios.server.attribution import Attribution
from helios.server.logprobs import completion_logprobs, shown_logprob, token_name
from helios.tokenizer.incremental import IncrementalDecoder
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, with_tokens
from tests.server.chat_answers import of_document
from tests.server.conftest import RunningServer, events_of
from tests.server.scripted_engine import ScriptedEngine
from tests.server.spoken import Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of


@pytest.fixture(scope="module")
def plain_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "plain.gguf"
    return tokenizer_of(vocabularies.byte_level(path, user_defined=()))


@pytest.fixture(scope="module", params=[each.name for each in EXAMPLES])
def spoken(request: pytest.FixtureRequest, plain_tokenizer: Tokenizer) -> Iterator[Speaking]:
    example = next(each for each in EXAMPLES if each.name == request.param)
    tokenizer = with_tokens(plain_tokenizer, example.tokens)
    with speaking(tokenizer, example.frontend, template_of(example)) as server:
        server.device.says(example.answer.replace("Checking.", "é 中 😀 Checking."))
        yield server


def test_entries_spell_the_content_whatever_is_parsed_out(spoken: Speaking) -> None:
    """Item 6: finite, one entry a token, joined they are the content; reasoning, calls and markers have none."""
    answer = spoken.chat(logprobs=True, top_logprobs=2)
    assert (
        b"".join(bytes(entry["bytes"]) for entry in answer.logprobs).decode() == answer.content == "é 中 😀 Checking."
    )
    assert len(answer.logprobs) == len(spoken.tokenizer.encode("é 中 😀 Checking.", allow_special=False))
    for entry in answer.logprobs:
        assert entry["logprob"] == -0.25
        assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.25, -2.0]
    assert answer.reasoning == "Need it."


def test_up_to_twenty_alternatives_and_none_unasked(spoken: Speaking) -> None:
    assert spoken.server.chat(logprobs=True, top_logprobs=20)[0] == 200
    assert spoken.device.requests[-1].sampling.candidates == 20
    for fields in ({}, {"logprobs": False}, {"logprobs": None}):
        assert of_document(spoken.server.chat(**fields)[1]).logprobs == []
    assert all(entry["top_logprobs"] == [] for entry in spoken.chat(logprobs=True).logprobs)


pieces = st.lists(st.sampled_from(["a", "é", "中", "😀", "<", "think>", " ", "\n", "hello"]), max_size=12)


@given(texts=st.lists(pieces.map("".join), min_size=1, max_size=5), choices=st.data())
def test_parts_of_any_texts_are_those_texts(
    plain_tokenizer: Tokenizer, texts: list[str], choices: st.DataObject
) -> None:
    """Texts between markers, some of it held back for a while: the parts' bytes are the texts."""
    attribution, decoder = Attribution(plain_tokenizer), IncrementalDecoder(plain_tokenizer)
    for index, text in enumerate(texts):
        taken, held = b"", ""
        for token_id in plain_tokenizer.encode(text, allow_special=False):
            attribution.push(Token(token_id))
            held += decoder.push(token_id)
            if held and choices.draw(st.booleans()):
                taken += b"".join(part.spelled for part in attribution.take([(held, "content")])[0])
                held = ""
        if held:
            taken += b"".join(part.spelled for part in attribution.take([(held, "content")])[0])
        assert taken.decode() == text
        for token_id in plain_tokenizer.encode(f"<|{index}|>", allow_special=False):
            attribution.push(Token(token_id))


def test_texts_around_a_marker_in_one_step_are_told_apart(plain_tokenizer: Tokenizer) -> None:
    """R2: reasoning, its closer and content become certain together."""
    attribution = Attribution(plain_tokenizer)
    for token_id in plain_tokenizer.encode("think</think>think", allow_special=False):
        attribution.push(Token(token_id))
    first, second = attribution.take([("think", "reasoning"), ("think", "content")])
    assert [len(parts) for parts in (first, second)] == [5, 5]
    assert not {id(part.token) for part in first} & {id(part.token) for part in second}


def test_bytes_that_are_no_text_keep_their_entries(plain_tokenizer: Tokenizer) -> None:
    attribution = Attribution(plain_tokenizer)
    broken = [plain_tokenizer.encode("é", allow_special=False)[0], *plain_tokenizer.encode("x", allow_special=False)]
    for token_id in broken:
        attribution.push(Token(token_id))
    [parts] = attribution.take([("\ufffdx", "content")])
    assert [part.token.token_id for part in parts] == broken
    assert b"".join(part.spelled for part in parts) == b"\xc3x"


def test_two_characters_that_are_never_finished_keep_their_entries(plain_tokenizer: Tokenizer) -> None:
    """The second one's replacement appears at the end of the answer, when its token was told with the first one's."""
    attribution = Attribution(plain_tokenizer)
    broken = [plain_tokenizer.encode("é", allow_special=False)[0]] * 2
    for token_id in broken:
        attribution.push(Token(token_id))
    attribution.finish()
    [parts] = attribution.take([("\ufffd\ufffd", "content")])
    assert [part.token.token_id for part in parts] == broken


@pytest.mark.parametrize(
    ("logprob", "shown"),
    [(None, -9999.0), (float("-inf"), -9999.0), (float("nan"), -9999.0), (-1e30, -9999.0), (-0.5, -0.5), (1e-9, 0.0)],
)
def test_numbers_are_finite(logprob: float | None, shown: float) -> None:
    assert shown_logprob(logprob) == shown
    json.dumps(shown_logprob(logprob), allow_nan=False)


def test_tokens_that_are_no_text_have_names_of_their_own() -> None:
    assert token_name("é".encode()) == "é"
    assert token_name(b"\xc3") == "bytes:\\xc3"
    assert token_name(b"\xc3") != token_name(b"\xc4")


# -- completions


class ScoringEngine(ScriptedEngine):
    """Scores prompts: the logprob of a token is minus a hundredth of its id."""

    def submit(self, request: Any, *arrived: float) -> Any:
        self.logprob = None if request.sampling.candidates is None else -0.25
        answer, self.answer = self.answer, None
        generation = super().submit(request, *arrived)
        if request.prompt_candidates is not None:
            generation.send(PromptScores(tuple(map(scored, request.prompt_tokens[1:]))))
        for token_id in self.tokenizer.encode(answer or "", allow_special=False):
            generation.give(token_id, self.logprob, ((token_id, -0.25), (0, -2.0)) if self.logprob else ())
        generation.give(self.eos_tokens[0], self.logprob)
        self.answer = answer
        return generation


def scored(token_id: int) -> Token:
    return Token(token_id, -token_id / 100, 3, ((7, -0.125), (8, -0.25)))


@pytest.fixture
def engine(tokenizer: Tokenizer) -> ScoringEngine:
    return ScoringEngine(tokenizer, scores_prompts=True, answer=" world é")


def completion(server: RunningServer, **fields: Any) -> Any:
    status, document = server.post("/v1/completions", {"prompt": "hello é!", **fields})
    assert status == 200, document
    if not fields.get("echo"):  # the client's types have no null for a prompt's first token, its server does
        Completion.model_validate(document)
    return document["choices"][0]


def test_completions_have_four_lists_of_equal_length(server: RunningServer) -> None:
    """Item 6: tokens, their scores, the alternatives with the token itself, and where each begins in the text."""
    choice = completion(server, logprobs=1)
    assert choice["text"] == " world é"
    lists = choice["logprobs"]
    assert [len(each) for each in lists.values()] == [len(lists["tokens"])] * 4
    assert lists["tokens"] == [" world", " ", "bytes:\\xc3", "bytes:\\xa9", ""]  # the end token has no text
    assert lists["text_offset"] == [0, 6, 7, 7, 8]
    assert lists["token_logprobs"] == [-0.25] * 5
    assert lists["top_logprobs"][0] == {" world": -0.25}
    assert completion(server, logprobs=2)["logprobs"]["top_logprobs"][0] == {" world": -0.25, "!": -2.0}
    assert completion(server, logprobs=0)["logprobs"]["top_logprobs"][0] == {" world": -0.25}
    assert completion(server)["logprobs"] is None
    assert server.engine.generations[-1].request.prompt_candidates is None


def test_an_echo_with_logprobs_is_what_evaluation_harnesses_read(server: RunningServer) -> None:
    """Item 6, lm-eval's local-completions: the prompt's scores first, none for its first token; then the continuation's."""
    tokens = server.engine.tokenizer.encode("hello é!", allow_special=True)
    for prompt in ("hello é!", tokens):
        choice = completion(server, prompt=prompt, logprobs=1, echo=True, max_tokens=1)
        lists = choice["logprobs"]
        assert choice["text"] == "hello é! world"
        assert lists["tokens"][: len(tokens)] == ["hello", " ", "bytes:\\xc3", "bytes:\\xa9", "!"]
        assert lists["text_offset"] == [0, 5, 6, 6, 7, 8]
        assert lists["token_logprobs"] == [None, *(-token / 100 for token in tokens[1:]), -0.25]
        assert lists["top_logprobs"][0] is None
        assert lists["top_logprobs"][1] == {server.engine.tokenizer.decode([7]): -0.125, " ": -tokens[1] / 100}
        assert server.engine.generations[-1].request.prompt_candidates == 1


def test_an_echo_alone_generates_nothing_that_is_seen(server: RunningServer) -> None:
    """Research item 33: max_tokens 0 with echo."""
    status, document = server.post("/v1/completions", {"prompt": "hello", "echo": True, "max_tokens": 0, "logprobs": 1})
    assert status == 200
    choice = document["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("hello", "length")
    assert len(choice["logprobs"]["tokens"]) == len(server.engine.tokenizer.encode("hello", allow_special=True))
    assert document["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        (["world!"], " world é", [" world", " ", "bytes:\\xc3", "bytes:\\xa9", ""]),  # held back, and no stop after all
        ([" world!"], " world é", [" world", " ", "bytes:\\xc3", "bytes:\\xa9", ""]),
        (["world!", "d z"], " world é", [" world", " ", "bytes:\\xc3", "bytes:\\xa9", ""]),
        (["rld"], " wo", [" wo"]),
        (["d é"], " worl", [" worl"]),
    ],
)
def test_a_stop_that_was_awaited_leaves_a_token_whole(
    server: RunningServer, stop: list[str], text: str, tokens: list[str]
) -> None:
    """Item 6: one entry a token, also where its text is certain in two steps; streamed as in one piece."""
    choice = completion(server, logprobs=1, stop=stop)
    assert (choice["text"], choice["logprobs"]["tokens"]) == (text, tokens)
    body = json.dumps({"prompt": "hello é!", "stream": True, "logprobs": 1, "stop": stop}).encode()
    *chunks, _ = events_of(server.exchange("POST", "/v1/completions", body)[2])
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(each["text"] for each in choices) == text
    for name, entries in choice["logprobs"].items():
        assert [entry for each in choices if each["logprobs"] for entry in each["logprobs"][name]] == entries


@pytest.mark.parametrize("fields", [{"echo": True}, {"echo": True, "logprobs": 2}, {"logprobs": 1}, {}])
def test_streamed_completions_say_the_same(server: RunningServer, fields: dict[str, Any]) -> None:
    whole = completion(server, **fields)
    body = json.dumps({"prompt": "hello é!", "stream": True, **fields}).encode()
    *chunks, done = events_of(server.exchange("POST", "/v1/completions", body)[2])
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert [choice["finish_reason"] for choice in choices][-1] == whole["finish_reason"]
    if whole["logprobs"]:
        lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
        assert {name: [entry for each in lists for entry in each[name]] for name in whole["logprobs"]} == whole[
            "logprobs"
        ]


def test_an_added_token_is_scored_and_not_shown(
    start_server: Callable[..., RunningServer], engine: ScoringEngine
) -> None:
    """A beginning-of-sequence token stands before the text that the caller gave."""
    engine.adds_bos = True
    choice = completion(start_server(), prompt="hello", logprobs=0, echo=True, max_tokens=1)
    assert choice["text"] == "hello world"
    assert choice["logprobs"]["tokens"] == ["<|im_start|>", "hello", " world"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 5]


def test_prompt_logprobs_are_shown_by_token(server: RunningServer) -> None:
    """Item 6: null for the first token, then each token's own score with the best."""
    status, document = server.chat(prompt_logprobs=1)
    assert status == 200
    scores = document["prompt_logprobs"]
    prompt = server.engine.generations[-1].request.prompt_tokens
    assert len(scores) == len(prompt)
    assert scores[0] is None
    own = scores[1][str(prompt[1])]
    assert own == {"logprob": -prompt[1] / 100, "rank": 3, "decoded_token": server.engine.tokenizer.decode([prompt[1]])}
    assert scores[1]["7"]["rank"] == 1
    assert "8" not in scores[1]
    streamed = server.chat_events(prompt_logprobs=1)
    assert [event["prompt_logprobs"] for event in streamed[:-1] if "prompt_logprobs" in event] == [scores]
    choice = completion(server, prompt_logprobs=0)
    assert len(choice["prompt_logprobs"]) == len(server.engine.generations[-1].request.prompt_tokens)


def test_offsets_continue_where_the_text_is(plain_tokenizer: Tokenizer) -> None:
    attribution = Attribution(plain_tokenizer)
    for token_id in plain_tokenizer.encode("ab", allow_special=False):
        attribution.push(Token(token_id, -1.0))
    [parts] = attribution.take([("ab", "content")])
    lists = completion_logprobs(plain_tokenizer, parts, 0, 40)
    assert lists["text_offset"] == [40, 41]


def test_a_token_without_text_has_its_numbers_too(server: RunningServer) -> None:
    """lm-eval takes one entry off the end, that of the token it had to generate: there is one, also where that was an end token."""
    server.engine.answer = ""
    prompt = server.engine.tokenizer.encode("hello é!", allow_special=True)
    lists = completion(server, prompt=prompt, logprobs=1, echo=True, max_tokens=1)["logprobs"]
    assert [len(each) for each in lists.values()] == [len(prompt) + 1] * 4
    assert (lists["tokens"][-1], lists["text_offset"][-1]) == ("", len("hello é!"))
    body = {"prompt": prompt, "logprobs": 1, "echo": True, "max_tokens": 1, "stream": True}
    *chunks, _ = events_of(server.exchange("POST", "/v1/completions", json.dumps(body).encode())[2])
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [name for each in streamed for name in each["tokens"]] == lists["tokens"]


def test_control_tokens_in_an_answer_keep_their_place(plain_tokenizer: Tokenizer) -> None:
    """Not shown, and counted where they came."""
    attribution = Attribution(plain_tokenizer, keeps_all=True)
    tokens = [plain_tokenizer.encode(text, allow_special=False) for text in ("a", "<x>", "b", "<y>")]
    for token_id in [token_id for part in tokens for token_id in part]:
        attribution.push(Token(token_id))
    first, second = attribution.take([("a", "content"), ("b", "content")])
    assert [part.spelled for part in first] == [b"a"]
    assert [part.token.token_id for part in second] == tokens[1] + tokens[2]
    assert b"".join(part.spelled for part in second) == b"b"
    assert [part.token.token_id for part in attribution.rest()] == tokens[3]
