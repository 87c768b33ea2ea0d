"""A round's numbers by value source: the one place that knows how scheduler messages become what programs read.

It knows rounds and the staged row layouts of kernels.h, no bytes offsets and no device. Every value is an array whose first axis is
what the binding's indexing counts (lanes, packed tokens, entries).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import ValueSource
from helios.errors import InvalidValueError

Values = dict[ValueSource, NDArray[Any]]

MAX_EOS = 16
MAX_BIAS = 1024
SAMPLING_PENALTIES, SAMPLING_LOGPROBS, SAMPLING_BIAS = 1, 2, 4
PROMPT_BIT = np.uint32(1 << 31)

# HeliosSamplingRow of kernels.h, 256 bytes.
SAMPLING_ROW = np.dtype(
    [
        ("temperature", "<f4"),
        ("top_p", "<f4"),
        ("min_p", "<f4"),
        ("repetition_penalty", "<f4"),
        ("frequency_penalty", "<f4"),
        ("presence_penalty", "<f4"),
        ("top_k", "<i4"),
        ("flags", "<u4"),
        ("seed", "<u4", (2,)),
        ("output_limit", "<i4"),
        ("n_bias", "<i4"),
        ("n_candidates", "<i4"),
        ("n_eos", "<i4"),
        ("eos", "<i4", (MAX_EOS,)),
        ("reserved", "<i4", (34,)),
    ]
)
# One logit bias entry.
BIAS_ENTRY = np.dtype([("token", "<i4"), ("value", "<f4")])


def lane_values(lanes: Sequence[tuple[int, int, int, int, int, int]]) -> Values:
    """`lanes` are (slot, generation, is_prompt, position, query_length, is_sampled). Returns int32 arrays of one value a lane."""
    table = np.array(lanes, np.int32).reshape(-1, 6)
    return {
        ValueSource.LIVE_ROW_COUNT: np.array([len(lanes)], np.int32),
        ValueSource.SLOT: table[:, 0],
        ValueSource.GENERATION: table[:, 1],
        ValueSource.MIXED_PREFILL_ROW: table[:, 2],
        ValueSource.PROMPT_POSITION: table[:, 3],
        ValueSource.QUERY_LENGTH: table[:, 4],
        ValueSource.SAMPLING_DECISION: table[:, 5],
    }


def page_update_values(updates: Sequence[tuple[int, int, int]], pages_per_slot: int) -> Values:
    """`updates` are (slot, index in the slot's table, page id)."""
    values: Values = {ValueSource.PAGE_TABLE_UPDATE_COUNT: np.array([len(updates)], np.int32)}
    if updates:
        entries = [(slot * pages_per_slot + index, page_id) for slot, index, page_id in updates]
        values[ValueSource.PAGE_TABLE_UPDATES] = np.array(entries, np.int32)
    return values


def submission_value(sequence: int, program_index: int, frame_index: int) -> NDArray[np.uint32]:
    """uint32[4] that the completion header repeats."""
    return np.array([sequence & 0xFFFFFFFF, sequence >> 32, program_index, frame_index], np.uint32)


def sampling_row(
    parameters: Mapping[str, Any], seed: int, output_limit: int, eos_tokens: Sequence[int], flags: int
) -> NDArray[Any]:
    """One SAMPLING_ROW. `parameters` holds the row's float and integer fields by name."""
    if len(eos_tokens) > MAX_EOS:
        raise InvalidValueError(f"{len(eos_tokens)} end tokens were given, the limit is {MAX_EOS}")
    row = np.zeros(1, SAMPLING_ROW)
    for name, value in parameters.items():
        row[name] = value
    row["seed"] = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    row["output_limit"] = output_limit
    row["flags"] = flags
    row["n_eos"] = len(eos_tokens)
    row["eos"][0, : len(eos_tokens)] = eos_tokens
    return row


def prompt_histogram(prompt_tokens: Sequence[int], vocabulary: int) -> NDArray[np.uint32]:
    """uint32[V]: the top bit of a word says that its token is in the prompt; output counts start at 0."""
    histogram = np.zeros(vocabulary, np.uint32)
    histogram[np.asarray(prompt_tokens, np.int64)] = PROMPT_BIT
    return histogram
