"""The fixed records of kernels.h as numpy types."""

from __future__ import annotations

import numpy as np

MAX_EOS, MAX_BIAS, MAX_CANDIDATES = 16, 1024, 20
PENALTIES, LOGPROBS, BIAS_FLAG = 1, 2, 4

SAMPLING = np.dtype(
    [
        ("temperature", "<f4"),
        ("top_p", "<f4"),
        ("min_p", "<f4"),
        ("repetition_penalty", "<f4"),
        ("frequency_penalty", "<f4"),
        ("presence_penalty", "<f4"),
        ("top_k", "<i4"),
        ("flags", "<u4"),
        ("seed", "<u4", 2),
        ("output_limit", "<i4"),
        ("n_bias", "<i4"),
        ("n_candidates", "<i4"),
        ("n_eos", "<i4"),
        ("eos", "<i4", MAX_EOS),
        ("reserved", "<i4", 34),
    ]
)
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
SAMPLE = np.dtype(
    [
        ("token", "<i4"),
        ("logprob", "<f4"),
        ("rank", "<i4"),
        ("n_candidates", "<i4"),
        ("candidate_token", "<i4", MAX_CANDIDATES),
        ("candidate_logprob", "<f4", MAX_CANDIDATES),
    ]
)
COMPLETION_HEADER = np.dtype(
    [("sequence", "<u8"), ("program", "<u4"), ("n_lanes", "<u4"), ("frame", "<u4"), ("reserved", "<u4", 3)]
)
COMPLETION_LANE = np.dtype(
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
        ("reserved", "<i4", 3),
        ("candidate_token", "<i4", MAX_CANDIDATES),
        ("candidate_logprob", "<f4", MAX_CANDIDATES),
    ]
)
assert (SAMPLING.itemsize, REQUEST.itemsize, COMPLETION_HEADER.itemsize, COMPLETION_LANE.itemsize) == (256, 32, 32, 224)


def sampling_row(**fields: object) -> np.void:
    """A sampling row: greedy and without limits, except for the given fields."""
    row = np.zeros((), SAMPLING)
    row["top_p"], row["repetition_penalty"], row["output_limit"] = 1, 1, 2**30
    for name, value in fields.items():
        row[name] = value
    return row[()]
