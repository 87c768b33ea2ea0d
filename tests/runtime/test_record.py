"""Completion records as bytes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from helios.contract.prepared import CompletionLayout
from helios.errors import DeviceError
from helios.runtime.record import HEADER, LANE, CompletionRecord, Submitted


def make_record(n_lanes: int = 2) -> tuple[np.ndarray, CompletionRecord]:
    pinned = np.zeros(HEADER.itemsize + n_lanes * LANE.itemsize, np.uint8)
    header = pinned[: HEADER.itemsize].view(HEADER)
    header["sequence"], header["program"], header["n_lanes"], header["frame"] = 2**40 + 7, 3, n_lanes, 1
    lanes = pinned[HEADER.itemsize :].view(LANE)
    lanes["slot"], lanes["generation"], lanes["consumed"] = [5, 2], [2**31 - 1, 1], [10, 20]
    lanes["draft_cursor"] = lanes["reserved_model"] = -1
    return pinned, CompletionRecord(pinned, CompletionLayout(0, HEADER.itemsize, LANE.itemsize, n_lanes), 8)


def test_layout_is_that_of_the_header() -> None:
    """CACHE-4: the record is ABI 6 of kernels.h: the same fields in the same order, 32 and 224 bytes."""
    text = (Path(__file__).parents[2] / "cuda_src/kernels.h").read_text()
    for dtype, name in ((HEADER, "HeliosCompletionHeader"), (LANE, "HeliosCompletionLane")):
        body = re.search(r"typedef struct \{([^}]*)\} " + name, text)
        assert body is not None
        fields = re.findall(r"^\s*(?:u?int\d+_t|float) ([^;]+);", body.group(1), re.MULTILINE)
        names = [re.sub(r"\[.*", "", field.strip()) for line in fields for field in line.split(",")]
        assert names == list(dtype.names or ())
    assert (HEADER.itemsize, LANE.itemsize) == (32, 224)


def test_lanes_are_read_as_they_stand() -> None:
    """CACHE-4: 31-bit generations and 64-bit sequences survive; candidates are read only where they were asked for."""
    pinned, record = make_record()
    lanes = pinned[HEADER.itemsize :].view(LANE)
    lanes["rank"][1], lanes["n_candidates"][1], lanes["logprob"][1] = 2, 3, -0.5
    lanes["candidate_token"][1, :3], lanes["candidate_logprob"][1, :3] = [9, 8, 7], [-0.25, -0.5, -1]
    first, second = record.read(Submitted(2**40 + 7, 3, 2, 1))
    assert (first.slot, first.generation, first.consumed, first.candidates) == (5, 2**31 - 1, 10, ())
    assert (second.rank, second.logprob) == (2, -0.5)
    assert second.candidates == ((9, -0.25), (8, -0.5), (7, -1.0))


@pytest.mark.parametrize("count", [-1, 21, 2**31 - 1])
def test_a_wild_candidate_count_reads_nothing_outside_the_lane(count: int) -> None:
    """CACHE-4: numbers of the record are bounded before they are used."""
    pinned, record = make_record()
    lanes = pinned[HEADER.itemsize :].view(LANE)
    lanes["rank"], lanes["n_candidates"] = 1, count
    assert all(len(lane.candidates) <= 20 for lane in record.read(Submitted(2**40 + 7, 3, 2, 1)))


@pytest.mark.parametrize("field", ["sequence", "program", "n_lanes", "frame"])
def test_a_record_of_another_submission_is_a_device_error(field: str) -> None:
    """CACHE-4: submission order is checked on every completion."""
    pinned, record = make_record()
    pinned[: HEADER.itemsize].view(HEADER)[field] += 1
    with pytest.raises(DeviceError, match="was submitted"):
        record.read(Submitted(2**40 + 7, 3, 2, 1))
