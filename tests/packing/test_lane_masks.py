"""The masks of constrained lanes: which rows are supplied, and that nobody pays for them without a constraint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helios.contract.enums import ValueSource
from helios.packing.values import RoundWords

N_LANES, N_WORDS = 6, 3


@dataclass(frozen=True)
class Numbers:
    """A decode lane of one token."""

    slot: int
    mask: NDArray[np.uint32] | None
    generation: int = 1
    is_prompt: bool = False
    position: int = 5
    query_length: int = 1
    is_sampled: bool = True


def mask_of(number: int) -> NDArray[np.uint32]:
    return np.full(N_WORDS, number, np.uint32)


rounds = st.lists(st.lists(st.none() | st.integers(1, 2**32 - 1), min_size=1, max_size=N_LANES), min_size=1, max_size=4)


@given(rounds)
def test_a_masked_lane_has_its_own_row_and_rows_end_with_the_last_one(numbers: list[list[int | None]]) -> None:
    """SPEC-7, CON-9: a lane is masked exactly when it has a mask, and free lanes behind the last masked one cost nothing."""
    table = RoundWords(N_LANES)
    for chosen in numbers:
        values = table.of([Numbers(slot, None if each is None else mask_of(each)) for slot, each in enumerate(chosen)])
        assert values[ValueSource.GRAMMAR_MASKED].tolist() == [each is not None for each in chosen]
        masked = [index for index, each in enumerate(chosen) if each is not None]
        rows = values.get(ValueSource.GRAMMAR_MASK)
        assert (rows is None) == (not masked)
        if rows is not None:
            assert len(rows) == masked[-1] + 1
            assert all(rows[index].tolist() == [chosen[index]] * N_WORDS for index in masked)


def test_a_mask_is_copied_because_its_owner_writes_the_next_one_into_the_same_row() -> None:
    mask = mask_of(7)
    values = RoundWords(N_LANES).of([Numbers(0, mask)])
    mask[:] = 0
    assert values[ValueSource.GRAMMAR_MASK].tolist() == [[7, 7, 7]]
