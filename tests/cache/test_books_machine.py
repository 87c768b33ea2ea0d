"""The books under any sequence of events, held against what memory truly contains."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from helios.cache.books import CacheShape, prefix_key
from tests.cache.true_contents import Memory, Sequence

KEYS = [prefix_key(b"model", salt, adapter, []) for salt, adapter in [("", ""), ("a", ""), ("", "a")]]
COMMON = (1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0)


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Mostly the beginning of the same tokens, so that prefixes meet and part everywhere."""
    n_common = draw(st.integers(0, len(COMMON)))
    return COMMON[:n_common] + tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=5)))


class BooksMachine(RuleBasedStateMachine):
    """Arrivals, rounds, snapshots, transfers in any order and at any time, endings in any phase."""

    shape = CacheShape(page_tokens=3, n_pages=7, n_rows=3, n_host_pages=6, n_host_rows=2)

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(self.shape)

    def pick(self, data: st.DataObject, is_started: bool) -> Sequence | None:
        some = [s for s in self.memory.sequences if s.is_started == is_started]
        return data.draw(st.sampled_from(some)) if some else None

    @precondition(lambda self: len(self.memory.sequences) < 5)
    @rule(
        key=st.sampled_from([*KEYS[:1] * 4, *KEYS[1:]]),
        prompt=prompts(),
        output=st.lists(st.integers(0, 1), max_size=6),
        uses_host=st.sampled_from([True, True, True, False]),
        is_private=st.sampled_from([False] * 7 + [True]),
        is_started=st.booleans(),
    )
    def arrive(
        self,
        key: bytes,
        prompt: tuple[int, ...],
        output: list[int],
        uses_host: bool,
        is_private: bool,
        is_started: bool,
    ) -> None:
        tokens = prompt + tuple(output)
        sequence = self.memory.open(key, tokens, len(prompt), is_private=is_private, uses_host=uses_host)
        if is_started:
            self.memory.start(sequence)

    @rule(
        key=st.sampled_from([*KEYS[:1] * 4, *KEYS[1:]]),
        prompt=prompts(),
        output=st.lists(st.integers(0, 1), max_size=6),
        is_released=st.booleans(),
    )
    def run_from_beginning_to_end(
        self, key: bytes, prompt: tuple[int, ...], output: list[int], is_released: bool
    ) -> None:
        self.memory.run_whole(key, prompt, prompt + tuple(output), is_released=is_released)

    @precondition(lambda self: any(not s.is_started for s in self.memory.sequences))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        sequence = self.pick(data, is_started=False)
        if sequence is not None:
            self.memory.start(sequence)

    @precondition(lambda self: any(s.is_started for s in self.memory.sequences))
    @rule(
        data=st.data(),
        n_tokens=st.integers(1, 9),
        is_saved=st.booleans(),
        is_verified=st.sampled_from([True, True, False]),
    )
    def run_round(self, data: st.DataObject, n_tokens: int, is_saved: bool, is_verified: bool) -> None:
        sequence = self.pick(data, is_started=True)
        if sequence is None or not self.memory.compute(sequence, n_tokens):
            return
        if is_saved:
            self.memory.save_row(sequence)
        if is_verified:
            self.memory.publish(sequence)

    @precondition(lambda self: any(s.rows for s in self.memory.sequences))
    @rule(data=st.data(), is_published=st.sampled_from([True, True, True, False]))
    def settle_row(self, data: st.DataObject, is_published: bool) -> None:
        sequence = data.draw(st.sampled_from([s for s in self.memory.sequences if s.rows]))
        self.memory.settle_row(sequence, is_published=is_published)

    @precondition(lambda self: self.memory.sequences)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.memory.release(data.draw(st.sampled_from(self.memory.sequences)))

    @precondition(lambda self: self.memory.sequences)
    @rule(
        data=st.data(),
        key=st.sampled_from(["a", "b", "c"]),
        n_most_tokens=st.none() | st.integers(0, 12),
        expires_s=st.sampled_from([10.0, 20.0, float("inf")]),
    )
    def retain(self, data: st.DataObject, key: str, n_most_tokens: int | None, expires_s: float) -> None:
        sequence = data.draw(st.sampled_from(self.memory.sequences))
        self.memory.books.retain(sequence.holding, key, n_most_tokens, expires_s)

    @rule(now_s=st.sampled_from([5.0, 10.0, 15.0, 20.0]))
    def expire(self, now_s: float) -> None:
        self.memory.books.expire(now_s)

    @rule(n_most=st.integers(1, 4))
    def offload(self, n_most: int) -> None:
        transfers = self.memory.books.offload(n_most)
        assert len(transfers) <= n_most
        self.memory.begin(transfers)

    @precondition(lambda self: self.memory.in_flight)
    @rule(data=st.data())
    def finish_transfer(self, data: st.DataObject) -> None:
        self.memory.finish(data.draw(st.integers(0, len(self.memory.in_flight) - 1)))

    @invariant()
    def the_books_balance(self) -> None:
        self.memory.books.check()

    def teardown(self) -> None:
        self.memory.check_one_alone_can_have_every_page()
        self.memory.close()


SHAPES = {
    "paged histories": BooksMachine.shape,
    "recurrent state": CacheShape(2, 9, n_rows=3, n_host_pages=6, n_host_rows=2, is_truncatable=False),
    "no host memory": CacheShape(3, 7, n_rows=3),
    "no rows": CacheShape(4, 5, n_host_pages=6),
    "rows on the device only": CacheShape(3, 6, n_rows=2, n_host_pages=3),
    "large host memory": CacheShape(3, 6, n_rows=2, n_host_pages=60, n_host_rows=20),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_lookup_never_finds_other_contents_and_the_books_always_balance(name: str) -> None:
    """CACHE-3, CACHE-5, CACHE-6: shared pages, snapshots, eviction, offload and early endings over one set of books."""
    machine = type("Machine", (BooksMachine,), {"shape": SHAPES[name]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
