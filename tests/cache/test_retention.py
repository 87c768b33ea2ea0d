"""What is kept goes last, within a bound, for as long as it was asked for."""

from __future__ import annotations

import math

import pytest

from helios.cache.books import CacheBooks
from helios.errors import InternalError
from tests.cache.small_books import KEY, SIZE, begin, make_books, n_found, offload_all, put_snapshot, run, unique

FIRST, SECOND = unique(1000, 3 * SIZE), unique(2000, 3 * SIZE)


def run_kept(
    books: CacheBooks,
    tokens: tuple[int, ...],
    key: str = "s",
    n_most: int | None = None,
    expires_s: float = math.inf,
    *,
    snapshot: bool = False,
) -> None:
    """A sequence from beginning to end whose prefix is to be kept."""
    holding = begin(books, tokens)
    books.publish(holding, tokens, len(tokens))
    if snapshot:
        put_snapshot(books, holding, tokens)
    books.retain(holding, key, n_most, expires_s)
    books.check()
    books.release(holding)
    books.check()


def press(books: CacheBooks, n_pages: int) -> None:
    """Others take so many pages and leave them behind in the cache."""
    for number in range(n_pages):
        run(books, unique(10_000 + SIZE * number, SIZE))


def test_what_is_kept_is_evicted_after_everything_else() -> None:
    """GRPC-2: session_id keeps a session's pages warm though others came later."""
    books = make_books(n_pages=10)
    run_kept(books, FIRST)
    run(books, SECOND)
    press(books, 7)
    assert n_found(books, FIRST) == len(FIRST)
    assert n_found(books, SECOND) == 0


def test_what_is_kept_stands_in_nobodys_way() -> None:
    """CACHE-3: one sequence alone can still have every page."""
    books = make_books(n_pages=10)
    run_kept(books, FIRST)
    holding = begin(books, unique(3000, 10 * SIZE))
    books.check()
    assert n_found(books, FIRST) == 0
    assert books.statistics()["cache_pages_retained"] == 0
    books.release(holding)
    books.check()


def test_a_later_wish_takes_the_place_of_an_earlier_one() -> None:
    """A conversation that goes on, or is begun anew, keeps its latest state."""
    books = make_books(n_pages=10)
    run_kept(books, FIRST)
    run_kept(books, FIRST + unique(1500, SIZE))
    assert books.statistics()["cache_pages_retained"] == 4
    run_kept(books, SECOND)
    assert books.statistics()["cache_pages_retained"] == 3
    press(books, 7)
    assert n_found(books, SECOND) == len(SECOND)
    assert n_found(books, FIRST) == 0


def test_a_beginning_alone_may_be_kept() -> None:
    """GRPC-2: kv.retain up to a token; a page that is kept in part is kept."""
    books = make_books(n_pages=10)
    run_kept(books, FIRST, n_most=SIZE + 1)
    assert books.statistics()["cache_pages_retained"] == 2
    press(books, 8)
    assert n_found(books, FIRST) == 2 * SIZE


def test_nothing_may_be_kept_any_more() -> None:
    """GRPC-2: kv.retain of priority 0 releases."""
    books = make_books(n_pages=10)
    run_kept(books, FIRST)
    run_kept(books, FIRST, n_most=0)
    assert books.statistics()["cache_pages_retained"] == 0
    press(books, 10)
    assert n_found(books, FIRST) == 0


def test_keeping_ends_when_it_was_to_end() -> None:
    """GRPC-2: a duration."""
    books = make_books(n_pages=10)
    run_kept(books, FIRST, "a", expires_s=50)
    run_kept(books, SECOND[:SIZE], "b", expires_s=70)
    books.expire(49.9)
    assert books.statistics()["cache_pages_retained"] == 4
    books.expire(50)
    assert books.statistics()["cache_pages_retained"] == 1
    books.check()
    books.expire(70)
    assert books.statistics()["cache_pages_retained"] == 0
    books.check()


def test_at_most_half_of_the_pages_are_kept_and_the_least_recently_renewed_key_makes_way() -> None:
    """The cache is not given away: what others publish has room to be found again."""
    books = make_books(n_pages=12)
    run_kept(books, FIRST, "a")
    run_kept(books, SECOND, "b")
    run_kept(books, FIRST, "a")
    third = unique(4000, 2 * SIZE)
    run_kept(books, third, "c")
    assert books.statistics()["cache_pages_retained"] == 5
    press(books, 7)
    assert (n_found(books, FIRST), n_found(books, SECOND), n_found(books, third)) == (len(FIRST), 0, len(third))


def test_a_sequence_beyond_the_bound_keeps_its_beginning() -> None:
    books = make_books(n_pages=12)
    long = unique(5000, 9 * SIZE)
    run_kept(books, long)
    assert books.statistics()["cache_pages_retained"] == 6
    press(books, 6)
    assert n_found(books, long) == 6 * SIZE


def test_keys_that_share_pages_are_bounded_too() -> None:
    """Names cost memory as well."""
    books = make_books(n_pages=12)
    for number in range(100):
        run_kept(books, FIRST, f"key {number}")
    assert len(set(books._retention._claims)) == 6
    assert books.statistics()["cache_pages_retained"] == 3


def test_a_page_that_two_keys_keep_is_kept_until_both_let_it_go() -> None:
    books = make_books(n_pages=12)
    run_kept(books, FIRST, "a")
    run_kept(books, FIRST, "b")
    run_kept(books, FIRST, "a", n_most=0)
    assert books.statistics()["cache_pages_retained"] == 3
    run_kept(books, FIRST, "b", n_most=0)
    assert books.statistics()["cache_pages_retained"] == 0


@pytest.mark.parametrize("is_truncatable", [True, False])
def test_the_snapshot_at_the_end_is_kept_too(is_truncatable: bool) -> None:
    """CACHE-5: without it a recurrent state could not go on there."""
    books = make_books(n_pages=30, n_rows=2, is_truncatable=is_truncatable)
    tokens = (*FIRST, 7, 8)
    run_kept(books, tokens, snapshot=True)
    for number in range(4):
        run(books, (*unique(10_000 + 100 * number, SIZE), 1), snapshot=True)
    assert n_found(books, tokens) == len(tokens)


def test_what_is_kept_comes_before_others_in_host_memory_too() -> None:
    """CACHE-6: saved or not, what is not kept goes first."""
    books = make_books(n_pages=10, n_host=4)
    run_kept(books, FIRST)
    press(books, 6)
    offload_all(books)
    press(books, 8)
    offload_all(books)
    assert n_found(books, FIRST) == len(FIRST)


def test_what_is_kept_stays_on_the_device_although_host_memory_has_it() -> None:
    """CACHE-6: elsewhere a page with a copy goes first."""
    books = make_books(n_pages=10, n_host=4)
    run_kept(books, FIRST)
    other = begin(books, unique(3000, 6 * SIZE))
    assert offload_all(books) == 3
    books.release(other)
    press(books, 10)
    assert books.lookup(KEY, FIRST, len(FIRST), uses_host=False).n_tokens == len(FIRST)


def test_a_kept_snapshot_does_not_make_way_for_another_tail() -> None:
    """CACHE-5: of the few that a page may have, the others are replaced."""
    books = make_books(n_pages=30, n_rows=8, is_truncatable=False)
    run_kept(books, (*FIRST, 7), snapshot=True)
    for tail in range(20, 26):
        run(books, (*FIRST, tail), snapshot=True)
    assert n_found(books, (*FIRST, 7)) == len(FIRST) + 1


def test_a_private_sequence_has_nothing_to_keep() -> None:
    """GRPC-2: bypass_prefix_cache beside a session."""
    books = make_books()
    holding = books.open(KEY, FIRST, None, is_private=True)
    books.extend(holding, len(FIRST))
    books.publish(holding, FIRST, len(FIRST))
    books.retain(holding, "s", None, math.inf)
    books.release(holding)
    assert books.statistics()["cache_pages_retained"] == 0
    books.check()


def test_keeping_comes_before_the_release() -> None:
    books = make_books()
    holding = begin(books, FIRST)
    books.release(holding)
    with pytest.raises(InternalError):
        books.retain(holding, "s", None, math.inf)
