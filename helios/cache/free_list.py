"""A free list: which ids of a store, 0..n-1, are free or taken.

It knows numbers only, not what they stand for beyond the word in its messages. An id is in exactly one hand.
"""

from __future__ import annotations

from helios.errors import InternalError


class FreeList:
    """Hands out ids, the last returned one first. `noun` names one of them in messages."""

    def __init__(self, n_ids: int, noun: str) -> None:
        if n_ids < 0:
            raise InternalError(f"a store of {n_ids} {noun}s")
        self._noun = noun
        self._free = list(range(n_ids - 1, -1, -1))
        self._is_free = bytearray(b"\x01" * n_ids)

    @property
    def n_ids(self) -> int:
        return len(self._is_free)

    @property
    def n_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """One free id."""
        if not self._free:
            raise InternalError(f"a {self._noun} was taken and none of {self.n_ids} is free")
        taken = self._free.pop()
        self._is_free[taken] = 0
        return taken

    def release(self, taken: int) -> None:
        """An id that nobody reads or writes any more."""
        if not 0 <= taken < self.n_ids or self._is_free[taken]:
            raise InternalError(f"{self._noun} {taken} was released and is not taken")
        self._is_free[taken] = 1
        self._free.append(taken)

    def check(self, taken: list[int]) -> None:
        """Raise InternalError unless `taken` are the ids in someone's hand, each once."""
        if sorted(self._free) != [i for i in range(self.n_ids) if self._is_free[i]]:
            raise InternalError(f"the free {self._noun}s and their states differ")
        if sorted(taken + self._free) != list(range(self.n_ids)):
            raise InternalError(f"of {self.n_ids} {self._noun}s, {len(taken)} are in a hand and {self.n_free} free")
