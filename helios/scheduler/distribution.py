"""A whole distribution: the logits of every token at one position, and what they say of any of them.

It knows one row of numbers, no request and no device. A log-probability has the bits that the device reports of the same token; of
equal logits the lower id is the more likely, as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOWEST_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """One token of a distribution; rank 1 is the most likely."""

    token_id: int
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """`logits` f32[vocabulary], without NaN; `log_total`: the logarithm of the sum of their exponentials."""

    logits: NDArray[np.float32]
    log_total: float

    def logprobs(self, token_ids: NDArray[Any]) -> NDArray[np.float32]:
        """f32, in the order of `token_ids`."""
        exact = self.logits[token_ids].astype(np.float64) - self.log_total
        logprobs: NDArray[np.float32] = np.maximum(exact, LOWEST_LOGPROB).astype(np.float32)
        return logprobs

    def ids_by_rank(self) -> NDArray[np.intp]:
        """Every token, most likely first."""
        return np.argsort(-self.logits, kind="stable")

    def ranked(self, token_ids: Sequence[int]) -> tuple[Ranked, ...]:
        """These tokens, each once, most likely first."""
        if not token_ids:
            return ()
        ids = np.unique(np.asarray(token_ids, np.int64))
        ranks = np.array([self._rank(token_id) for token_id in ids.tolist()])
        order = np.argsort(ranks)
        rows = zip(ids[order].tolist(), self.logprobs(ids[order]).tolist(), ranks[order].tolist(), strict=True)
        return tuple([Ranked(*row) for row in rows])

    def _rank(self, token_id: int) -> int:
        """By counting, which for the few tokens that are named takes less than a sort."""
        logit = self.logits[token_id]
        n_equal = np.count_nonzero(self.logits[:token_id] == logit)
        return int(np.count_nonzero(self.logits > logit) + n_equal) + 1
