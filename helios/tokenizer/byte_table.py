"""The bytes of every token of a vocabulary, in one block.

It knows ids and bytes, no text. An object for each of 49,152 tokens would take 3.2 MB, the block takes 0.5. Nothing here changes
after construction.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate


class ByteTable:
    """`table[token_id]` are the bytes of a token, IndexError for an id that it does not have."""

    __slots__ = ("_block", "_hidden", "_starts")

    def __init__(self, groups: Iterable[Collection[bytes]]) -> None:
        """The bytes of each token by id, in groups."""
        block, starts = bytearray(), array("I", (0,))
        for pieces in groups:
            starts.extend(accumulate(map(len, pieces), initial=starts.pop()))
            block += b"".join(pieces)
        self._block, self._starts = bytes(block), starts
        self._hidden: frozenset[int] = frozenset()

    def hiding(self, token_ids: Iterable[int]) -> ByteTable:
        """The same table, but these tokens stand for nothing."""
        other = object.__new__(ByteTable)
        other._block, other._starts, other._hidden = self._block, self._starts, frozenset(token_ids)
        return other

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, token_id: int) -> bytes:
        if token_id < 0:
            raise IndexError(token_id)
        end = self._starts[token_id + 1]
        return b"" if token_id in self._hidden else self._block[self._starts[token_id] : end]

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))
