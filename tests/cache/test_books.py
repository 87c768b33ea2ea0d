"""The calls of the books one by one: what is found, what is promised, who makes way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.cache.books import CacheBooks, CacheShape, prefix_key
from helios.cache.holding import Holding
from helios.cache.snapshots import SNAPSHOTS_PER_NODE
from helios.errors import InternalError

SIZE = 4
KEY = prefix_key(b"model", "", "", [])
SYSTEM = tuple(range(100, 100 + 3 * SIZE))


def make_books(n_pages: int = 40, n_rows: int = 4, n_host: int = 0, *, is_truncatable: bool = True) -> CacheBooks:
    return CacheBooks(CacheShape(SIZE, n_pages, n_rows, n_host, n_host, is_truncatable=is_truncatable))


def begin(books: CacheBooks, tokens: tuple[int, ...], key: bytes = KEY) -> Holding:
    """A sequence that has looked up, and has pages for its prompt."""
    holding = books.open(key, tokens, books.lookup(key, tokens, len(tokens) - 1))
    assert books.reload(holding) == []
    assert books.extend(holding, len(tokens)) is not None
    return holding


def run(books: CacheBooks, tokens: tuple[int, ...], key: bytes = KEY, *, snapshot: bool = False) -> None:
    """A sequence from beginning to end: its complete pages stay in the cache, and a snapshot of its end if wanted."""
    holding = begin(books, tokens, key)
    books.publish(holding, tokens, len(tokens))
    if snapshot:
        put_snapshot(books, holding, tokens)
    books.release(holding)
    books.check()


def put_snapshot(books: CacheBooks, holding: Holding, tokens: tuple[int, ...]) -> None:
    row = books.reserve_row(holding)
    assert row is not None
    books.publish_snapshot(holding, tokens, len(tokens), row)


def n_found(books: CacheBooks, tokens: tuple[int, ...], key: bytes = KEY) -> int:
    return books.lookup(key, tokens, len(tokens)).n_tokens


def unique(start: int, n_tokens: int) -> tuple[int, ...]:
    return tuple(range(start, start + n_tokens))


# -- keys ---------------------------------------------------------------------------------------------------------------

part = st.text(st.sampled_from("ab\x00\x01"), max_size=3)
parts = st.tuples(part, part, part, st.lists(part, max_size=3))


@given(parts, parts)
def test_two_different_sets_of_parts_never_have_the_same_key(left: tuple, right: tuple) -> None:
    """CACHE-3: no part can be crafted to look like another one's end or beginning."""
    keys = [prefix_key(a.encode(), b, c, [m.encode() for m in media]) for a, b, c, media in (left, right)]
    assert (keys[0] == keys[1]) == (left == right)


@pytest.mark.parametrize(
    "other",
    [
        prefix_key(b"model", "tenant", "", []),
        prefix_key(b"model", "", "tenant", []),
        prefix_key(b"mode", "l", "", []),
        prefix_key(b"model", "", "", [b"image"]),
        prefix_key(b"model", "", "", [b""]),
        prefix_key(b"other", "", "", []),
    ],
)
def test_nothing_is_found_or_promised_under_another_key(other: bytes) -> None:
    """CACHE-3: another model, salt, adapter or picture never shares a prefix, even with the same tokens."""
    books = make_books()
    run(books, (*SYSTEM, 1), snapshot=True)
    running = begin(books, unique(0, 9))
    assert n_found(books, SYSTEM) == len(SYSTEM)
    assert books.lookup(other, (*SYSTEM, 1), len(SYSTEM)).n_promised == 0
    assert books.lookup(other, unique(0, 9), 9).n_promised == 0
    books.release(running)


def test_tokens_with_equal_hashes_are_told_apart() -> None:
    """CACHE-3: Python's hash(-1) == hash(-2); a hash alone decides nothing."""
    books = make_books()
    left, right = (-1,) * SIZE, (-2,) * SIZE
    assert hash(left) == hash(right)
    run(books, left)
    assert (n_found(books, left), n_found(books, right)) == (SIZE, 0)


# -- what is found ------------------------------------------------------------------------------------------------------


def test_whole_pages_of_a_common_beginning_are_found() -> None:
    """CACHE-3: and the page in which the prompts part is not."""
    books = make_books()
    run(books, (*SYSTEM, 1, 2, 3, 4))
    assert n_found(books, (*SYSTEM, 1, 2, 9, 9)) == len(SYSTEM)
    assert n_found(books, (7, *SYSTEM)) == 0


def test_an_identical_prompt_reuses_all_but_one_token() -> None:
    """CACHE-5: through the snapshot at the prompt's end, cut one short."""
    books = make_books()
    prompt = (*SYSTEM, 1, 2, 3)
    run(books, prompt, snapshot=True)
    match = books.lookup(KEY, prompt, len(prompt) - 1)
    assert match.n_tokens == len(prompt) - 1
    holding = books.open(KEY, prompt, match)
    assert books.reload(holding) == []
    assert [index for index, _ in books.extend(holding, len(prompt)) or []] == [3]
    assert [index for index, _ in books.attach(holding)] == [0, 1, 2]
    restored = books.restore(holding)
    assert restored is not None
    assert restored[1:] == (3, holding.private[3])


def test_a_prompt_that_parts_inside_the_tail_reuses_the_common_part() -> None:
    """CACHE-5: earlier endpoints inside a truncatable tail are as exact as its own."""
    books = make_books()
    run(books, (*SYSTEM, 1, 2, 3), snapshot=True)
    assert n_found(books, (*SYSTEM, 1, 2, 9, 9)) == len(SYSTEM) + 2


def test_of_several_snapshots_at_a_node_the_longest_usable_one_serves() -> None:
    """CACHE-5: whatever the order in which they were put there."""
    books = make_books()
    for tail in [(1, 2), (5,), (1, 3, 3)]:
        run(books, SYSTEM + tail, snapshot=True)
    assert n_found(books, (*SYSTEM, 1, 2, 9)) == len(SYSTEM) + 2
    assert n_found(books, (*SYSTEM, 1, 3, 3)) == len(SYSTEM) + 3
    assert n_found(books, (*SYSTEM, 5, 5)) == len(SYSTEM) + 1
    assert n_found(books, (*SYSTEM, 6)) == len(SYSTEM)


def test_recurrent_state_goes_on_at_exact_endpoints_only() -> None:
    """CACHE-5: a page without a snapshot, or a part of a tail, is no endpoint there; an earlier snapshot is."""
    books = make_books(is_truncatable=False)
    run(books, SYSTEM[:SIZE], snapshot=True)
    run(books, (*SYSTEM, 1, 2), snapshot=True)
    assert n_found(books, (*SYSTEM, 1, 2, 3)) == len(SYSTEM) + 2
    assert n_found(books, (*SYSTEM, 1, 3, 3)) == SIZE
    match = books.lookup(KEY, SYSTEM[:SIZE], SIZE - 1)
    assert (match.n_tokens, match.nodes, match.n_promised) == (0, (), 0)


def test_a_short_prompt_has_its_snapshot_at_the_root() -> None:
    """CACHE-5: fewer tokens than a page."""
    books = make_books()
    run(books, (1, 2, 3), snapshot=True)
    assert n_found(books, (1, 2, 3, 4, 5)) == 3
    run(books, (1, 2, 9), snapshot=True)
    assert n_found(books, (1, 2, 9)) == 3


def test_without_rows_prefixes_are_reused_at_whole_pages() -> None:
    """CACHE-3: a core that cannot save and restore rows."""
    books = make_books(n_rows=0)
    holding = begin(books, (*SYSTEM, 1))
    books.publish(holding, (*SYSTEM, 1), len(SYSTEM) + 1)
    assert books.reserve_row(holding) is None
    books.release(holding)
    assert n_found(books, (*SYSTEM, 1)) == len(SYSTEM)


def test_recurrent_state_keeps_a_snapshot_for_each_endpoint() -> None:
    """CACHE-5: a longer one does not serve a shorter endpoint there, in whatever order they come."""
    for tails in ([(1,), (1, 2)], [(1, 2), (1,)]):
        books = make_books(is_truncatable=False)
        for tail in tails:
            run(books, SYSTEM + tail, snapshot=True)
        assert n_found(books, (*SYSTEM, 1, 9)) == len(SYSTEM) + 1
        assert n_found(books, (*SYSTEM, 1, 2)) == len(SYSTEM) + 2


# -- promises -----------------------------------------------------------------------------------------------------------


def test_of_requests_with_one_system_prompt_the_first_computes_and_the_others_wait() -> None:
    """CACHE-3: 32 at once; each of the others has reused the shared part in the end."""
    books = make_books(n_pages=80)
    prompts = [(*SYSTEM, 1000 + i, 0, 0) for i in range(32)]
    first = begin(books, prompts[0])
    matches = [books.lookup(KEY, prompt, len(prompt) - 1) for prompt in prompts[1:]]
    assert {(match.n_tokens, match.n_promised) for match in matches} == {(0, len(SYSTEM))}
    books.publish(first, prompts[0], SIZE)
    assert all(match.is_worth_waiting for match in matches)
    again = books.lookup(KEY, prompts[1], len(prompts[1]) - 1)
    assert (again.n_tokens, again.n_promised) == (SIZE, len(SYSTEM))
    books.publish(first, prompts[0], len(SYSTEM))
    assert not any(match.is_worth_waiting for match in matches)
    others = [begin(books, prompt) for prompt in prompts[1:]]
    assert {holding.n_reused for holding in others} == {len(SYSTEM)}
    assert books.n_free_pages == 80 - 3 - 32
    books.check()


def test_a_promise_vanishes_when_its_holding_is_released() -> None:
    """CACHE-6: cancelled, preempted or failed, nobody waits for it any longer."""
    books = make_books()
    first = begin(books, (*SYSTEM, 1))
    waiting = books.lookup(KEY, (*SYSTEM, 2), len(SYSTEM))
    books.release(first)
    assert not waiting.is_worth_waiting
    assert books.lookup(KEY, (*SYSTEM, 2), len(SYSTEM)).n_promised == 0
    books.check()
    assert books.n_free_pages == 40


def test_two_promises_of_the_same_page_are_both_to_be_broken() -> None:
    """CACHE-6: whoever did not wait takes over."""
    books = make_books()
    first, second = begin(books, (*SYSTEM, 1)), begin(books, (*SYSTEM, 2))
    books.release(first)
    assert books.lookup(KEY, (*SYSTEM, 2), len(SYSTEM)).n_promised == len(SYSTEM)
    books.release(second)
    assert books.lookup(KEY, (*SYSTEM, 2), len(SYSTEM)).n_promised == 0


def test_a_promise_that_another_one_kept_is_waited_for_no_longer() -> None:
    """CACHE-3: what matters is that the page is there, not who computed it."""
    books = make_books()
    first, second = begin(books, (*SYSTEM, 1)), begin(books, (*SYSTEM, 2))
    waiting = books.lookup(KEY, (*SYSTEM, 3), len(SYSTEM))
    books.publish(second, SYSTEM, len(SYSTEM))
    assert not waiting.is_worth_waiting
    books.publish(first, SYSTEM, len(SYSTEM))
    books.check()


def test_pages_of_recurrent_state_are_not_worth_waiting_for() -> None:
    """CACHE-5: no endpoint will be where the prompts part."""
    books = make_books(is_truncatable=False)
    begin(books, (*SYSTEM, 1))
    match = books.lookup(KEY, (*SYSTEM, 2), len(SYSTEM))
    assert (match.n_promised, match.is_worth_waiting) == (0, False)


def test_what_is_promised_is_never_taken_for_what_is_there() -> None:
    """CACHE-5: a page is found only after it was published."""
    books = make_books()
    begin(books, SYSTEM)
    match = books.lookup(KEY, SYSTEM, len(SYSTEM))
    assert (match.n_tokens, match.nodes) == (0, ())


def test_a_private_holding_neither_promises_nor_publishes() -> None:
    """CACHE-3: a request that bypasses the cache leaves no trace in it."""
    books = make_books()
    holding = books.open(KEY, SYSTEM, None, is_private=True)
    assert books.extend(holding, len(SYSTEM)) is not None
    assert books.lookup(KEY, SYSTEM, len(SYSTEM)).n_promised == 0
    books.publish(holding, SYSTEM, len(SYSTEM))
    assert books.reserve_row(holding) is None
    assert n_found(books, SYSTEM) == 0
    books.release(holding)
    assert books.n_free_pages == 40


# -- publishing ---------------------------------------------------------------------------------------------------------


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


# -- snapshots ----------------------------------------------------------------------------------------------------------


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


# -- eviction -----------------------------------------------------------------------------------------------------------


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


def test_a_sequence_uses_its_own_stay_of_pages_in_turn() -> None:
    """CACHE-3: hundreds of sequences through a small cache, without a leak."""
    books = make_books(n_pages=5, n_rows=1)
    for i in range(300):
        run(books, unique(i % 7 * 100, 3 * SIZE + 1), snapshot=True)
    assert books.n_free_pages + books.n_evictable_pages == 5


def test_release_happens_once() -> None:
    """CACHE-6: and nothing is had afterwards."""
    books = make_books()
    holding = begin(books, SYSTEM)
    books.release(holding)
    with pytest.raises(InternalError, match="released twice"):
        books.release(holding)
    with pytest.raises(InternalError, match="after its release"):
        books.extend(holding, 100)


# -- host memory --------------------------------------------------------------------------------------------------------


def offload_all(books: CacheBooks) -> int:
    """Save until there is nothing more to save: how many copies that took."""
    n_copies = 0
    while transfers := books.offload(3):
        assert len(transfers) <= 3
        for transfer in transfers:
            books.finish_transfer(transfer)
        n_copies += len(transfers)
    books.check()
    return n_copies


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
