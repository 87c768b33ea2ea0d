"""A round's numbers by value source: the one place that knows how scheduler messages become what programs read.

It knows rounds and the staged row layouts of kernels.h, no bytes offsets and no device. Every value is an array whose first axis is
what the binding's indexing counts (lanes, packed tokens, entries).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import ValueSource
from helios.errors import InvalidValueError

Values = dict[ValueSource | str, NDArray[Any]]  # an image tensor is known by its name

MAX_EOS = 16
MAX_BIAS = 1024
SAMPLING_PENALTIES, SAMPLING_LOGPROBS, SAMPLING_BIAS = 1, 2, 4
SAMPLING_DISTRIBUTION, SAMPLING_PROMPT_DISTRIBUTION = 8, 16
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

_NONE = np.zeros(1, np.int32)


class LaneNumbers(Protocol):
    """What a lane says about its part of a round."""

    @property
    def slot(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def is_prompt(self) -> bool: ...
    @property
    def position(self) -> int: ...
    @property
    def query_length(self) -> int: ...
    @property
    def is_sampled(self) -> bool: ...
    @property
    def mask(self) -> NDArray[Any] | None: ...


class LaneTable:
    """One preallocated row of numbers a lane; its columns are what a generating program reads. `of` overwrites the last round."""

    _ROW = struct.Struct("<7i")

    def __init__(self, lanes_capacity: int) -> None:
        self._words = np.zeros((lanes_capacity, 7), "<i4")
        self._bytes = self._words.data.cast("B")
        self._count = np.zeros(1, np.int32)
        self._masks = np.zeros((lanes_capacity, 0), "<u4")  # as wide as the first mask that comes
        self._columns: dict[int, Values] = {}  # by the number of lanes

    def of(self, lanes: Iterable[LaneNumbers]) -> Values:
        """Values of one number a lane, and the masks up to the last lane that has one; views of the table, which hold until the
        next call. The mask row of a lane without a mask is whatever it was: nobody reads it."""
        pack_into, n_lanes, n_masks = self._ROW.pack_into, 0, 0
        for lane in lanes:
            mask = lane.mask
            if mask is not None:
                self._take_mask(n_lanes, mask)
                n_masks = n_lanes + 1
            pack_into(
                self._bytes,
                n_lanes * self._ROW.size,
                lane.slot,
                lane.generation,
                lane.is_prompt,
                lane.position,
                lane.query_length,
                lane.is_sampled,
                mask is not None,
            )
            n_lanes += 1
        self._count[0] = n_lanes
        columns = self._columns.get(n_lanes)
        if columns is None:
            columns = self._columns[n_lanes] = self._columns_of(n_lanes)
        values = dict(columns)
        if n_masks:
            values[ValueSource.GRAMMAR_MASK] = self._masks[:n_masks]
        return values

    def _columns_of(self, n_lanes: int) -> Values:
        slots, generations, sources, positions, lengths, decisions, masked = self._words[:n_lanes].T
        return {
            ValueSource.LIVE_ROW_COUNT: self._count,
            ValueSource.SLOT: slots,
            ValueSource.GENERATION: generations,
            ValueSource.MIXED_PREFILL_ROW: sources,
            ValueSource.PROMPT_POSITION: positions,
            ValueSource.QUERY_LENGTH: lengths,
            ValueSource.SAMPLING_DECISION: decisions,
            ValueSource.GRAMMAR_MASKED: masked,
        }

    def _take_mask(self, lane_index: int, mask: NDArray[Any]) -> None:
        if len(mask) != self._masks.shape[1]:
            self._masks = np.zeros((len(self._masks), len(mask)), "<u4")
        self._masks[lane_index] = mask


def page_update_values(updates: Sequence[tuple[int, int, int]], pages_per_slot: int) -> Values:
    """`updates` are (slot, index in the slot's table, page id): newly assigned entries only. Without any, no entry is staged."""
    if not updates:
        return {ValueSource.PAGE_TABLE_UPDATE_COUNT: _NONE}
    entries = [(slot * pages_per_slot + index, page_id) for slot, index, page_id in updates]
    return {
        ValueSource.PAGE_TABLE_UPDATE_COUNT: np.array([len(updates)], np.int32),
        ValueSource.PAGE_TABLE_UPDATES: np.array(entries, np.int32),
    }


class SubmissionWords:
    """What the transport says of a submission; the completion header repeats it. `of` overwrites the last submission's."""

    _LAYOUT = struct.Struct("<Q2I")  # sequence, program index, frame index

    def __init__(self) -> None:
        self._words = np.zeros(4, "<u4")

    def of(self, sequence: int, program_index: int, frame_index: int) -> NDArray[np.uint32]:
        """uint32[4]."""
        self._LAYOUT.pack_into(self._words.data, 0, sequence, program_index, frame_index)
        return self._words


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
