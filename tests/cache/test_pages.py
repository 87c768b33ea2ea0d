"""The book of pages against a model of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.cache.pages import PagePool
from helios.errors import InternalError


@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.sampled_from(["reserve", "take", "unreserve", "release"]), st.integers(0, 5))),
)
def test_promises_are_kept_and_no_page_is_in_two_hands(n_pages: int, steps: list[tuple[str, int]]) -> None:
    """CACHE-1: reserved pages can always be taken, and every page id is in exactly one hand."""
    pool = PagePool(n_pages)
    n_promised, held = 0, []
    for action, n in steps:
        if action == "reserve":
            is_possible = n <= n_pages - len(held) - n_promised
            assert pool.reserve(n) is is_possible
            n_promised += n if is_possible else 0
        elif action == "take" and n_promised:
            page_id = pool.take_reserved()
            assert page_id not in held
            assert 0 <= page_id < n_pages
            held.append(page_id)
            n_promised -= 1
        elif action == "unreserve" and n <= n_promised:
            pool.unreserve(n)
            n_promised -= n
        elif action == "release" and held:
            pool.release([held.pop(n % len(held))])
        pool.check()
        statistics = pool.statistics()
        assert (statistics.n_taken, statistics.n_reserved) == (len(held), n_promised)
        assert statistics.n_free + statistics.n_taken == n_pages


def test_a_page_cannot_be_released_twice() -> None:
    """CACHE-6: a second release would put one page in two hands."""
    pool = PagePool(2)
    pool.reserve(1)
    page_id = pool.take_reserved()
    pool.release([page_id])
    with pytest.raises(InternalError, match="released twice"):
        pool.release([page_id])


def test_a_page_cannot_be_taken_without_a_promise() -> None:
    """CACHE-3: taking is only possible out of a reservation, so no other promise can break."""
    with pytest.raises(InternalError, match="without a reservation"):
        PagePool(2).take_reserved()


def test_a_promise_cannot_be_given_back_twice() -> None:
    """CACHE-3: the sum of promises never turns negative."""
    pool = PagePool(4)
    pool.reserve(2)
    pool.unreserve(2)
    with pytest.raises(InternalError, match="given back"):
        pool.unreserve(1)
