"""Which tokens may come next besides what a grammar says: only some ids, and no ending before a least length.

It knows token ids and masks, no request. Each answer's constraint is a `TokenConstraint` of helios/scheduler/request.py around
another one, or around none; its rows are shared by the answers to one request and never written. A mask that allows nothing is a
ConstraintError and never reaches the sampler.
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
    """What holds for every answer to one request. `allowed` empty: every token. None of `endings` among the first `n_least`
    tokens. Where a grammar leaves nothing but endings the answer's form ends it, whatever is allowed and however short it is."""

    def __init__(self, vocabulary: int, allowed: Collection[int], endings: Collection[int], n_least: int) -> None:
        self.allowed = _row(vocabulary, allowed) if allowed else None
        everything = _packed(np.arange(_padded(vocabulary)) < vocabulary)
        self.not_endings = everything & ~_row(vocabulary, endings)
        self.n_least = n_least

    def start(self, inner: Constraint | None = None) -> FilteredAnswer:
        """A constraint at the beginning of an answer."""
        return FilteredAnswer(self, inner)


class FilteredAnswer:
    """The filter for one answer as it grows."""

    def __init__(self, rules: TokenFilter, inner: Constraint | None) -> None:
        self._rules = rules
        self._n_left = rules.n_least
        self._inner = inner

    def mask(self) -> NDArray[np.uint32] | None:
        """uint32 [ceil(vocabulary / 32)], bit set: allowed; None where every token is."""
        row = None if self._inner is None else self._inner.mask()
        rules = self._rules
        if rules.allowed is not None:
            row = self._narrowed(row, rules.allowed)
        if self._n_left > 0:
            row = self._narrowed(row, rules.not_endings)
        if row is not None and not row.any():
            raise ConstraintError("no token that the request allows can come next")
        return row

    def _narrowed(self, row: NDArray[np.uint32] | None, kept: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The tokens of both, or those of `row` where these are a form's endings and `kept` has none of them."""
        if row is None:
            return kept
        narrowed: NDArray[np.uint32] = row & kept
        is_form_over = self._inner is not None and not narrowed.any() and not (row & self._rules.not_endings).any()
        return row if is_form_over else narrowed

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
