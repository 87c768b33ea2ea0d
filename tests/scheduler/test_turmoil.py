"""The scheduler and the cache under everything that can happen to them: no request ever gets other tokens than alone."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.scheduler.hashing_device import VOCABULARY
from tests.scheduler.soak import run_world
from tests.scheduler.turmoil import Turmoil

numbers = st.integers(0, 11)


class SchedulerMachine(RuleBasedStateMachine):
    """CACHE-1 to CACHE-6, SPEC-7, SPEC-8, STOP-3, RT-6: after every step the books balance; at the end every answer is right."""

    @initialize(
        n_slots=st.integers(1, 5),
        n_pages=st.sampled_from([6, 7, 9, 12, 20]),
        n_rows=st.sampled_from([0, 1, 4]),
        n_host_pages=st.sampled_from([0, 4, 20]),
        chunk=st.sampled_from([4, 16, 40]),
        is_recurrent=st.booleans(),
    )
    def begin(self, n_slots: int, n_pages: int, n_rows: int, n_host_pages: int, chunk: int, is_recurrent: bool) -> None:
        self.world = Turmoil(
            n_slots, n_pages, n_rows, n_host_pages, n_rows, chunk, is_recurrent=is_recurrent and n_rows > 0
        )

    @rule(
        which=numbers,
        n_shared=st.sampled_from([0, 5, 16, 31, 32, 64, 79, 95]),
        own=st.lists(st.integers(0, VOCABULARY - 1), max_size=40).map(tuple),
        n_output=st.sampled_from([1, 2, 5, 20]),
        decision=st.integers(0, 35),
        seed=st.integers(0, 5),
        flavour=st.integers(0, 83),
    )
    def submit(
        self, which: int, n_shared: int, own: tuple[int, ...], n_output: int, decision: int, seed: int, flavour: int
    ) -> None:
        self.world.submit(which, n_shared, own, n_output, decision, seed, flavour)

    @rule(which=numbers)
    def cancel(self, which: int) -> None:
        self.world.cancel(which)

    @rule(n_times=st.integers(1, 3))
    def plan(self, n_times: int) -> None:
        for _ in range(n_times):
            self.world.plan()

    @rule()
    def execute(self) -> None:
        self.world.execute()

    @rule()
    def retire(self) -> None:
        self.world.retire()

    @rule(n_rounds=st.integers(2, 12))
    def serve(self, n_rounds: int) -> None:
        for _ in range(n_rounds):
            self.world.plan()
            self.world.retire()

    @rule(lane=numbers, which=numbers)
    def fault(self, lane: int, which: int) -> None:
        self.world.fault(lane, which)

    @rule(which=numbers)
    def finish_transfer(self, which: int) -> None:
        self.world.finish_transfer(which)

    @rule(seconds=st.sampled_from([0.01, 1.0, 100.0]))
    def jump(self, seconds: float) -> None:
        self.world.jump(seconds)

    @rule()
    def die(self) -> None:
        self.world.die()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSchedulerMachine = SchedulerMachine.TestCase


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_a_long_random_run_changes_no_answer(seed: int) -> None:
    """The same steps without shrinking, and hundreds of them; `scripts/soak-scheduler` runs as many as one likes."""
    counts = run_world(seed, 400)
    assert counts["steps"] >= 400
