"""Which snapshots are kept, and for how long."""

from __future__ import annotations

from helios.cache.snapshots import SNAPSHOTS_PER_NODE
from tests.cache.small_books import KEY, SIZE, SYSTEM, begin, make_books, n_found, run


def test_a_node_keeps_a_bounded_number_of_snapshots() -> None:
    """CACHE-5: the least recently used one is replaced."""
    books = make_books(n_rows=20)
    tails = [(i, 0) for i in range(SNAPSHOTS_PER_NODE + 1)]
    for tail in tails[:-1]:
        run(books, SYSTEM + tail, snapshot=True)
    holding = books.open(KEY, (*SYSTEM, 0, 0, 7), books.lookup(KEY, (*SYSTEM, 0, 0, 7), len(SYSTEM) + 2))
    books.release(holding)  # used again
    run(books, SYSTEM + tails[-1], snapshot=True)
    assert [n_found(books, SYSTEM + tail) - len(SYSTEM) for tail in tails] == [2, 0, 2, 2, 2]
    assert books.statistics()["cache_rows_free"] == 20 - SNAPSHOTS_PER_NODE


def test_a_longer_snapshot_replaces_those_it_serves_and_a_shorter_one_is_not_kept() -> None:
    """CACHE-5: where tails are truncatable, one row does for both."""
    books = make_books()
    for tail in [(1,), (1, 2, 3), (1, 2)]:
        run(books, SYSTEM + tail, snapshot=True)
        assert books.statistics()["cache_rows_free"] == 3
    assert n_found(books, (*SYSTEM, 1, 2, 3)) == len(SYSTEM) + 3


def test_rows_are_evicted_by_last_use_and_reserved_ones_are_not() -> None:
    """CACHE-3: snapshots make way for newer ones; a private candidate never does."""
    books = make_books(n_rows=2)
    holding = begin(books, (7,))
    assert books.reserve_row(holding) is not None
    run(books, (*SYSTEM, 1), snapshot=True)
    run(books, (*SYSTEM[:SIZE], 2), snapshot=True)
    assert n_found(books, (*SYSTEM, 1)) == len(SYSTEM)
    assert n_found(books, (*SYSTEM[:SIZE], 2)) == SIZE + 1
    books.check()


def test_a_restored_row_is_pinned_until_a_round_beyond_it_is_verified() -> None:
    """CACHE-6: it may not be written while the restore may still read it."""
    books = make_books(n_rows=1)
    run(books, (*SYSTEM, 1, 2), snapshot=True)
    holding = begin(books, (*SYSTEM, 1, 2, 3))
    assert books.reserve_row(holding) is None
    books.publish(holding, (*SYSTEM, 1, 2, 3), len(SYSTEM) + 3)
    assert books.reserve_row(holding) is not None
    books.check()


def test_the_last_token_of_a_page_is_an_endpoint_without_a_row() -> None:
    """CACHE-5: pages say it all there, except for recurrent state."""
    for is_truncatable in (True, False):
        books = make_books(is_truncatable=is_truncatable)
        run(books, SYSTEM, snapshot=True)
        assert books.statistics()["cache_rows_free"] == (4 if is_truncatable else 3)
        assert n_found(books, SYSTEM) == len(SYSTEM)


def test_a_snapshot_that_was_made_again_counts_as_used() -> None:
    """CACHE-3: its row outlives one that was not."""
    books = make_books(n_rows=3)
    for tail in [1, 2, 1, 3, 4]:
        run(books, (*SYSTEM, tail), snapshot=True)
    assert [n_found(books, (*SYSTEM, tail)) - len(SYSTEM) for tail in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_only_what_a_sequence_takes_up_counts_as_reused() -> None:
    """MET-1: a sequence that found no room for the rest is counted when it comes back, once."""
    books = make_books()
    run(books, (*SYSTEM, 1))
    turned_away = books.open(KEY, (*SYSTEM, 1), books.lookup(KEY, (*SYSTEM, 1), len(SYSTEM)))
    books.release(turned_away)
    assert books.statistics()["cache_reused_tokens_total"] == 0
    run(books, (*SYSTEM, 1))
    assert books.statistics()["cache_reused_tokens_total"] == len(SYSTEM)
