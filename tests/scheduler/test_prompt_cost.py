"""What is believed of a prompt token's cost at each position."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helios.scheduler.prompt_cost import MOST_STRAY, PromptCost
from helios.scheduler.shares import mixed_budget

# Seconds of a token's matrices, and of its attention to one position: those of a small model on two cores.
MATRICES_S, POSITION_S = 0.0005, 0.0000002


def chunk_s(position: int, n_tokens: int) -> float:
    return n_tokens * (MATRICES_S + POSITION_S * (position + n_tokens / 2))


def read_prompt(cost: PromptCost, n_prompt: int, gap_s: float) -> list[float]:
    """What the chunks of a prompt take beside a stream, each as long as the record allows."""
    durations_s = []
    position = 0
    while position < n_prompt:
        n_tokens = min(n_prompt - position, mixed_budget(512, cost.tokens_within(gap_s, position)))
        durations_s.append(chunk_s(position, n_tokens))
        cost.observe(n_tokens, position + n_tokens / 2, durations_s[-1])
        position += n_tokens
    return durations_s


@pytest.mark.parametrize("n_prompt", [1000, 4000, 8000])
def test_chunks_keep_the_gap_to_the_end_of_a_long_prompt_and_use_it(n_prompt: int) -> None:
    """Attention grows with the position; the record knows by how much before it comes."""
    cost = PromptCost()
    assert max(read_prompt(cost, n_prompt, 0.1)) <= 0.108  # the slope is learned on the way
    durations_s = read_prompt(cost, n_prompt, 0.1)
    assert max(durations_s) <= 0.104
    assert min(durations_s[:-1]) >= 0.08


def test_a_short_prompt_after_a_long_one_is_not_thought_as_dear() -> None:
    cost = PromptCost()
    read_prompt(cost, 8000, 0.1)
    estimate_s = cost.token_s(0)
    assert estimate_s is not None
    assert MATRICES_S * 0.8 <= estimate_s <= MATRICES_S * 1.2


def test_one_suspended_round_moves_the_estimate_by_a_bounded_factor() -> None:
    """A process that slept is not a slow program."""
    cost = PromptCost()
    read_prompt(cost, 4000, 0.1)
    before_s = cost.token_s(2000)
    cost.observe(16, 2000, 1e6)
    after_s = cost.token_s(2000)
    assert before_s is not None
    assert after_s is not None
    assert before_s <= after_s <= MOST_STRAY * before_s


@example([(1, 0.0, 5e-324)], 0.0)  # so little that its inverse is infinite
@given(st.lists(st.tuples(st.integers(1, 512), st.floats(0, 1e5), st.floats(-1.0, 1e3)), min_size=1), st.floats(0, 1e5))
def test_no_estimate_is_negative_and_none_falls_with_the_position(
    observations: list[tuple[int, float, float]], position: float
) -> None:
    cost = PromptCost()
    for n_tokens, at, duration_s in observations:
        cost.observe(n_tokens, at, duration_s)
    here_s, later_s = cost.token_s(position), cost.token_s(position + 100)
    assert here_s is not None
    assert later_s is not None
    assert 0.0 <= here_s <= later_s * (1 + 1e-9)
    n_tokens_within = cost.tokens_within(0.1, position)
    assert n_tokens_within is None or n_tokens_within >= 0
