"""Who makes way on the device, and what host memory is for."""

from __future__ import annotations

import pytest

from helios.cache.books import CacheBooks
from helios.cache.holding import Holding
from helios.errors import InternalError
from tests.cache.small_books import (
    KEY,
    SIZE,
    SYSTEM,
    begin,
    make_books,
    n_found,
    offload_all,
    put_snapshot,
    run,
    unique,
)

# -- eviction ----------------------------------------------------------------------------------------------------------


def test_leaves_go_by_last_use_and_pinned_pages_stay() -> None:
    """CACHE-3: free pages first, then the least recently used leaf; what a sequence reads is never touched."""
    books = make_books(n_pages=8)
    old, new, used = unique(0, SIZE), unique(10, SIZE), unique(20, 2 * SIZE)
    for tokens in (old, new):
        run(books, tokens)
    reader = begin(books, used)
    books.publish(reader, used, len(used))
    assert books.n_free_pages == 4
    assert books.extend(reader, 7 * SIZE) is not None
    assert (n_found(books, old), n_found(books, new), n_found(books, used)) == (0, SIZE, len(used))
    assert books.extend(reader, 8 * SIZE) is not None
    assert (n_found(books, new), n_found(books, used)) == (0, len(used))
    assert books.extend(reader, 9 * SIZE) is None
    books.check()


def test_a_leaf_goes_before_its_parent() -> None:
    """CACHE-3: a shared beginning outlives its continuations."""
    books = make_books(n_pages=3)
    run(books, SYSTEM)
    holding = books.open(KEY, (9,), None)
    assert books.extend(holding, 1) is not None
    assert n_found(books, SYSTEM) == len(SYSTEM) - SIZE


def test_what_cannot_be_had_evicts_nothing() -> None:
    """CACHE-3: a shortage leaves the cache as it was."""
    books = make_books(n_pages=4)
    run(books, SYSTEM)
    holding = books.open(KEY, (9,), None)
    assert books.extend(holding, 5 * SIZE) is None
    assert n_found(books, SYSTEM) == len(SYSTEM)
    assert holding.n_pages == 0


def test_a_lost_page_takes_its_snapshots_along() -> None:
    """CACHE-5: a snapshot never outlives the pages before it."""
    books = make_books(n_pages=3)
    run(books, (*SYSTEM[: 2 * SIZE], 1), snapshot=True)
    run(books, unique(0, 3 * SIZE))
    assert books.statistics()["cache_rows_free"] == 4
    assert n_found(books, (*SYSTEM[: 2 * SIZE], 1)) == 0


def test_hundreds_of_sequences_pass_through_a_small_cache() -> None:
    """CACHE-3: hundreds of sequences through a small cache, without a leak."""
    books = make_books(n_pages=5, n_rows=1)
    for i in range(300):
        run(books, unique(i % 7 * 100, 3 * SIZE + 1), snapshot=True)
    assert books.n_free_pages + books.n_evictable_pages == 5


# -- host memory -------------------------------------------------------------------------------------------------------


def test_offloaded_pages_come_back() -> None:
    """CACHE-3: evicted from the device, found in host memory, reloaded; the row of the snapshot too."""
    books = make_books(n_pages=4, n_rows=1, n_host=8)
    prompt = (*SYSTEM, 1, 2)
    run(books, prompt, snapshot=True)
    other = books.open(KEY, (9,), None)
    assert books.extend(other, SIZE) is not None  # the device is full now
    assert offload_all(books) == 4
    assert books.extend(other, 4 * SIZE) is not None
    row = books.reserve_row(other)
    assert row is not None
    match = books.lookup(KEY, prompt, len(prompt) - 1)
    assert (match.n_tokens, match.n_host_pages, match.n_host_rows) == (len(prompt) - 1, 3, 1)
    assert books.lookup(KEY, prompt, len(prompt), uses_host=False).n_tokens == 0
    holding = books.open(KEY, prompt, match)
    assert books.reload(holding) is None  # all in use
    assert not holding.is_ready
    books.release(other)
    transfers = books.reload(holding)
    assert transfers is not None
    assert len(transfers) == 4
    for transfer in transfers:
        assert not holding.is_ready
        books.finish_transfer(transfer)
    assert holding.is_ready
    assert [index for index, _ in books.attach(holding)] == [0, 1, 2]
    books.check()


def test_the_totals_count_each_page_and_row_once() -> None:
    """MET-1: published, computed twice, saved, evicted, and brought back."""
    books = make_books(n_pages=8, n_rows=1, n_host=8)
    prompt = (*SYSTEM, 1, 2)
    twin, late = begin(books, prompt), begin(books, prompt)
    books.publish(twin, prompt, len(prompt))
    books.publish(late, prompt, SIZE)  # computed by both
    put_snapshot(books, twin, prompt)
    books.release(late)
    books.release(twin)
    other = books.open(KEY, (9,), None)
    assert books.extend(other, 5 * SIZE) is not None  # the device is full now
    offload_all(books)
    assert books.extend(other, 8 * SIZE) is not None
    assert books.reserve_row(other) is not None
    books.release(other)
    holding = books.open(KEY, prompt, books.lookup(KEY, prompt, len(prompt)))
    for transfer in books.reload(holding) or []:
        books.finish_transfer(transfer)
    assert holding.is_ready
    assert {name: count for name, count in books.statistics().items() if name.endswith("_total")} == {
        "cache_reused_tokens_total": len(prompt),
        "cache_pages_published_total": 3,
        "cache_duplicate_pages_total": 1,
        "cache_pages_evicted_total": 3,
        "cache_pages_offloaded_total": 3,
        "cache_pages_reloaded_total": 3,
        "cache_snapshots_published_total": 1,
        "cache_snapshots_evicted_total": 1,
        "cache_snapshots_offloaded_total": 1,
        "cache_snapshots_reloaded_total": 1,
    }


def host_row_and_device_row(books: CacheBooks) -> Holding:
    """Two snapshots behind SYSTEM: the row of tail (1, 2) is in host memory only, that of (1, 3) on the device."""
    for tail in [(1, 2), (1, 3)]:
        run(books, SYSTEM + tail, snapshot=True)
    offload_all(books)
    holding = begin(books, (*SYSTEM, 1, 2))
    books.publish(holding, (*SYSTEM, 1, 2), len(SYSTEM) + 2)
    match = books.lookup(KEY, (*SYSTEM, 1, 3), len(SYSTEM) + 2)
    books.release(books.open(KEY, (*SYSTEM, 1, 3), match))
    assert books.reserve_row(holding) is not None
    assert books.lookup(KEY, (*SYSTEM, 1, 2), len(SYSTEM) + 2).n_host_rows == 1
    return holding


def test_of_snapshots_that_serve_alike_one_on_the_device_is_taken() -> None:
    """CACHE-3: a row that need not be reloaded."""
    books = make_books(n_rows=2, n_host=4)
    host_row_and_device_row(books)
    match = books.lookup(KEY, (*SYSTEM, 1, 9), len(SYSTEM) + 2)
    assert (match.n_tokens, match.n_host_rows) == (len(SYSTEM) + 1, 0)


def test_a_snapshot_made_again_brings_its_row_back_from_host_memory() -> None:
    """CACHE-3: and one of another tail does not pass for it."""
    books = make_books(n_rows=2, n_host=4)
    holding = host_row_and_device_row(books)
    books.publish_snapshot(holding, (*SYSTEM, 1, 2), len(SYSTEM) + 2, *holding.rows)
    books.check()
    assert books.lookup(KEY, (*SYSTEM, 1, 2), len(SYSTEM) + 2).n_host_rows == 0


def test_one_call_saves_no_more_than_it_may() -> None:
    """CACHE-3: copies go on beside compute, a few at a time."""
    books = make_books(n_pages=3, n_host=8)
    run(books, SYSTEM)
    assert [len(books.offload(2)) for _ in range(3)] == [2, 1, 0]


def evict_to_host(books: CacheBooks, tokens: tuple[int, ...]) -> None:
    """`tokens` are in host memory only afterwards."""
    run(books, tokens)
    other = books.open(KEY, (9,), None)
    assert books.extend(other, (books.n_free_pages) * SIZE) is not None
    offload_all(books)
    assert books.extend(other, books.shape.n_pages * SIZE) is not None
    books.release(other)
    assert books.lookup(KEY, tokens, len(tokens)).n_host_pages == len(tokens) // SIZE


def test_a_holding_released_during_its_reload_keeps_the_pages_until_the_copies_end() -> None:
    """CACHE-6: a copy in flight writes to nobody else's page; afterwards the pages are cached."""
    books = make_books(n_pages=3, n_host=8)
    evict_to_host(books, SYSTEM)
    holding = books.open(KEY, SYSTEM, books.lookup(KEY, SYSTEM, len(SYSTEM)))
    transfers = books.reload(holding)
    assert transfers is not None
    books.release(holding)
    other = books.open(KEY, (9,), None)
    for transfer in transfers:
        assert books.extend(other, 1) is None
        books.finish_transfer(transfer)
        books.check()
    assert books.lookup(KEY, SYSTEM, len(SYSTEM)).n_host_pages == 0
    assert books.extend(other, 1) is not None


def test_a_second_sequence_waits_for_the_reload_of_the_first() -> None:
    """CACHE-3: one copy for both, and neither starts before it is complete."""
    books = make_books(n_pages=4, n_host=8)
    evict_to_host(books, SYSTEM[:SIZE])
    first, second = (books.open(KEY, SYSTEM[:SIZE], books.lookup(KEY, SYSTEM[:SIZE], SIZE)) for _ in range(2))
    transfers = books.reload(first)
    assert transfers is not None
    assert len(transfers) == 1
    third = books.open(KEY, SYSTEM[:SIZE], books.lookup(KEY, SYSTEM[:SIZE], SIZE))
    for holding in (second, third):
        assert not holding.is_ready
        assert books.reload(holding) == []
        assert not holding.is_ready
    books.release(first)
    books.finish_transfer(transfers[0])
    assert second.is_ready
    assert third.is_ready
    books.check()


def test_a_page_that_is_being_saved_is_neither_evicted_nor_saved_twice() -> None:
    """CACHE-3: transfers in flight pin what they read."""
    books = make_books(n_pages=2, n_host=8)
    run(books, SYSTEM[: 2 * SIZE])
    transfers = books.offload(8)
    assert len(transfers) == 2
    assert books.offload(8) == []
    holding = books.open(KEY, (9,), None)
    assert books.extend(holding, 1) is None
    for transfer in transfers:
        books.finish_transfer(transfer)
    assert books.extend(holding, 1) is not None
    assert n_found(books, SYSTEM) == 2 * SIZE
    with pytest.raises(InternalError, match="not in flight"):
        books.finish_transfer(transfers[0])


def test_recomputing_what_is_in_host_memory_brings_it_back_without_a_copy() -> None:
    """CACHE-3: the published page is the node's own from then on."""
    books = make_books(n_pages=3, n_host=8)
    evict_to_host(books, SYSTEM)
    match = books.lookup(KEY, SYSTEM, len(SYSTEM), uses_host=False)
    assert (match.n_tokens, match.n_promised) == (0, 0)
    holding = books.open(KEY, SYSTEM, match)
    assert books.lookup(KEY, SYSTEM, len(SYSTEM), uses_host=False).is_worth_waiting
    assert books.extend(holding, len(SYSTEM)) is not None
    books.publish(holding, SYSTEM, len(SYSTEM))
    books.check()
    assert holding.private == {}
    assert books.lookup(KEY, SYSTEM, len(SYSTEM)).n_host_pages == 0


def test_saved_pages_leave_the_device_before_pages_that_would_be_lost() -> None:
    """CACHE-3: even when they were used later."""
    books = make_books(n_pages=2, n_host=1)
    run(books, unique(0, SIZE))
    run(books, unique(10, SIZE))
    books.finish_transfer(books.offload(1)[0])
    run(books, unique(20, SIZE))
    assert n_found(books, unique(0, SIZE)) == SIZE
    assert n_found(books, unique(10, SIZE)) == SIZE
    assert books.lookup(KEY, unique(0, SIZE), SIZE).n_host_pages == 1


def test_host_memory_keeps_what_was_used_last() -> None:
    """CACHE-3: older contents make way there, newer ones do not."""
    books = make_books(n_pages=1, n_host=2)
    for start in (0, 10, 20, 30):
        run(books, unique(start, SIZE))
        offload_all(books)
    assert [n_found(books, unique(start, SIZE)) for start in (0, 10, 20, 30)] == [0, 0, SIZE, SIZE]


def test_nothing_is_saved_while_there_is_room() -> None:
    """CACHE-3: copies are for what may have to go."""
    books = make_books(n_pages=40, n_host=8)
    run(books, (*SYSTEM, 1), snapshot=True)
    assert books.offload(8) == []


def test_the_beginning_is_saved_before_what_follows_it() -> None:
    """CACHE-3: a continuation without its beginning would be of no use in host memory."""
    books = make_books(n_pages=3, n_host=2)
    run(books, SYSTEM)
    offload_all(books)
    run(books, unique(0, 3 * SIZE))
    assert n_found(books, SYSTEM) == 2 * SIZE
