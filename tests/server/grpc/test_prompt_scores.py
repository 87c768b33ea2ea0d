"""Prompts with log-probabilities: presented from the engine's scores, with nothing for the first token."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from helios.scheduler.request import PromptScores, Token
from helios.server.grpc.schema import inference_pb2
from tests.server.grpc.conftest import Client, RunningGrpc, wait_until
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
    scripted.scores_prompts = True
    return start(scripted)


def answered(scoring: RunningGrpc, ask: Callable[[Client], Any], n_sequences: int = 1) -> Any:
    """What `ask` gives while the engine scores the prompt and ends each sequence; the last one first."""

    def speak() -> None:
        wait_until(lambda: len(scoring.engine.generations) == n_sequences)
        for generation in reversed(scoring.engine.generations):
            if generation.request.prompt_candidates is not None:
                generation.send(SCORES)
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
