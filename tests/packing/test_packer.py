"""Bindings resolved to writes: each indexing, padding, offsets, omitted transfers, bounds."""

from __future__ import annotations

import numpy as np
import pytest

from helios.contract.enums import ElementType, Indexing, Operation, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.errors import ContractError, InternalError
from helios.packing.packer import Packer

BATCH, PACKED = 4, 8


def make_graph(*bindings: Binding) -> Graph:
    return Graph("decode_4", 0, Operation.DECODE, BATCH, 0, 1, PACKED, bindings, (), None, None, 1)


def bind(source: ValueSource, indexing: Indexing, *, offset: int = 0, padding: int = 0, constant: int = 0) -> Binding:
    return Binding("place", source, indexing, offset, padding, constant, "")


def pack(
    binding: Binding, values: dict[ValueSource, np.ndarray], *, count: int = 8, words: int = 1
) -> tuple[list[int], int]:
    """The destination's int32 words after packing over 7s, and where in the buffer the transfer ends; 0 without one."""
    destination = Destination("place", 5, 16, ElementType.I32, count, words)
    staging = np.full(16 + 4 * count, 7, np.uint8)
    words_before = staging[16:].view(np.int32)
    words_before[:] = 7
    spans = Packer(make_graph(binding), {"place": destination}, {5: staging}).pack(values)
    assert bytes(staging[:16]) == b"\x07" * 16
    assert [(span.buffer_id, span.start) for span in spans] in ([], [(5, 16)])
    return words_before.tolist(), spans[0].end if spans else 0


def test_active_rows_leave_the_inactive_tail_as_it_is() -> None:
    """CON-7: active rows omit inactive tails, and only the used part is transferred."""
    words, used = pack(bind(ValueSource.SLOT, Indexing.ACTIVE_ROW), {ValueSource.SLOT: np.array([3, 1], np.int32)})
    assert words == [3, 1, 7, 7, 7, 7, 7, 7]
    assert used == 16 + 2 * 4


def test_submission_rows_pad_the_whole_request_capacity() -> None:
    """CON-7: submission rows initialise padding over the batch capacity, and no further."""
    binding = bind(ValueSource.SLOT, Indexing.SUBMISSION_ROW, padding=-1)
    words, used = pack(binding, {ValueSource.SLOT: np.array([3, 1], np.int32)})
    assert words == [3, 1, -1, -1, 7, 7, 7, 7]
    assert used == 16 + BATCH * 4


def test_packed_tokens_follow_their_true_count() -> None:
    """CON-7: packed-token indices follow each lane's true token count."""
    tokens = np.arange(5, dtype=np.int32)
    words, used = pack(bind(ValueSource.PROMPT_TOKENS, Indexing.PACKED_TOKEN), {ValueSource.PROMPT_TOKENS: tokens})
    assert words == [0, 1, 2, 3, 4, 7, 7, 7]
    assert used == 16 + 5 * 4


def test_rows_of_several_words_are_written_whole() -> None:
    """CON-7: one indexed element may be a row of words."""
    pairs = np.array([[1, 2], [3, 4]], np.int32)
    binding = bind(ValueSource.PAGE_TABLE_UPDATES, Indexing.ACTIVE_ROW)
    words, used = pack(binding, {ValueSource.PAGE_TABLE_UPDATES: pairs}, words=2)
    assert words == [1, 2, 3, 4, 7, 7, 7, 7]
    assert used == 16 + 2 * 8


def test_offsets_are_added_to_values_and_not_to_padding() -> None:
    """CON-7: offsets and padding are separate declarations."""
    binding = bind(ValueSource.SLOT, Indexing.SUBMISSION_ROW, offset=10, padding=-1)
    words, _ = pack(binding, {ValueSource.SLOT: np.array([3], np.int32)})
    assert words[:4] == [13, -1, -1, -1]


def test_constants_are_written_once_and_always_transferred() -> None:
    """CON-6: declared integer values."""
    binding = bind(ValueSource.CONSTANT, Indexing.SCALAR, constant=41, offset=1)
    assert pack(binding, {}, count=1) == ([42], 20)


def test_an_omitted_transfer_leaves_the_bytes_as_they_are() -> None:
    """CON-7: a source that a round does not supply is not written and not transferred."""
    assert pack(bind(ValueSource.GRAMMAR_MASK, Indexing.ACTIVE_ROW), {}) == ([7] * 8, 0)


def test_too_many_values_are_refused_before_anything_is_written() -> None:
    """CON-9: staging is bounded."""
    binding = bind(ValueSource.SLOT, Indexing.ACTIVE_ROW)
    with pytest.raises(InternalError, match="9 values for SLOT"):
        pack(binding, {ValueSource.SLOT: np.arange(9, dtype=np.int32)})


def test_a_destination_outside_its_buffer_is_refused_at_start_up() -> None:
    """CON-9: extents are resolved once at start-up; the error names graph and destination."""
    destination = Destination("place", 5, 16, ElementType.I32, 9, 1)
    graph = make_graph(bind(ValueSource.SLOT, Indexing.ACTIVE_ROW))
    with pytest.raises(ContractError, match=r"decode_4.*place"):
        Packer(graph, {"place": destination}, {5: np.zeros(48, np.uint8)})
