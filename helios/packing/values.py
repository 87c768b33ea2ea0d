"""A round's numbers by value source: the one place that knows how scheduler messages become what programs read.

It knows rounds and the staged row layouts of kernels.h, no bytes offsets and no device. Every value is an array whose first axis is
what the binding's indexing counts (lanes, packed tokens, entries).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
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


_ROUND = struct.Struct("<3iQ2I")  # zero, lanes, page updates, submission: sequence, program index, frame index
_ROUND_WORDS = {
    ValueSource.LIVE_ROW_COUNT: slice(1, 2),
    ValueSource.PAGE_TABLE_UPDATE_COUNT: slice(2, 3),
    ValueSource.SUBMISSION: slice(3, 7),
}
_N_ROUND_WORDS = _ROUND.size // 4
_LANE_COLUMNS = (
    ValueSource.SLOT,
    ValueSource.GENERATION,
    ValueSource.MIXED_PREFILL_ROW,
    ValueSource.PROMPT_POSITION,
    ValueSource.QUERY_LENGTH,
    ValueSource.SAMPLING_DECISION,
    ValueSource.GRAMMAR_MASKED,
)
_LANE = struct.Struct(f"<{len(_LANE_COLUMNS)}i")
ZERO_WORD = 0  # the word of RoundWords that is always zero
WORD_SOURCES = frozenset((*_ROUND_WORDS, *_LANE_COLUMNS))


class RoundWords:
    """What every generating program reads of a round, as words: some of the round, then a row for each of its `n_lanes`. `of`
    overwrites the last round's in `array`; `positions` says where in it they are."""

    def __init__(self, lanes_capacity: int) -> None:
        self.n_lanes = 0
        self.array = np.zeros(_N_ROUND_WORDS + len(_LANE_COLUMNS) * lanes_capacity, "<i4")
        self._bytes = self.array.data.cast("B")
        self._masks = np.zeros((lanes_capacity, 0), "<u4")  # as wide as the first mask that comes
        self._views: dict[int, Values] = {}  # by the number of lanes

    def of(
        self, lanes: Sequence[LaneNumbers], n_page_updates: int = 0, submission: tuple[int, int, int] = (0, 0, 0)
    ) -> Values:
        """The words by source, and the masks up to the last lane that has one; views, which hold until the next call. The mask row
        of a lane without a mask is whatever it was: nobody reads it. `submission`: sequence, program index, frame index."""
        self.n_lanes = n_lanes = len(lanes)
        _ROUND.pack_into(self._bytes, 0, 0, n_lanes, n_page_updates, *submission)
        pack_into, words, offset, n_masks = _LANE.pack_into, self._bytes, _ROUND.size, 0
        for index, lane in enumerate(lanes):
            mask = lane.mask
            if mask is not None:
                self._take_mask(index, mask)
                n_masks = index + 1
            pack_into(
                words,
                offset,
                lane.slot,
                lane.generation,
                lane.is_prompt,
                lane.position,
                lane.query_length,
                lane.is_sampled,
                mask is not None,
            )
            offset += _LANE.size
        views = self._views.get(n_lanes)
        if views is None:
            views = {source: self.array[self.positions(source, n_lanes)] for source in WORD_SOURCES}
            self._views[n_lanes] = views
        values = dict(views)
        if n_masks:
            values[ValueSource.GRAMMAR_MASK] = self._masks[:n_masks]
        return values

    @staticmethod
    def positions(source: ValueSource, n_lanes: int) -> slice:
        """Where in `array` the words of one of WORD_SOURCES are."""
        if source in _ROUND_WORDS:
            return _ROUND_WORDS[source]
        first, n_columns = _N_ROUND_WORDS + _LANE_COLUMNS.index(source), len(_LANE_COLUMNS)
        return slice(first, first + n_columns * n_lanes, n_columns)

    def _take_mask(self, lane_index: int, mask: NDArray[Any]) -> None:
        if len(mask) != self._masks.shape[1]:
            self._masks = np.zeros((len(self._masks), len(mask)), "<u4")
        self._masks[lane_index] = mask


def page_entries(updates: Sequence[tuple[int, int, int]], pages_per_slot: int) -> NDArray[np.int32]:
    """int32[n, 2]. `updates` are (slot, index in the slot's table, page id): newly assigned entries only."""
    return np.array([(slot * pages_per_slot + index, page_id) for slot, index, page_id in updates], np.int32)


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
