"""What the journal says is what a lookup can find, in an order in which it can be followed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from helios.cache import journal as journal_module
from helios.cache.books import CacheBooks, CacheShape, prefix_key
from helios.cache.journal import AllRemoved, Change, Journal, PageRemoved, PageStored
from helios.errors import InternalError
from tests.cache.small_books import KEY, SIZE, begin, n_found, offload_all, run, unique

OTHER_KEY = prefix_key(b"model", "salt", "", [])


def make(n_pages: int = 12, n_host: int = 0) -> tuple[CacheBooks, Journal]:
    journal = Journal(KEY)
    return CacheBooks(CacheShape(SIZE, n_pages, 0, n_host, 0), journal), journal


class Follower:
    """Somebody who knows the notes alone."""

    def __init__(self) -> None:
        self.prefixes: dict[int, tuple[int, ...]] = {}

    def follow(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, PageStored):
                assert change.page not in self.prefixes, "a page has one number"
                before = () if change.parent is None else self.prefixes[change.parent]
                self.prefixes[change.page] = before + change.tokens
            elif isinstance(change, PageRemoved):
                prefix = self.prefixes.pop(change.page)
                assert all(other[: len(prefix)] != prefix for other in self.prefixes.values()), "children go first"
            else:
                self.prefixes.clear()

    def n_found(self, tokens: tuple[int, ...]) -> int:
        return max((len(p) for p in self.prefixes.values() if tokens[: len(p)] == p), default=0)


def test_pages_are_noted_when_they_are_published_and_when_they_are_evicted() -> None:
    """Down to the page: what a follower believes is what a lookup finds."""
    books, journal = make(n_pages=12)
    follower = Follower()
    prompts = [unique(1000 * i, 4 * SIZE + 1) for i in range(5)]
    for prompt in prompts:
        run(books, prompt)
        follower.follow(journal.take())
        for other in prompts:
            assert follower.n_found(other) == n_found(books, other)
    assert follower.n_found(prompts[0]) < 4 * SIZE, "something was evicted"
    assert follower.n_found(prompts[-1]) == 4 * SIZE


def test_a_page_that_is_computed_twice_is_noted_once() -> None:
    books, journal = make()
    tokens = unique(0, 2 * SIZE + 1)
    one, other = begin(books, tokens), begin(books, tokens)
    for holding in (one, other):
        books.publish(holding, tokens, len(tokens))
    assert len(journal.take()) == 2
    books.release(one)
    books.release(other)
    books.check()
    assert journal.take() == []


def test_a_page_in_host_memory_is_still_there() -> None:
    """It is noted as removed when the last copy goes, not when the device's does."""
    books, journal = make(n_pages=5, n_host=8)
    first = unique(0, 4 * SIZE + 1)
    run(books, first)
    offload_all(books)
    journal.take()
    holding = begin(books, unique(5000, 5 * SIZE))  # crowds it out of the device
    books.release(holding)
    assert n_found(books, first) == 4 * SIZE
    assert books.statistics()["cache_pages_evicted_total"] == 4
    assert journal.take() == []


def test_other_keys_are_not_noted() -> None:
    """What a salt keeps apart is nobody else's to know, and could not be found by its tokens."""
    books, journal = make()
    run(books, unique(0, 3 * SIZE), OTHER_KEY)
    assert journal.take() == []
    run(books, unique(0, 3 * SIZE))
    assert len(journal.take()) == 3


def test_notes_that_nobody_takes_become_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, and a follower still ends up with the truth."""
    monkeypatch.setattr(journal_module, "_LEAST_BOUND", 4)
    books, journal = make(n_pages=12)
    prompts = [unique(1000 * i, 4 * SIZE + 1) for i in range(20)]
    for prompt in prompts:
        run(books, prompt)
    changes = journal.take()
    assert isinstance(changes[0], AllRemoved)
    assert len(changes) <= 4 + 2 * 12 + 1
    follower = Follower()
    follower.follow(changes)
    for prompt in prompts:
        assert follower.n_found(prompt) == n_found(books, prompt)


def test_a_listener_is_woken_once_for_many_notes() -> None:
    books, journal = make()
    run(books, unique(0, 2 * SIZE))
    wakes: list[int] = []
    journal.listen(lambda: wakes.append(1))
    assert len(wakes) == 1, "notes were waiting"
    run(books, unique(100, 2 * SIZE))
    assert len(wakes) == 1
    journal.take()
    run(books, unique(200, 2 * SIZE))
    assert len(wakes) == 2


def test_the_audit_sees_a_page_that_was_not_noted() -> None:
    books, journal = make()
    run(books, unique(0, 2 * SIZE))
    leaf = max(journal.pages, key=lambda node: node.depth)
    journal.remove(leaf)
    with pytest.raises(InternalError, match="journal"):
        books.check()
