"""What is found of a prompt, under which key, and what is promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.cache.books import prefix_key
from tests.cache.small_books import KEY, SIZE, SYSTEM, begin, make_books, n_found, run, unique

# -- keys --------------------------------------------------------------------------------------------------------------


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


# -- what is found -----------------------------------------------------------------------------------------------------


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


# -- promises ----------------------------------------------------------------------------------------------------------


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
