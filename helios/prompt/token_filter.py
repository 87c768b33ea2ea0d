"""Which tokens may come next besides what a grammar says: only some ids, and no ending before a least length.

It knows token ids and masks, no request; it is a `TokenConstraint` of helios/scheduler/request.py around another one, or around
none. A mask that allows nothing is a ConstraintError and never reaches the sampler.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from helios.errors import ConstraintError


class Constraint(Protocol):
    """What a filter stands around."""

    def mask(self) -> NDArray[Any] | None: ...
    def advance(self, token_id: int) -> None: ...


class TokenFilter:
    """`allowed` empty: every token. None of `endings` among the first `n_least` tokens, unless a grammar leaves nothing else: then
    the answer's form ends it."""

    def __init__(
        self,
        vocabulary: int,
        allowed: Collection[int],
        endings: Collection[int],
        n_least: int,
        inner: Constraint | None = None,
    ) -> None:
        self._all = _packed(np.arange(_padded(vocabulary)) < vocabulary)
        self._allowed = _row(vocabulary, allowed) if allowed else None
        self._not_endings = ~_row(vocabulary, endings)
        self._n_left = n_least
        self._inner = inner

    def mask(self) -> NDArray[np.uint32] | None:
        """uint32 [ceil(vocabulary / 32)], bit set: allowed; None where every token is."""
        row = None if self._inner is None else self._inner.mask()
        if self._allowed is not None:
            row = self._allowed if row is None else row & self._allowed
        if self._n_left > 0:
            longer = (self._all if row is None else row) & self._not_endings
            row = longer if longer.any() or row is None or self._inner is None else row
        if row is not None and not row.any():
            raise ConstraintError("no token that the request allows can come next")
        return row

    def advance(self, token_id: int) -> None:
        """Take in a token that was sampled under the mask."""
        self._n_left -= 1
        if self._inner is not None:
            self._inner.advance(token_id)


def _padded(vocabulary: int) -> int:
    return (vocabulary + 31) // 32 * 32


def _row(vocabulary: int, token_ids: Collection[int]) -> NDArray[np.uint32]:
    """The bits of these tokens."""
    bits = np.zeros(_padded(vocabulary), np.bool_)
    bits[np.fromiter(token_ids, np.int64, len(token_ids))] = True
    return _packed(bits)


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    return np.packbits(bits, bitorder="little").view("<u4")
