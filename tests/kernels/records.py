"""The fixed records of kernels.h as numpy types: the product's own where it has them, so that the kernels prove those too."""

from __future__ import annotations

import numpy as np

from helios.packing.values import SAMPLING_ROW as SAMPLING
from helios.runtime.record import HEADER as COMPLETION_HEADER
from helios.runtime.record import LANE as COMPLETION_LANE
from helios.runtime.scoring import SCORE as SAMPLE

PENALTIES, LOGPROBS, BIAS_FLAG = 1, 2, 4

REQUEST = np.dtype(
    [
        ("pending_token", "<i4"),
        ("consumed", "<i4"),
        ("emitted", "<i4"),
        ("finish", "<i4"),
        ("generation", "<u4"),
        ("reserved", "<i4", 3),
    ]
)
BIAS = np.dtype([("id", "<i4"), ("value", "<f4")])
assert (SAMPLING.itemsize, REQUEST.itemsize, COMPLETION_HEADER.itemsize, COMPLETION_LANE.itemsize) == (256, 32, 32, 224)
assert SAMPLE.itemsize == 176


def sampling_row(**fields: object) -> np.void:
    """A sampling row: greedy and without limits, except for the given fields."""
    row = np.zeros((), SAMPLING)
    row["top_p"], row["repetition_penalty"], row["output_limit"] = 1, 1, 2**30
    for name, value in fields.items():
        row[name] = value
    return row[()]
