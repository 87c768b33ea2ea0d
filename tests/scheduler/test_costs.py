"""What is believed of measured costs, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helios.scheduler.costs import STALE_S, CostRecord
from helios.scheduler.prompt_cost import MOST_STRAY


def test_a_cost_is_unknown_before_its_first_round_and_stale_long_after_its_last() -> None:
    """SPEC-7: unknown and stale are said, not guessed; another size class or program says nothing of it."""
    costs = CostRecord()
    assert costs.round_s(3, 5, 0.0) is None
    costs.observe_round(3, 5, 0.02, 10.0)
    assert costs.round_s(3, 5, 10.0) == costs.round_s(3, 7, 10.0) == 0.02
    assert costs.round_s(3, 8, 10.0) is costs.round_s(4, 5, 10.0) is None
    assert costs.round_s(3, 5, 10.0 + STALE_S) == 0.02
    assert costs.round_s(3, 5, 10.1 + STALE_S) is None
    assert costs.last_round_s(3, 5) == 0.02


def test_a_stale_cost_is_replaced_and_a_fresh_one_is_smoothed() -> None:
    costs = CostRecord()
    costs.observe_round(0, 1, 0.01, 0.0)
    costs.observe_round(0, 1, 0.02, 1.0)
    smoothed = costs.round_s(0, 1, 1.0)
    assert smoothed is not None
    assert 0.01 < smoothed < 0.02
    costs.observe_round(0, 1, 0.5, 2.0 + STALE_S)
    assert costs.round_s(0, 1, 2.0 + STALE_S) == 0.5


@given(st.floats(0.0, 1e6))
def test_one_suspended_round_moves_a_cost_by_a_bounded_factor(duration_s: float) -> None:
    """A process that slept is not a slow program."""
    costs = CostRecord()
    costs.observe_round(0, 1, 0.01, 0.0)
    costs.observe_round(0, 1, duration_s, 1.0)
    cost_s = costs.round_s(0, 1, 1.0)
    assert cost_s is not None
    assert 0.0 <= cost_s <= 0.01 * MOST_STRAY


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(-1e3, 1e3)), min_size=1))
def test_a_clock_that_jumps_yields_no_negative_cost(observations: list[tuple[float, float]]) -> None:
    costs = CostRecord()
    for duration_s, now_s in observations:
        costs.observe_round(0, 1, duration_s, now_s)
        costs.observe_prompt(5, 0, duration_s)
        cost_s = costs.round_s(0, 1, now_s)
        assert cost_s is not None
        assert cost_s >= 0.0
        prompt_s = costs.prompt_s(10, 0)
        assert prompt_s is not None
        assert prompt_s >= 0.0


def test_prompt_tokens_within_a_gap_follow_what_they_took() -> None:
    costs = CostRecord()
    assert costs.prompt_tokens_within(0.1, 0) is None
    costs.observe_prompt(100, 0, 0.1)
    assert costs.prompt_tokens_within(0.05, 0) == 50
    assert costs.prompt_tokens_within(-1.0, 0) == 0
    for _ in range(50):
        costs.observe_prompt(100, 0, 0.4)
    assert costs.prompt_tokens_within(0.05, 0) in range(12, 14)


def test_copies_are_preferred_until_they_are_known_to_take_longer() -> None:
    """CACHE-3: readmission by restore or by recomputation, whichever the record says is cheaper."""
    costs = CostRecord()
    assert costs.reloads(10, 160, 80)
    costs.observe_reload(0.02)
    assert costs.reloads(10, 160, 80)
    costs.observe_prompt(160, 0, 0.3)
    assert costs.reloads(10, 160, 80)
    costs.observe_prompt(16_000, 0, 16.0)
    assert not costs.reloads(10, 160, 80)
    for _ in range(8000):
        costs.observe_reload(0.0001)
    assert costs.reloads(10, 160, 80)
