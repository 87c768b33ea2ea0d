"""Whole distributions of a prompt's tokens on the real device, through the scheduler: few rows at a time, exact in any company."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helios.errors import InvalidValueError
from helios.scheduler.request import GenerationRequest, SamplingParameters, Token
from helios.scheduler.round import Round
from tests.runtime.hand_made import NAMESPACE, prepare_tiny
from tests.runtime.local_run import LoadedModel, Outcome

PROMPT = tuple(np.random.default_rng(6).integers(0, 250, 45).tolist())
SAMPLING = SamplingParameters(temperature=0.9, seed=5, candidates=2)
PLAIN = GenerationRequest(PROMPT, 4, (), SAMPLING, prompt_candidates=20)
WHOLE = replace(PLAIN, has_prompt_distributions=True)
NAMED = replace(PLAIN, named_prompt_candidates=(7, 3, 249, 7))
N_MOST = 16  # rows of one round


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = prepare_tiny(tmp_path_factory.mktemp("prompts"), concurrency=6)
    with LoadedModel(path, 2, 80, NAMESPACE) as loaded:
        yield loaded


@pytest.fixture(scope="module", params=["tiny", "default"])
def model(request: pytest.FixtureRequest, tiny: LoadedModel, default_core: Path) -> Iterator[LoadedModel]:
    if request.param == "tiny":
        yield tiny
        return
    with LoadedModel(default_core, 2, 80) as loaded:
        yield loaded


def scores_of(outcome: Outcome) -> tuple[Token, ...]:
    assert outcome.scores is not None
    return outcome.scores.tokens


def bare(token: Token) -> Token:
    return token._replace(named=(), distribution=None)


def bits(scores: Sequence[Token]) -> list[tuple[Token, bytes, float]]:
    rows = [score.distribution for score in scores]
    return [(bare(score), row.logits.tobytes(), row.log_total) for score, row in zip(scores, rows, strict=True) if row]


def test_every_prompt_token_brings_the_distribution_that_it_is_judged_by(model: LoadedModel) -> None:
    """GRPC-3: a softmax in float64 over its row says what the score says, of the token, its rank and the likeliest."""
    (plain,), (whole,) = model.run([PLAIN]), model.run([WHOLE])
    scores = scores_of(whole)
    assert [bare(score) for score in scores] == list(scores_of(plain))
    assert whole.tokens == plain.tokens
    for score, token_id in zip(scores, PROMPT[1:], strict=True):
        assert score.distribution is not None
        logits = score.distribution.logits.astype(np.float64)
        exact = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        every = score.distribution.logprobs(np.arange(len(logits)))
        assert np.abs(every - np.maximum(exact, -9999)).max() < 1e-4
        assert every[token_id] == np.float32(score.logprob)
        order = score.distribution.ids_by_rank()
        assert order[(score.rank or 0) - 1] == token_id
        assert tuple(zip(order[:20].tolist(), every[order[:20]].tolist(), strict=True)) == score.candidates


def test_named_candidates_of_a_prompt_are_those_of_its_distributions(model: LoadedModel) -> None:
    """GRPC-3: and no row is kept for them."""
    (named,), (whole,) = model.run([NAMED]), model.run([WHOLE])
    for score, other in zip(scores_of(named), scores_of(whole), strict=True):
        assert other.distribution is not None
        assert score.named == other.distribution.ranked((3, 7, 249))
        assert score.distribution is None


def test_rows_do_not_depend_on_the_rounds_that_made_them(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 7: alone, one token a round, beside others that ask and others that do not, and behind a warm cache (CACHE-3); no
    round has more rows than the record holds."""
    runtime, launch = model.runtime, model.runtime.launch
    n_rows: list[int] = []

    def launch_counted(round_: Round) -> None:
        n_rows.append(sum(lane.query_length for lane in round_.lanes if lane.is_scored_whole))
        launch(round_)

    monkeypatch.setattr(runtime, "launch", launch_counted)
    alone = bits(scores_of(model.run([WHOLE])[0]))
    assert len(alone) == len(PROMPT) - 1
    assert max(n_rows) == N_MOST
    assert bits(scores_of(model.run([WHOLE], prefill_tokens=1)[0])) == alone
    others = [replace(WHOLE, prompt_tokens=PROMPT[i:]) for i in (20, 44)]
    crowd = model.run([others[0], PLAIN, WHOLE, NAMED, others[1], replace(PLAIN, prompt_candidates=None), WHOLE])
    assert bits(scores_of(crowd[2])) == alone == bits(scores_of(crowd[6]))
    assert bits(scores_of(crowd[0])) == bits(scores_of(model.run([others[0]])[0]))
    assert scores_of(crowd[4]) == ()
    assert max(n_rows) == N_MOST
    serving = model.serve()
    serving.run([replace(PLAIN, prompt_candidates=None)])
    (warm,) = serving.run([WHOLE])
    assert bits(scores_of(warm)) == alone
    assert warm.n_reused == 0


def test_distributions_of_prompt_and_answer_are_told_apart(model: LoadedModel) -> None:
    """GRPC-3: both in one request, the last prompt token's row being the first answer token's."""
    both = replace(WHOLE, sampling=replace(SAMPLING, has_distributions=True))
    (outcome,), (answer,) = model.run([both]), model.run([replace(both, has_prompt_distributions=False)])
    assert bits(scores_of(outcome)) == bits(scores_of(model.run([WHOLE])[0]))
    assert bits(outcome.tokens) == bits(answer.tokens)


def test_a_core_without_them_refuses_who_asks(tiny: LoadedModel) -> None:
    """CORE-7: what was prepared before there were any is still served."""
    serving = tiny.serve()
    serving.scheduler._limits = replace(serving.scheduler._limits, prompt_distributed=0)
    assert serving.scheduler.reports_distributions
    assert not serving.scheduler.reports_prompt_distributions
    with pytest.raises(InvalidValueError, match="no whole distributions of prompts"):
        serving.scheduler.submit(1, NAMED)
