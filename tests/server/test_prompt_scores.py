"""What a real model says of a prompt's own tokens, over HTTP: the numbers that generation and an independent pass give."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helios.server import frontend
from tests.reference.llama_numpy import LlamaReference
from tests.server.conftest import wait_until
from tests.server.served_model import ServedModel, served_model

TEXT = (
    "The river rises in the mountains and flows to the north. In spring, when the snow melts, it floods the meadows on both "
    "of its banks; the farmers who live there have built their houses on small hills, and every family owns a boat. "
    "An old rule says that whoever sees the water come first has to ring the bell of the church, by day and by night. "
)
SCORED_ROUND = 64  # prompt tokens of one scored round at most
PAGE_TOKENS = 16
MOST_DIFFERENCE = 0.10  # of the mean log-probability to exact arithmetic, as tests/runtime/test_reference.py has it


@pytest.fixture(scope="module")
def model(default_core: Path) -> Iterator[ServedModel]:
    with served_model(default_core) as served:
        yield served


@pytest.fixture(scope="module")
def prompt(model: ServedModel) -> list[int]:
    """Longer than several scored rounds, and no whole number of them or of pages."""
    tokens = model.tokenizer.encode(TEXT * 4, allow_special=False)
    assert len(tokens) > 3 * SCORED_ROUND
    return tokens[: 3 * SCORED_ROUND + 19]


def echo(model: ServedModel, tokens: list[int], n_candidates: int = 5, **fields: Any) -> Any:
    """The four lists of an echoed prompt, and nothing of what is generated behind it."""
    fields = {"logprobs": n_candidates, "echo": True, "max_tokens": 1, "temperature": 0, **fields}
    lists = model.complete(tokens, **fields)["choices"][0]["logprobs"]
    return {name: values[: len(tokens)] for name, values in lists.items()}


def test_a_prompt_token_has_the_numbers_it_has_when_it_is_generated(model: ServedModel, prompt: list[int]) -> None:
    """Item 6, design 7: bit for bit, whatever was sampled, behind prompts of any length."""
    for n_prompt, temperature, seed in ((5, 0, 1), (61, 1, 2), (130, 1, 3), (len(prompt), 0.7, 4)):
        whole = model.complete(
            prompt[:n_prompt], logprobs=5, max_tokens=24, temperature=temperature, seed=seed, return_token_ids=True
        )["choices"][0]
        answer = whole["token_ids"]
        if whole["finish_reason"] == "stop":
            answer = answer[:-1]
        assert len(answer) > 2
        scores = echo(model, [*prompt[:n_prompt], *answer])
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            assert scores[name][n_prompt:] == whole["logprobs"][name][: len(answer)]


def test_scores_are_those_of_an_independent_pass(model: ServedModel, prompt: list[int], default_gguf: Path) -> None:
    """Item 6: every token's own number and the five best, against numpy on the dequantised weights."""
    prompt = prompt[: 2 * SCORED_ROUND + 10]
    rows = LlamaReference(default_gguf).logprobs(prompt)
    scores = model.complete(prompt, prompt_logprobs=5, max_tokens=1)["choices"][0]["prompt_logprobs"]
    assert scores[0] is None
    own = [entry[str(token)]["logprob"] for token, entry in zip(prompt[1:], scores[1:], strict=True)]
    assert np.mean(np.abs(own - rows[np.arange(len(own)), prompt[1:]])) <= MOST_DIFFERENCE
    listed = [
        abs(each["logprob"] - row[int(token)])
        for row, entry in zip(rows, scores[1:], strict=False)
        for token, each in entry.items()
    ]
    assert np.mean(listed) <= MOST_DIFFERENCE
    for row, token, entry in zip(rows, prompt[1:], scores[1:], strict=False):
        n_likelier = int((row > row[token]).sum())
        near = int((np.abs(row - row[token]) < 4 * MOST_DIFFERENCE).sum())
        assert abs(entry[str(token)]["rank"] - 1 - n_likelier) <= near


def test_a_warm_cache_changes_no_score(model: ServedModel, prompt: list[int]) -> None:
    """CACHE-3: cold, behind a plain request that left its prefix, and behind itself; and it leaves its prefix to others."""
    cold = echo(model, prompt, cache_salt="cold")
    plain = model.complete(prompt, cache_salt="warm", max_tokens=1, temperature=0)
    assert plain["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert echo(model, prompt, cache_salt="warm") == cold
    assert echo(model, prompt, cache_salt="warm") == cold
    later = model.complete(prompt, cache_salt="cold", max_tokens=1, temperature=0)
    assert (
        later["usage"]["prompt_tokens_details"]["cached_tokens"]
        >= len(prompt) // PAGE_TOKENS * PAGE_TOKENS - PAGE_TOKENS
    )
    assert later["choices"][0]["text"] == plain["choices"][0]["text"]


def test_a_stream_and_all_choices_tell_the_same_scores(model: ServedModel, prompt: list[int]) -> None:
    """Choices differ in what they say, not in what the model makes of their prompt."""
    tokens = prompt[: SCORED_ROUND - 10]
    fields = {"prompt": tokens, "logprobs": 2, "echo": True, "max_tokens": 6, "temperature": 1.5, "seed": 5, "n": 3}
    whole = model.post("/v1/completions", fields)["choices"]
    alone = echo(model, tokens, 2)
    for choice in whole:
        assert {name: values[: len(tokens)] for name, values in choice["logprobs"].items()} == alone
    assert len({choice["text"] for choice in whole}) == 3
    lists: dict[int, dict[str, list[Any]]] = {index: {name: [] for name in alone} for index in range(3)}
    for chunk in model.stream("/v1/completions", fields):
        (choice,) = chunk["choices"]
        for name, values in (choice["logprobs"] or {}).items():
            lists[choice["index"]][name] += values
    assert [lists[choice["index"]] for choice in whole] == [choice["logprobs"] for choice in whole]


def test_a_chat_tells_the_scores_of_its_prompt_once(model: ServedModel) -> None:
    """`prompt_logprobs` stand beside the choices: one list, from one scored prompt, for the tokens that `/tokenize` shows."""
    messages = [{"role": "user", "content": "Where does the river rise?"}]
    fields = {"messages": messages, "prompt_logprobs": 1, "max_tokens": 3, "n": 4, "seed": 1}
    before = model.engine.statistics()["prompt_tokens_total"]
    whole = model.post("/v1/chat/completions", fields)
    tokens = model.post("/tokenize", {"messages": messages})["tokens"]
    scores = whole["prompt_logprobs"]
    assert scores[0] is None
    assert all(str(token) in entry for token, entry in zip(tokens[1:], scores[1:], strict=True))
    assert model.engine.statistics()["prompt_tokens_total"] - before == 4 * len(tokens)
    chunks = model.stream("/v1/chat/completions", fields)
    assert [chunk["prompt_logprobs"] for chunk in chunks if "prompt_logprobs" in chunk] == [scores]
    raw = model.complete(tokens, prompt_logprobs=1, max_tokens=1)
    assert raw["choices"][0]["prompt_logprobs"] == scores


def test_scores_survive_preemption(
    default_core: Path, model: ServedModel, prompt: list[int], hold_after: Callable[[float], None]
) -> None:
    """CACHE-3, CACHE-6: scored prompts and plain ones crowd a cache of one context, and answer as with room."""
    bodies = [
        {"prompt": prompt[index * 7 :][:90], "max_tokens": 60, "temperature": 1, "seed": index, "ignore_eos": True}
        | ({"logprobs": 3, "echo": True} if index % 2 else {})
        for index in range(6)
    ]

    def choices_of(served: ServedModel, body: dict[str, Any]) -> Any:
        return served.post("/v1/completions", body)["choices"]

    with ThreadPoolExecutor(len(bodies)) as clients:
        with_room = list(clients.map(lambda body: choices_of(model, body), bodies))
        assert model.engine.statistics()["preemptions_total"] == 0
        with served_model(default_core, context=256, max_active=4, cache_gb=0.0056) as crowded:
            hold_after(0)
            answers = clients.map(lambda body: choices_of(crowded, body), bodies)
            statistics = crowded.engine.statistics
            wait_until(lambda: sum(statistics()[f"requests_{so}"] for so in ("waiting", "running")) == len(bodies))
            hold_after(inf)
            together = list(answers)
            assert crowded.engine.statistics()["preemptions_total"] > 0
    assert together == with_room


def test_more_scores_than_a_response_should_hold_are_refused(
    model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of an answer is bounded before anything runs: 400, with the numbers and what to do."""
    monkeypatch.setattr(frontend, "MAX_PROMPT_SCORES", 50 * 21 * 3)
    text = "a" + " a" * 50
    body = {"prompt": text, "max_tokens": 1}
    for fields in ({"prompt_logprobs": 20, "n": 3}, {"logprobs": 20, "echo": True, "n": 3}):
        error = model.post("/v1/completions", body | fields, 400)["error"]
        assert "3,213 log-probabilities of prompt tokens are asked for, the limit is 3,150" in error["message"]
        assert error["param"] == ("echo" if "echo" in fields else "prompt_logprobs")
        model.post("/v1/completions", body | fields | {"n": 2})
    messages = [{"role": "user", "content": text}]
    fields = {"messages": messages, "prompt_logprobs": 20, "max_tokens": 1}
    assert len(model.post("/v1/chat/completions", fields | {"n": 4})["prompt_logprobs"]) > 51  # one list for all
    messages[0]["content"] = text * 3
    model.post("/v1/chat/completions", fields, 400)


def test_numbers_are_finite_json(model: ServedModel) -> None:
    """Item 6: also where the model thinks nothing of a token."""
    unlikely = [*model.tokenizer.encode("The cat sat on the", allow_special=False), 40_303, 11, 48_000]
    status, body = model.exchange(
        "/v1/completions", {"prompt": unlikely, "logprobs": 20, "echo": True, "max_tokens": 1, "prompt_logprobs": 20}
    )
    assert status == 200

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    (choice,) = json.loads(body, parse_constant=refuse)["choices"]
    assert min(choice["logprobs"]["token_logprobs"][1:]) < -5
