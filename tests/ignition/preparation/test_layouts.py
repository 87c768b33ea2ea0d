"""Weight layouts against a naive packer that places each value where `kernels.h` says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import InternalError
from helios.ignition.checkpoints.ggml_types import GgmlType, row_bytes
from helios.ignition.preparation.layouts import LAYOUTS, interleave_groups, pack, packed_nbytes

BLOCKS = st.integers(1, 3)
N_ROWS = st.integers(1, 20)
SEEDS = st.integers(0, 1 << 32)


def random_rows(type_: GgmlType, n_rows: int, n_columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n_rows, row_bytes(type_, n_columns)), dtype=np.uint8)


def naive(type_: GgmlType, raw: np.ndarray, n_columns: int) -> bytes:
    """Byte by byte from the comments in kernels.h; rows past the last are zero."""
    zero = bytes(raw.shape[1])
    rows = [bytes(row) for row in raw] + [zero] * (-len(raw) % 8)
    out = bytearray()
    for first in range(0, len(rows), 8):
        group = rows[first : first + 8]
        if type_ in (GgmlType.F32, GgmlType.F16, GgmlType.BF16):
            size = 4 if type_ == GgmlType.F32 else 2
            for column in range(n_columns):
                for row in group:
                    out += row[column * size : (column + 1) * size]
            continue
        block_nbytes = row_bytes(type_, 32)
        for start in range(0, len(group[0]), block_nbytes):
            out += naive_block(type_, [row[start : start + block_nbytes] for row in group])
    return bytes(out)


def naive_block(type_: GgmlType, blocks: list[bytes]) -> bytes:
    head = 4 if type_ == GgmlType.Q4_1 else 2
    out = bytearray()
    if type_ == GgmlType.Q8_0:
        for j in range(8):
            for block in blocks:
                out += block[head + 4 * j : head + 4 * j + 4]
    else:

        def nibble(block: bytes, column: int) -> int:
            return block[head + column] & 15 if column < 16 else block[head + column - 16] >> 4

        for j in range(4):
            for block in blocks:
                out += bytes(nibble(block, 8 * j + c) | nibble(block, 8 * j + 4 + c) << 4 for c in range(4))
    for scale in range(0, head, 2):
        for block in blocks:
            out += block[scale : scale + 2]
    return bytes(out)


@pytest.mark.parametrize("type_", list(LAYOUTS))
@settings(max_examples=20)
@given(n_rows=N_ROWS, n_blocks=BLOCKS, seed=SEEDS)
def test_packing_places_every_value_where_the_header_says(
    type_: GgmlType, n_rows: int, n_blocks: int, seed: int
) -> None:
    n_columns = 32 * n_blocks
    raw = random_rows(type_, n_rows, n_columns, seed)
    packed = pack(type_, [raw])
    assert packed.tobytes() == naive(type_, raw, n_columns)
    assert packed.nbytes == packed_nbytes(type_, n_rows, n_columns)


def test_parts_are_joined_before_they_are_grouped() -> None:
    raw = random_rows(GgmlType.Q4_0, 15, 64, 1)
    joined = pack(GgmlType.Q4_0, [raw[:3], raw[3:8], raw[8:]])
    assert joined.tobytes() == pack(GgmlType.Q4_0, [raw]).tobytes()


def test_gate_and_up_alternate_by_groups_of_eight() -> None:
    gate, up = random_rows(GgmlType.F16, 16, 32, 1), random_rows(GgmlType.F16, 16, 32, 2)
    expected = np.concatenate([gate[:8], up[:8], gate[8:], up[8:]])
    assert np.array_equal(interleave_groups(gate, up), expected)


def test_parts_that_are_not_whole_groups_do_not_interleave() -> None:
    rows = random_rows(GgmlType.F16, 12, 32, 1)
    with pytest.raises(InternalError, match="do not interleave"):
        interleave_groups(rows, rows)
