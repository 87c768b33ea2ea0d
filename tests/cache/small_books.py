"""Small books, and sequences that run through them."""

from __future__ import annotations

from helios.cache.books import CacheBooks, CacheShape, prefix_key
from helios.cache.holding import Holding
from helios.cache.journal import Journal

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


def make_journaled(journal: Journal, n_pages: int = 40) -> CacheBooks:
    """Books that note what they gain and lose."""
    return CacheBooks(CacheShape(SIZE, n_pages), journal)
