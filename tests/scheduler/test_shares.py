"""The prompt tokens of a round and their division."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.scheduler.shares import LEAST_PROMPT_TOKENS, UNMEASURED_PROMPT_TOKENS, fair_shares, mixed_budget


@given(st.integers(0, 500), st.lists(st.integers(1, 200), min_size=1, max_size=10))
def test_shares_are_max_min_fair(budget: int, n_wanted: list[int]) -> None:
    """Fairness: whoever gets less than wanted gets at least as much as anybody else, to within one token; nothing is left over."""
    shares = fair_shares(budget, n_wanted)
    assert sum(shares) == min(budget, sum(n_wanted))
    for share, wanted in zip(shares, n_wanted, strict=True):
        assert 0 <= share <= wanted
        if share < wanted:
            assert share >= max(shares) - 1


@pytest.mark.parametrize(
    ("n_most", "n_within_gap", "budget"),
    [
        (512, None, UNMEASURED_PROMPT_TOKENS),
        (40, None, 40),
        (512, 300, 300),
        (512, 9999, 512),
        (512, 3, LEAST_PROMPT_TOKENS),
        (512, 0, LEAST_PROMPT_TOKENS),
        (5, 0, 5),
    ],
)
def test_the_budget_beside_streams_fits_the_gap_and_never_stops_prompts(
    n_most: int, n_within_gap: int | None, budget: int
) -> None:
    assert mixed_budget(n_most, n_within_gap) == budget
