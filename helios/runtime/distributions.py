"""Whole distributions of a round: which of its lanes ask for them, and the rows of logits that they left, lane by lane.

It knows the record of kernels.h (`distribution.1`), no destination. A sampled lane that has ended on the device leaves no row, so
rows are handed out by what the lanes emitted; a prompt's lane leaves one for each of its tokens. Each is a copy, as the pinned one
is written again two rounds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.scheduler.distribution import Distribution
from helios.scheduler.request import Token
from helios.scheduler.round import Lane, LaneCompletion


def distribution_dtype(vocabulary: int) -> np.dtype[Any]:
    """One row: HELIOS_DISTRIBUTION_NBYTES."""
    return np.dtype([("log_total", "<f8"), ("reserved", "<i4", (2,)), ("logits", "<f4", (-(-vocabulary // 4) * 4,))])


def distributed_lanes(lanes: Iterable[Lane]) -> tuple[int, ...]:
    """The indices of the sampled lanes that ask."""
    return tuple([index for index, lane in enumerate(lanes) if lane.is_distributed])


def distributed_tokens(lanes: Iterable[Lane]) -> tuple[int, ...]:
    """How many rows of a scored prefill are each lane's."""
    return tuple([lane.query_length if lane.is_scored_whole else 0 for lane in lanes])


class DistributionRecords:
    """A view on the distributions of one frame's pinned completion bytes."""

    def __init__(self, pinned: NDArray[np.uint8], vocabulary: int) -> None:
        rows: NDArray[Any] = pinned.view(distribution_dtype(vocabulary))
        self._log_totals = rows["log_total"]
        self._logits = rows["logits"][:, :vocabulary]

    def read(self, completions: Sequence[LaneCompletion], asking: Sequence[int]) -> list[LaneCompletion]:
        """The completions, with a distribution for each of the `asking` lanes that has emitted."""
        completed = list(completions)
        rows = self._rows()
        for index in asking:
            if completed[index].emitted:
                completed[index] = completed[index]._replace(distribution=next(rows))
        return completed

    def read_scored(self, scores: Iterable[tuple[Token, ...]], n_rows: Sequence[int]) -> Iterator[tuple[Token, ...]]:
        """The scores of each lane, with their distributions where the lane has rows."""
        rows = self._rows()
        for of_lane, n_of_lane in zip(scores, n_rows, strict=True):
            of_rows = list(islice(rows, n_of_lane))  # behind a prompt's last token is no score
            whole = [score._replace(distribution=row) for score, row in zip(of_lane, of_rows, strict=False)]
            yield tuple(whole) or of_lane

    def _rows(self) -> Iterator[Distribution]:
        for logits, log_total in zip(self._logits, self._log_totals, strict=True):
            yield Distribution(logits.copy(), float(log_total))
