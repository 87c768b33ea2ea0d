"""Prompts with log-probabilities: presented from the engine's scores, with nothing for the first token; and the limits of what
may be asked of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from helios.scheduler.distribution import Distribution, Ranked
from helios.scheduler.request import PromptScores, Token
from helios.server.grpc import inference
from helios.server.grpc.preparation import MAX_PROMPT_CANDIDATES
from helios.server.grpc.schema import control_pb2, inference_pb2
from helios.server.grpc.whole_vocabulary import MAX_REPORTED
from tests.server.grpc.conftest import DEADLINE_S, Client, GenerateResponse, RunningGrpc, request_of, wait_until
from tests.server.scripted_engine import ScriptedEngine

PROMPT = [5, 6, 7]
SCORES = PromptScores(
    (
        Token(6, -0.5, 1, ((6, -0.5), (9, -1.5))),
        Token(7, -4.0, 30, ((8, -0.25), (9, -2.0))),
    )
)


@pytest.fixture
def scoring(scripted: ScriptedEngine, start: Callable[..., RunningGrpc]) -> RunningGrpc:
    scripted.scores_prompts = scripted.reports_prompt_distributions = True
    return start(scripted)


def answered(
    scoring: RunningGrpc, ask: Callable[[Client], Any], n_sequences: int = 1, scores: PromptScores = SCORES
) -> Any:
    """What `ask` gives while the engine scores the prompt and ends each sequence; the last one first."""

    def speak() -> None:
        wait_until(lambda: len(scoring.engine.generations) == n_sequences)
        for generation in reversed(scoring.engine.generations):
            if generation.request.prompt_candidates is not None:
                generation.send(scores)
            generation.give(40)
            generation.give(scoring.engine.eos_tokens[0])

    thread = threading.Thread(target=speak)
    thread.start()
    answer = ask(scoring.client())
    thread.join()
    scoring.engine.generations.clear()
    return answer


def shown(info: inference_pb2.PromptInfo) -> list[list[tuple[int, float, int]]]:
    return [[(each.id, each.logprob, each.rank) for each in infos.tokens] for infos in info.candidate_tokens]


def test_scores_run_parallel_to_the_prompt(scoring: RunningGrpc) -> None:
    """GRPC-3: 0, 0 and nothing for the first token; candidates never hold the token that is there."""
    options = {"prompt_logprobs": True, "prompt_candidates": {"top_n": 2}, "prompt_token_ids": True}
    whole = answered(scoring, lambda client: client.generate(PROMPT, response=options)).prompt_info
    streamed = answered(scoring, lambda client: client.stream(PROMPT, response=options))[0].prompt_info
    assert whole == streamed
    assert list(whole.token_ids) == PROMPT
    assert list(whole.logprobs) == [0.0, -0.5, -4.0]
    assert list(whole.ranks) == [0, 1, 30]
    assert shown(whole) == [[], [(9, -1.5, 2)], [(8, -0.25, 1), (9, -2.0, 2)]]


def test_scores_without_candidates(scoring: RunningGrpc) -> None:
    options = {"prompt_logprobs": True}
    info = answered(scoring, lambda client: client.generate(PROMPT, response=options)).prompt_info
    assert list(info.logprobs) == [0.0, -0.5, -4.0]
    assert not info.candidate_tokens


def test_candidates_without_scores_are_not_asked_for(scoring: RunningGrpc) -> None:
    options = {"prompt_candidates": {"top_n": 2}}
    info = answered(scoring, lambda client: client.generate(PROMPT, response=options)).prompt_info
    assert not info.logprobs
    assert not info.candidate_tokens


def test_the_prompt_is_scored_once_and_told_before_all_sequences(scoring: RunningGrpc) -> None:
    """GRPC-3: prompt info is the first message, although the sequence that scores comes last."""
    responses = answered(
        scoring,
        lambda client: client.stream(PROMPT, response={"prompt_logprobs": True}, sampling={"num_sequences": 3}),
        n_sequences=3,
    )
    assert list(responses[0].prompt_info.logprobs) == [0.0, -0.5, -4.0]


@pytest.mark.parametrize("is_stream", [False, True])
def test_scores_are_written_while_others_are_answered(
    scoring: RunningGrpc, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    """GRPC-4: there may be a quarter of a million of them, and nobody waits for these."""
    is_writing, is_answered = threading.Event(), threading.Event()
    fill_prompt = inference.fill_prompt

    def fill_later(*args: Any) -> None:
        is_writing.set()
        assert is_answered.wait(DEADLINE_S)
        fill_prompt(*args)

    monkeypatch.setattr(inference, "fill_prompt", fill_later)

    def ask(client: Client) -> inference_pb2.PromptInfo:
        request = request_of(PROMPT, response={"prompt_logprobs": True})
        call = client.open(request) if is_stream else client.unary("Generate", GenerateResponse).future(request)
        assert is_writing.wait(DEADLINE_S)
        client.control("Abort", control_pb2.AbortResponse)
        is_answered.set()
        return (next(call) if is_stream else call.result()).prompt_info

    assert list(answered(scoring, ask).logprobs) == [0.0, -0.5, -4.0]


def test_candidates_of_the_prompt_by_id(scoring: RunningGrpc) -> None:
    """GRPC-3: those that were named, wherever they rank, but for the token that is there."""
    named = [(Ranked(9, -1.5, 2), Ranked(7, -8.0, 70)), (Ranked(9, -2.0, 2), Ranked(7, -4.0, 30))]
    scores = PromptScores(
        tuple(
            Token(each.token_id, each.logprob, each.rank, named=ranked)
            for each, ranked in zip(SCORES.tokens, named, strict=True)
        )
    )
    options = {"prompt_logprobs": True, "prompt_candidates": {"token_ids": {"ids": [7, 9]}}}
    for ask in (
        lambda client: client.generate(PROMPT, response=options),
        lambda client: client.stream(PROMPT, response=options)[0],
    ):
        info = answered(scoring, ask, scores=scores).prompt_info
        assert shown(info) == [[], [(9, -1.5, 2), (7, -8.0, 70)], [(9, -2.0, 2)]]
        assert list(info.logprobs) == [0.0, -0.5, -4.0]


def test_all_candidates_of_the_prompt(scoring: RunningGrpc) -> None:
    """GRPC-3: beside the likeliest of the output, whose lists are as ever."""
    vocabulary = scoring.engine.vocabulary
    rows = [Distribution(np.random.default_rng(i).permutation(vocabulary).astype(np.float32), 1000.0) for i in range(2)]
    scores = PromptScores(
        tuple(
            Token(
                each.token_id,
                *row.logprobs(np.array([each.token_id])),
                row.ranked([each.token_id])[0].rank,
                distribution=row,
            )
            for each, row in zip(SCORES.tokens, rows, strict=True)
        )
    )
    options = {
        "prompt_logprobs": True,
        "prompt_candidates": {"all": True},
        "prompt_token_ids": True,
        "output_logprobs": True,
        "output_candidates": {"top_n": 1},
    }
    for ask in (
        lambda client: [client.generate(PROMPT, response=options)],
        lambda client: client.stream(PROMPT, response=options),
    ):
        first, *_ = responses = answered(scoring, ask, scores=scores)
        assert list(first.prompt_info.token_ids) == PROMPT
        assert shown(first.prompt_info)[0] == []
        for infos, row, token_id in zip(shown(first.prompt_info)[1:], rows, PROMPT[1:], strict=True):
            best = np.argsort(-row.logits)
            expected = [
                (i, row.logits[i] - 1000.0, rank) for rank, i in enumerate(best.tolist(), start=1) if i != token_id
            ]
            assert infos == expected
        assert responses[-1].outputs.HasField("finish_info")


def test_what_all_candidates_of_a_prompt_would_take_has_a_limit(
    scripted: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    """GRPC-2: refused before anything runs, with what would fit."""
    scripted.scores_prompts = scripted.reports_prompt_distributions = True
    scripted.vocabulary = 1 << 18
    client = start(scripted).client()
    n_most = (MAX_REPORTED >> 18) + 1
    for selector, n_tokens in (({"all": True}, n_most + 1), ({"token_ids": {"ids": range(128)}}, 2050)):
        options = {"prompt_logprobs": True, "prompt_candidates": selector}
        code, details = client.refused([5] * n_tokens, response=options)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "response.prompt_candidates" in details
        assert (f"{n_most} tokens" if "all" in selector else f"{MAX_PROMPT_CANDIDATES:,}") in details
    assert not scripted.generations


@pytest.mark.parametrize("selector", [{"all": True}, {"token_ids": {"ids": [1]}}])
def test_a_model_without_distributions_of_prompts_says_so(
    scripted: ScriptedEngine, start: Callable[..., RunningGrpc], selector: dict[str, Any]
) -> None:
    """GRPC-2, CORE-7: a core that was prepared before there were any."""
    scripted.scores_prompts = scripted.reports_distributions = True
    client = start(scripted).client()
    code, details = client.refused(response={"prompt_logprobs": True, "prompt_candidates": selector})
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "prepare it anew" in details
