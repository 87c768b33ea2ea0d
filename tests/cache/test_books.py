"""The life of a holding: what it publishes, and how it ends."""

from __future__ import annotations

import pytest

from helios.cache.books import prefix_key
from helios.errors import InternalError
from tests.cache.small_books import KEY, SIZE, SYSTEM, begin, make_books, n_found, put_snapshot, run, unique


def test_only_complete_committed_pages_are_published() -> None:
    """CACHE-5: a page appears when its last token is committed, and not before."""
    books = make_books()
    holding = begin(books, (*SYSTEM, 1))
    for n_committed in range(len(SYSTEM) + 1):
        books.publish(holding, SYSTEM, n_committed)
        assert n_found(books, SYSTEM) == n_committed // SIZE * SIZE
        books.check()


def test_generated_tokens_are_published_behind_the_prompt() -> None:
    """CACHE-5: the second turn of a chat finds the first one's answer."""
    books = make_books()
    holding = begin(books, SYSTEM)
    history = SYSTEM + unique(0, 2 * SIZE + 1)
    assert books.extend(holding, len(history)) is not None
    books.publish(holding, history, len(history))
    put_snapshot(books, holding, history)
    books.release(holding)
    assert n_found(books, (*history, 77)) == len(history)


def test_a_failed_round_publishes_nothing() -> None:
    """CACHE-5, CACHE-6: a holding that is released without publishing leaves nothing behind, its reserved row neither."""
    books = make_books(n_rows=1)
    holding = begin(books, (*SYSTEM, 1))
    assert books.reserve_row(holding) == 0
    assert books.reserve_row(holding) is None
    books.release(holding)
    books.check()
    assert books.lookup(KEY, SYSTEM, len(SYSTEM)).n_promised == 0
    assert books.n_free_pages == 40
    run(books, (*SYSTEM, 1), snapshot=True)


def test_a_dropped_row_is_free_and_unpublished() -> None:
    """STOP-3, CACHE-5: the private candidate after a string stop."""
    books = make_books(n_rows=1)
    holding = begin(books, (*SYSTEM, 1))
    books.publish(holding, (*SYSTEM, 1), len(SYSTEM) + 1)
    row = books.reserve_row(holding)
    assert row is not None
    books.drop_row(holding, row)
    assert n_found(books, (*SYSTEM, 1)) == len(SYSTEM)
    with pytest.raises(InternalError, match="not reserved"):
        books.drop_row(holding, row)


def test_a_duplicate_keeps_the_older_page_and_gives_way_when_that_is_read_no_more() -> None:
    """CACHE-3: two sequences that computed the same; no page is kept twice once one of them has ended."""
    books = make_books()
    first, second = begin(books, (*SYSTEM, 1)), begin(books, (*SYSTEM, 1))
    books.publish(first, SYSTEM, len(SYSTEM))
    books.publish(second, SYSTEM, len(SYSTEM))
    assert sorted(second.private) == [0, 1, 2, 3]
    assert sorted(first.private) == [3]
    books.check()
    pages = dict(second.private)
    books.release(first)
    books.check()
    assert sorted(second.private) == [3]
    assert [node.device_id for node in second.nodes] == [pages[0], pages[1], pages[2]]
    assert books.n_free_pages == 40 - 4


def test_other_tokens_than_those_opened_with_are_refused() -> None:
    """CACHE-5: a promised page is kept with its own tokens or not at all."""
    books = make_books()
    holding = begin(books, SYSTEM)
    with pytest.raises(InternalError, match="other tokens"):
        books.publish(holding, unique(0, SIZE), SIZE)
    with pytest.raises(InternalError, match="committed"):
        books.publish(holding, (*SYSTEM, *SYSTEM), 2 * len(SYSTEM))


def test_an_old_match_is_refused() -> None:
    """CACHE-3: its pages may be somebody else's by now."""
    books = make_books(n_pages=3)
    run(books, SYSTEM)
    match = books.lookup(KEY, SYSTEM, len(SYSTEM))
    with pytest.raises(InternalError, match="another key"):
        books.open(prefix_key(b"model", "salt", "", []), SYSTEM, match)
    run(books, unique(0, 3 * SIZE))
    with pytest.raises(InternalError, match="had gone"):
        books.open(KEY, SYSTEM, match)


def test_release_happens_once() -> None:
    """CACHE-6: and nothing is had afterwards."""
    books = make_books()
    holding = begin(books, SYSTEM)
    books.release(holding)
    with pytest.raises(InternalError, match="released twice"):
        books.release(holding)
    with pytest.raises(InternalError, match="after its release"):
        books.extend(holding, 100)
