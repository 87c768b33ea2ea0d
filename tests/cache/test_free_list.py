"""The free list of one store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.cache.free_list import FreeList
from helios.errors import InternalError


@given(st.integers(0, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_an_id_is_free_or_in_one_hand(n_ids: int, steps: list[tuple[bool, int]]) -> None:
    """CACHE-3: takes and releases in any order, wrong ones among them."""
    free_list = FreeList(n_ids, "page")
    taken: list[int] = []
    for is_take, number in steps:
        if is_take and free_list.n_free:
            taken.append(free_list.take())
        elif is_take or number not in taken:
            with pytest.raises(InternalError, match="page"):
                _ = free_list.take() if is_take else free_list.release(number)
        else:
            free_list.release(number)
            taken.remove(number)
        free_list.check(taken)
        assert free_list.n_free == n_ids - len(taken)


@pytest.mark.parametrize("claimed", [[], [0, 0], [0, 1], [1]])
def test_ids_in_no_hand_or_in_two_are_noticed(claimed: list[int]) -> None:
    """CACHE-3: the audit of who has what."""
    free_list = FreeList(3, "row")
    assert free_list.take() == 0
    free_list.check([0])
    with pytest.raises(InternalError, match="3 rows"):
        free_list.check(claimed)


def test_a_store_of_less_than_nothing_is_refused() -> None:
    """CACHE-3: sizes come from load-time choices."""
    with pytest.raises(InternalError, match="-1"):
        FreeList(-1, "page")
