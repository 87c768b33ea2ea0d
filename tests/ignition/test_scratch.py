"""Scratch planning: what lives together never shares a byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helios.ignition.scratch import SCRATCH_ALIGNMENT, Lifetime, plan_scratch

LIFETIMES = st.lists(
    st.builds(
        lambda first, span, nbytes: Lifetime(first, first + span, nbytes),
        st.integers(0, 30),
        st.integers(0, 10),
        st.integers(1, 5000),
    ),
    max_size=25,
)


@given(LIFETIMES)
def test_values_that_live_together_never_overlap(lifetimes: list[Lifetime]) -> None:
    plan = plan_scratch(lifetimes)
    places = list(zip(lifetimes, plan.offsets, strict=True))
    for index, (life, offset) in enumerate(places):
        assert offset % SCRATCH_ALIGNMENT == 0
        assert offset + life.nbytes <= plan.nbytes
        for other, start in places[:index]:
            together = life.first <= other.last and other.first <= life.last
            assert not together or offset + life.nbytes <= start or start + other.nbytes <= offset


@given(LIFETIMES)
def test_the_same_lifetimes_give_the_same_plan(lifetimes: list[Lifetime]) -> None:
    assert plan_scratch(lifetimes) == plan_scratch(list(lifetimes))


def test_a_value_takes_the_place_of_one_that_is_dead() -> None:
    plan = plan_scratch([Lifetime(0, 1, 1000), Lifetime(2, 3, 1000), Lifetime(1, 2, 256)])
    assert plan.offsets == (0, 0, 1024)
    assert plan.nbytes == 1280


def test_a_gap_between_two_live_values_is_filled() -> None:
    plan = plan_scratch([Lifetime(0, 9, 1024), Lifetime(0, 2, 512), Lifetime(0, 9, 300), Lifetime(5, 6, 512)])
    assert plan.offsets == (0, 1024, 1536, 1024)
