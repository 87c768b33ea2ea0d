"""The book of KV pages: which page ids are free, taken or promised.

It knows page numbers only, no device and no tokens. A page is in exactly one hand, and every promise can be kept:
reserved pages never exceed free ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helios.errors import InternalError


@dataclass(frozen=True, slots=True)
class PageStatistics:
    """Counts of pages; `n_total` = free + taken, and `n_reserved` of the free ones are promised."""

    n_total: int
    n_free: int
    n_taken: int
    n_reserved: int


class PagePool:
    """Hands out page ids 0..n_pages-1. Callers reserve a number of pages, then take them one by one when needed."""

    def __init__(self, n_pages: int) -> None:
        self._n_pages = n_pages
        self._free = list(range(n_pages - 1, -1, -1))
        self._is_free = bytearray(b"\x01" * n_pages)
        self._n_reserved = 0

    @property
    def n_pages(self) -> int:
        return self._n_pages

    @property
    def n_available(self) -> int:
        """Pages that are free and not promised to anyone."""
        return len(self._free) - self._n_reserved

    def reserve(self, n_pages: int) -> bool:
        """Promise `n_pages`; False, and no change, when they are not there now."""
        if n_pages > self.n_available:
            return False
        self._n_reserved += n_pages
        return True

    def unreserve(self, n_pages: int) -> None:
        """Give back a promise that was not used."""
        if n_pages > self._n_reserved:
            raise InternalError(f"{n_pages} pages given back, {self._n_reserved} reserved")
        self._n_reserved -= n_pages

    def take_reserved(self) -> int:
        """One page id out of an earlier promise."""
        if self._n_reserved < 1:
            raise InternalError("a page was taken without a reservation")
        self._n_reserved -= 1
        page_id = self._free.pop()
        self._is_free[page_id] = 0
        return page_id

    def release(self, page_ids: Iterable[int]) -> None:
        """Pages nobody reads or writes any more."""
        for page_id in page_ids:
            if self._is_free[page_id]:
                raise InternalError(f"page {page_id} was released twice")
            self._is_free[page_id] = 1
            self._free.append(page_id)

    def check(self) -> None:
        """Raise InternalError unless the book balances."""
        if sum(self._is_free) != len(self._free) or len(set(self._free)) != len(self._free):
            raise InternalError("the free list and the page states differ")
        if not 0 <= self._n_reserved <= len(self._free):
            raise InternalError(f"{self._n_reserved} pages promised, {len(self._free)} free")

    def statistics(self) -> PageStatistics:
        n_free = len(self._free)
        return PageStatistics(self._n_pages, n_free, self._n_pages - n_free, self._n_reserved)
