"""Whole distributions on the real device, through the scheduler: exact in any company, and of no effect on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from helios.errors import InvalidValueError
from helios.scheduler.distribution import Distribution
from helios.scheduler.request import GenerationRequest, SamplingParameters, Token
from tests.runtime.hand_made import NAMESPACE, prepare_tiny
from tests.runtime.local_run import LoadedModel

PROMPT = tuple(np.random.default_rng(6).integers(0, 250, 40).tolist())
PLAIN = SamplingParameters(temperature=0.9, seed=5, candidates=20)
NAMED = replace(PLAIN, named_candidates=(7, 3, 249, 7))
WHOLE = replace(PLAIN, has_distributions=True)
CONCURRENCY = 10


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = prepare_tiny(tmp_path_factory.mktemp("distributions"), concurrency=CONCURRENCY)
    with LoadedModel(path, 2, 80, NAMESPACE) as loaded:
        yield loaded


def request(sampling: SamplingParameters, n_tokens: int = 6, eos: tuple[int, ...] = ()) -> GenerationRequest:
    return GenerationRequest(PROMPT, n_tokens, eos, sampling)


def bare(token: Token) -> Token:
    return token._replace(named=(), distribution=None)


def bits(token: Token) -> bytes:
    assert token.distribution is not None
    return token.distribution.logits.tobytes() + np.float64(token.distribution.log_total).tobytes()


def test_every_token_brings_the_distribution_that_it_was_drawn_from(tiny: LoadedModel) -> None:
    """GRPC-3: with the very numbers that are reported of it and of the likeliest."""
    plain, whole = tiny.run([request(PLAIN)])[0], tiny.run([request(WHOLE)])[0]
    assert [bare(token) for token in whole.tokens] == plain.tokens
    for token in whole.tokens:
        distribution = token.distribution
        assert isinstance(distribution, Distribution)
        (chosen,) = distribution.ranked([token.token_id])
        assert (chosen.logprob, chosen.rank) == (token.logprob, token.rank)
        best = distribution.ids_by_rank()[:20]
        assert tuple(zip(best.tolist(), distribution.logprobs(best).tolist(), strict=True)) == token.candidates


def test_named_candidates_are_those_of_the_whole_distribution(tiny: LoadedModel) -> None:
    """GRPC-3: wherever they rank, each once."""
    named, whole = tiny.run([request(NAMED)])[0], tiny.run([request(WHOLE)])[0]
    for token, other in zip(named.tokens, whole.tokens, strict=True):
        assert other.distribution is not None
        assert token.named == other.distribution.ranked((3, 7, 249))
        assert token.distribution is None
        assert len(token.named) == 3


def test_more_that_ask_than_a_round_has_room_for_take_turns_and_nobody_notices(tiny: LoadedModel) -> None:
    """Design 7: alone and in company, asking and not."""
    alone = tiny.run([request(WHOLE)])[0]
    outcomes = tiny.run([request(WHOLE)] * CONCURRENCY + [request(PLAIN)] * 3)
    for outcome in outcomes[:CONCURRENCY]:
        assert [bits(token) for token in outcome.tokens] == [bits(token) for token in alone.tokens]
    assert all(outcome.tokens == [bare(token) for token in alone.tokens] for outcome in outcomes[CONCURRENCY:])


def test_rows_go_to_their_own_lanes_when_one_before_them_has_ended(tiny: LoadedModel) -> None:
    """SPEC-7: with two rounds in flight a lane that has ended on the device is in one more round, and leaves no row there."""
    other = tuple(reversed(PROMPT))
    alone = tiny.run([GenerationRequest(other, 12, (), WHOLE)])[0]
    for n_tokens in range(1, 6):
        stopped = tiny.run([request(WHOLE)])[0].tokens[n_tokens - 1].token_id
        first, second = tiny.run([request(WHOLE, eos=(stopped,)), GenerationRequest(other, 12, (), WHOLE)])
        assert len(first.tokens) <= n_tokens
        assert [bits(token) for token in second.tokens] == [bits(token) for token in alone.tokens]


def test_a_core_without_distributions_refuses_who_asks(tiny: LoadedModel) -> None:
    """CORE-7: what was prepared before there were any is still served."""
    serving = tiny.serve()
    serving.scheduler._limits = replace(serving.scheduler._limits, distributed=0)
    assert not serving.scheduler.reports_distributions
    with pytest.raises(InvalidValueError, match="no whole distributions"):
        serving.scheduler.submit(1, request(NAMED))
