"""Reading a completion record (ABI 6) from pinned memory.

It knows the byte layout of kernels.h and turns it into plain numbers; `scheduler/completion.py` decides whether to believe them.
What every round has is unpacked without numpy, whose code is out of the cache after each round of the device.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from helios.contract.prepared import CompletionLayout
from helios.errors import DeviceError
from helios.runtime.distributions import DistributionRecords
from helios.runtime.scoring import MAX_CANDIDATES, ScoreRecords, Targets
from helios.scheduler.round import LaneCompletion

HEADER = np.dtype(
    [("sequence", "<u8"), ("program", "<u4"), ("n_lanes", "<u4"), ("frame", "<u4"), ("reserved", "<u4", (3,))]
)
LANE = np.dtype(
    [
        ("slot", "<i4"),
        ("generation", "<u4"),
        ("offered", "<i4"),
        ("accepted", "<i4"),
        ("emitted", "<i4"),
        ("consumed", "<i4"),
        ("draft_cursor", "<i4"),
        ("reserved_model", "<i4"),
        ("finish", "<i4"),
        ("token", "<i4"),
        ("logprob", "<f4"),
        ("rank", "<i4"),
        ("n_candidates", "<i4"),
        ("reserved", "<i4", (3,)),
        ("candidate_token", "<i4", (MAX_CANDIDATES,)),
        ("candidate_logprob", "<f4", (MAX_CANDIDATES,)),
    ]
)
_HEADER_NUMBERS = struct.Struct("<Q3I")  # sequence to frame
_N_INTEGERS = 10  # the leading fields that every completion needs; the log-probability and the rank follow
_RANK = _N_INTEGERS + 1
_LANE_NUMBERS = struct.Struct(f"<{_N_INTEGERS}ifi{LANE.itemsize - (_N_INTEGERS + 2) * 4}x")


class Submitted(NamedTuple):
    """What a frame was submitted with, to be found again in its completion's header. `targets`: of a scored prefill.
    `asking`: sampled lanes that ask for distributions; `n_distributed`: tokens of each lane that does so for its prompt."""

    sequence: int
    program: int
    n_lanes: int
    frame: int
    targets: Targets = ()
    asking: tuple[int, ...] = ()
    n_distributed: tuple[int, ...] = ()


class CompletionRecord:
    """A view on one frame's pinned completion bytes."""

    def __init__(self, pinned: NDArray[np.uint8], layout: CompletionLayout, vocabulary: int) -> None:
        lanes = pinned[layout.header_nbytes : layout.scores_offset]
        self._header = pinned.data
        self._lanes: NDArray[Any] = lanes.view(LANE)
        self._lane_bytes = lanes.data
        self._scores = ScoreRecords(pinned[layout.scores_offset : layout.distributions_offset])
        sampled = pinned[layout.distributions_offset : layout.prompt_distributions_offset]
        scored = pinned[layout.prompt_distributions_offset : layout.nbytes]
        self._distributions = DistributionRecords(sampled, vocabulary)
        self._prompt_distributions = DistributionRecords(scored, vocabulary)

    def read(self, submitted: Submitted) -> list[LaneCompletion]:
        """The record's lanes. Raises DeviceError when the header is not that of `submitted`."""
        found = _HEADER_NUMBERS.unpack_from(self._header)
        if found != submitted[:4]:
            raise DeviceError(f"completion {Submitted(*found)} arrived, {submitted} was submitted")
        rows = _LANE_NUMBERS.iter_unpack(self._lane_bytes[: submitted.n_lanes * LANE.itemsize])
        lanes = [
            self._observed(index, numbers) if numbers[_RANK] else LaneCompletion(*numbers[:_N_INTEGERS])
            for index, numbers in enumerate(rows)
        ]
        if submitted.asking:
            lanes = self._distributions.read(lanes, submitted.asking)
        if not submitted.targets:
            return lanes
        scores = self._prompt_distributions.read_scored(self._scores.read(submitted.targets), submitted.n_distributed)
        return [lane._replace(scores=of_lane) for lane, of_lane in zip(lanes, scores, strict=True)]

    def _observed(self, index: int, numbers: tuple[Any, ...]) -> LaneCompletion:
        """A lane with log-probabilities."""
        lane = self._lanes[index]
        n_candidates = min(max(int(lane["n_candidates"]), 0), MAX_CANDIDATES)
        ids, logprobs = (lane[f"candidate_{name}"][:n_candidates].tolist() for name in ("token", "logprob"))
        return LaneCompletion(*numbers)._replace(candidates=tuple(zip(ids, logprobs, strict=True)))
