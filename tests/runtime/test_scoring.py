"""Scored prefill on the real device: what the model says of a prompt's own tokens, and how the record is believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helios.errors import DeviceError
from helios.runtime.scoring import SCORE, ScoreRecords
from helios.scheduler.request import GenerationRequest, SamplingParameters, Token
from helios.scheduler.round import Round
from tests.reference.llama_numpy import LlamaReference
from tests.runtime.hand_made import Loaded, Tenant, prepare_tiny

PROMPT = tuple(np.random.default_rng(6).integers(0, 250, 90).tolist())
REQUEST = GenerationRequest(PROMPT, 4, (), SamplingParameters(temperature=0.0, candidates=20))
PAGES = [3, 1, 4, 5, 9, 2]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scoring")


@pytest.fixture(scope="module")
def tiny(directory: Path) -> Iterator[Loaded]:
    with Loaded(prepare_tiny(directory), 24) as opened:
        yield opened


@pytest.fixture(scope="module", params=["tiny", "default"])
def loaded(request: pytest.FixtureRequest, tiny: Loaded, default_core: Path) -> Iterator[Loaded]:
    if request.param == "tiny":
        yield tiny
        return
    with Loaded(default_core, 24, n_threads=2) as opened:
        yield opened


def scores_of(loaded: Loaded, slot: int, chunks: list[int]) -> list[Token]:
    tenant = Tenant(loaded, slot, REQUEST, PAGES)
    scores: list[Token] = []
    for index, n_tokens in enumerate(chunks):
        (completion,) = loaded.run(tenant.scored(n_tokens, is_first=index == 0))
        scores += completion.scores
    return scores


def test_every_prompt_token_but_the_first_is_scored(tiny: Loaded, directory: Path) -> None:
    """An independent forward pass agrees on probabilities and on what would have been likelier."""
    scores = scores_of(tiny, 0, [64, 26])
    expected = LlamaReference(directory / "tiny.gguf").logprobs(list(PROMPT))
    assert [score.token_id for score in scores] == list(PROMPT[1:])
    for score, row in zip(scores, expected, strict=False):
        assert score.logprob == pytest.approx(row[score.token_id], abs=0.01)
        assert len(score.candidates) == 20
        assert all(logprob == pytest.approx(row[token], abs=0.01) for token, logprob in score.candidates)
        assert [logprob for _, logprob in score.candidates] == sorted((p for _, p in score.candidates), reverse=True)
        assert (score.rank <= 20) == (score.token_id in dict(score.candidates))


def test_scores_do_not_depend_on_the_chunks(loaded: Loaded) -> None:
    """Design 7."""
    assert scores_of(loaded, 0, [64, 26]) == scores_of(loaded, 1, [1, 7, 16, 17, 48, 1])


def test_the_answer_of_a_scored_prompt_is_that_of_an_unscored_one(loaded: Loaded) -> None:
    """Design 7: and a generated token has the bits that it has as a prompt token."""
    plain = Tenant(loaded, 0, REQUEST, PAGES)
    (first,) = loaded.run(plain.prefill())
    scored = Tenant(loaded, 1, REQUEST, PAGES)
    loaded.run(scored.scored(64, is_first=True))
    (same,) = loaded.run(scored.scored(26, is_first=False))
    assert same._replace(slot=0, scores=()) == first
    longer = Tenant(loaded, 2, replace(REQUEST, prompt_tokens=(*PROMPT, first.token)), PAGES)
    loaded.run(longer.scored(64, is_first=True))
    (last,) = loaded.run(longer.scored(27, is_first=False))
    assert last.scores[-1] == Token(first.token, first.logprob, first.rank, first.candidates)


def test_several_prompts_are_scored_in_one_round(loaded: Loaded) -> None:
    """CON-7: targets are packed like the tokens that they stand behind."""
    requests = [replace(REQUEST, prompt_tokens=PROMPT[i : i + n]) for i, n in ((0, 10), (20, 1), (40, 33))]
    tenants = [
        Tenant(loaded, slot, request, [6 * slot, 6 * slot + 1, 6 * slot + 2]) for slot, request in enumerate(requests)
    ]
    rounds = [tenant.scored(len(tenant.request.prompt_tokens), is_first=True) for tenant in tenants]
    together = Round(
        rounds[0].program,
        tuple(lane for round_ in rounds for lane in round_.lanes),
        44,
        tuple(update for round_ in rounds for update in round_.page_updates),
        tuple(admission for round_ in rounds for admission in round_.admissions),
        rounds[0].initializer,
    )
    completions = loaded.run(together)
    assert [len(completion.scores) for completion in completions] == [9, 0, 32]
    alone = [loaded.run(round_)[0] for round_ in rounds]
    assert completions == alone


def records() -> tuple[np.ndarray, ScoreRecords]:
    pinned = np.zeros(4 * SCORE.itemsize, np.uint8)
    scores = pinned.view(SCORE)
    scores["token"], scores["logprob"], scores["rank"], scores["n_candidates"] = [7, -1, 8, 9], -0.5, 2, 1
    return scores, ScoreRecords(pinned)


def test_a_score_of_another_token_is_a_device_error() -> None:
    """CACHE-4: every score is checked against what was asked, before any state changes."""
    scores, read = records()
    assert [len(lane) for lane in read.read(((7, -1), (8, 9)))] == [1, 2]
    scores["token"][2] = 6
    with pytest.raises(DeviceError, match="score 2 is of token 6, 8 was asked"):
        read.read(((7, -1), (8, 9)))


@pytest.mark.parametrize("count", [-1, 21, 2**31 - 1])
def test_a_wild_candidate_count_reads_nothing_outside_the_score(count: int) -> None:
    """CACHE-4: numbers of the record are bounded before they are used."""
    scores, read = records()
    scores["n_candidates"] = count
    assert all(len(score.candidates) <= 20 for lane in read.read(((7,),)) for score in lane)
