"""Whether the books balance: every page and row in exactly one hand, every count somebody's.

It reads everything and changes nothing; it takes the time that takes, so it is for tests. What it says is what `CacheBooks` promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helios.cache.books import CacheBooks


def check_books(books: CacheBooks) -> None:
    """Raise InternalError at the first thing that is wrong."""
