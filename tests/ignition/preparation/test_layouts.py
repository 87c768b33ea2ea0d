"""Weight layouts against a naive packer that places each value where `kernels.h` says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import InternalError
from helios.ignition.checkpoints.ggml_types import GgmlType, row_bytes
from helios.ignition.preparation.layouts import LAYOUTS, Q12_LAYOUTS, Layout, RowForm, layout_for
from tests.kernels.q12 import stored_weights, weights_parts

BLOCKS = st.integers(1, 3)
N_ROWS = st.integers(1, 20)
SEEDS = st.integers(0, 1 << 32)


def random_rows(type_: GgmlType, n_rows: int, n_columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n_rows, row_bytes(type_, n_columns)), dtype=np.uint8)


def naive(layout: Layout, raw: np.ndarray, n_columns: int) -> bytes:
    """Byte by byte from the comments in kernels.h; rows past the last are zero."""
    type_ = layout.type
    zero = bytes(raw.shape[1])
    n_group = 16 if layout.name.endswith("g16k8") else 8
    rows = [bytes(row) for row in raw] + [zero] * (-len(raw) % n_group)
    out = bytearray()
    for first in range(0, len(rows), n_group):
        group = rows[first : first + n_group]
        if n_group == 16:
            block_nbytes = row_bytes(type_, 32)
            for start in range(0, len(group[0]), block_nbytes):
                out += naive_block_of_16(type_, [row[start : start + block_nbytes] for row in group])
            continue
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


def naive_block_of_16(type_: GgmlType, blocks: list[bytes]) -> bytes:
    head = {GgmlType.Q4_1: 4, GgmlType.Q4_0: 2, GgmlType.Q8_0: 2}.get(type_, 0)
    out = bytearray()
    for z in range(4):
        for block in blocks:
            if type_ in (GgmlType.Q4_1, GgmlType.Q4_0):
                words = [0, 0]
                for i in range(8):
                    words[i % 2] |= nibble_of(block, head, 8 * z + i) << 4 * (i // 2)
                out += words[0].to_bytes(2, "little") + words[1].to_bytes(2, "little")
            else:
                size = 1 if type_ == GgmlType.Q8_0 else 2
                out += block[head + 8 * z * size : head + 8 * (z + 1) * size]
    for scale in range(0, head, 2):
        for block in blocks:
            out += block[scale : scale + 2]
    return bytes(out)


def nibble_of(block: bytes, head: int, column: int) -> int:
    return block[head + column] & 15 if column < 16 else block[head + column - 16] >> 4


def naive_block(type_: GgmlType, blocks: list[bytes]) -> bytes:
    head = 4 if type_ == GgmlType.Q4_1 else 2
    out = bytearray()
    if type_ == GgmlType.Q8_0:
        for j in range(8):
            for block in blocks:
                out += block[head + 4 * j : head + 4 * j + 4]
    else:
        for j in range(4):
            for block in blocks:
                low, high = ([nibble_of(block, head, 8 * j + half + c) for c in range(4)] for half in (0, 4))
                out += bytes(a | b << 4 for a, b in zip(low, high, strict=True))
    for scale in range(0, head, 2):
        for block in blocks:
            out += block[scale : scale + 2]
    return bytes(out)


@pytest.mark.parametrize("layout", list(LAYOUTS.values()), ids=list(LAYOUTS))
@settings(max_examples=20)
@given(n_rows=N_ROWS, n_blocks=BLOCKS, seed=SEEDS)
def test_packing_places_every_value_where_the_header_says(
    layout: Layout, n_rows: int, n_blocks: int, seed: int
) -> None:
    n_columns = 32 * n_blocks
    raw = random_rows(layout.type, n_rows, n_columns, seed)
    packed = layout.pack([raw])
    assert packed.tobytes() == naive(layout, raw, n_columns)
    assert packed.nbytes == layout.packed_nbytes(n_rows, n_columns)


@pytest.mark.parametrize("name", ["q4_0.g8k4", "q4_0.g16k8"])
def test_parts_are_joined_before_they_are_grouped(name: str) -> None:
    raw = random_rows(GgmlType.Q4_0, 30, 64, 1)
    joined = LAYOUTS[name].pack([raw[:3], raw[3:8], raw[8:]])
    assert joined.tobytes() == LAYOUTS[name].pack([raw]).tobytes()


@pytest.mark.parametrize(("name", "n_group"), [("f16.g8", 8), ("f16.g16k8", 16)])
def test_gate_and_up_alternate_by_groups(name: str, n_group: int) -> None:
    gate, up = random_rows(GgmlType.F16, 32, 32, 1), random_rows(GgmlType.F16, 32, 32, 2)
    parts = [part[first : first + n_group] for first in range(0, 32, n_group) for part in (gate, up)]
    assert np.array_equal(LAYOUTS[name].interleave(gate, up), np.concatenate(parts))


@pytest.mark.parametrize(("name", "n_rows"), [("f16.g8", 12), ("f16.g16k8", 24)])
def test_parts_that_are_not_whole_groups_do_not_interleave(name: str, n_rows: int) -> None:
    rows = random_rows(GgmlType.F16, n_rows, 32, 1)
    with pytest.raises(InternalError, match="do not interleave"):
        LAYOUTS[name].interleave(rows, rows)


def test_a_target_for_bf16_rows_gets_their_layouts_where_they_exist() -> None:
    """Floats of 32 bits have none, and rows that are not whole blocks of 32 keep the layout of any length."""
    assert layout_for(GgmlType.Q4_1, 64, RowForm.BF16).name == "q4_1.g16k8"
    assert layout_for(GgmlType.F16, 64, RowForm.BF16).name == "f16.g16k8"
    assert layout_for(GgmlType.F16, 48, RowForm.BF16).name == "f16.g8"
    assert layout_for(GgmlType.F32, 64, RowForm.BF16).name == "f32.g8"
    assert layout_for(GgmlType.Q4_1, 64, RowForm.Q8).name == "q4_1.g8k4"
    assert layout_for(GgmlType.Q4_1, 64, RowForm.Q12).name == "w12.g16"
    assert layout_for(GgmlType.Q4_0, 96, RowForm.Q12).name == "q4_0.g8k4"
    assert layout_for(GgmlType.Q4_0, 64, RowForm.Q12, is_embedding=True).name == "q4_0.g8k4"
    assert layout_for(GgmlType.Q8_0, 64, RowForm.Q12).name == "q8_0.g8k4"


def scales_of(type_: GgmlType, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """d and m, float64 [rows, blocks, 1], and the nibbles in the order of the inputs, [rows, blocks, 32]."""
    head = 4 if type_ == GgmlType.Q4_1 else 2
    blocks = raw.reshape(len(raw), -1, head + 16)
    heads = np.ascontiguousarray(blocks[..., :head]).view(np.float16).astype(np.float64)
    nibbles = np.concatenate([blocks[..., head:] & 15, blocks[..., head:] >> 4], axis=-1)
    return heads[..., :1], heads[..., 1:] if head == 4 else -8 * heads[..., :1], nibbles


@pytest.mark.parametrize("type_", [GgmlType.Q4_1, GgmlType.Q4_0])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(16, 512), (5, 64), (33, 704), (20, 1536)])
def test_w12_holds_the_nibbles_and_rounds_their_scales_alone(type_: GgmlType, n_rows: int, n_columns: int) -> None:
    """Value by value against d*q + m: k within half of d/S, k*q + j within half a step more for each q away from 8."""
    rng = np.random.default_rng(n_columns)
    raw = stored_weights(type_, n_rows, n_columns, rng)
    raw[0] = 0
    layout = Q12_LAYOUTS[type_]
    packed = layout.pack([raw])
    assert packed.nbytes == layout.packed_nbytes(n_rows, n_columns)
    weights = weights_parts(packed, -(-n_rows // 16) * 16, n_columns)
    assert (weights.numbers[n_rows:] == 0).all()
    assert (weights.scales[n_rows:] == 0).all()
    d, m, q = scales_of(type_, raw)
    exact = (d * q + m).reshape(n_rows, n_columns)
    unit = np.repeat(weights.scales[:n_rows].astype(np.float64), 512, axis=1)[:, :n_columns]
    steps = np.abs(q.astype(int) - 8).reshape(n_rows, n_columns) * 0.5 + 0.5
    assert (np.abs(weights.numbers[:n_rows] * unit - exact) <= steps * unit * 1.0001).all()
    assert np.abs(weights.numbers).max() <= 2047
    for row in (0, n_rows - 1):
        for group, begin in enumerate(range(0, n_columns, 512)):
            blocks = slice(begin // 32, begin // 32 + 16)
            most = np.abs(d[row, blocks] * np.array([0, 15]) + m[row, blocks]).max()
            np.testing.assert_allclose(weights.scales[row, group], most / 2042, rtol=1e-6)


def test_w12_keeps_its_bound_for_every_pair_of_scales() -> None:
    """Sums of 512 products are below 2^31 only because of it: over random halves, of any size and sign."""
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 256, (512, 16 * 20), np.uint8)
    heads = rng.integers(0, 0x7C00, (512, 16, 2), np.uint16) | rng.integers(0, 2, (512, 16, 2), np.uint16) << 15
    raw.reshape(512, 16, 20)[..., :4] = heads.view(np.uint8)
    raw.reshape(512, 16, 20)[:, ::2, 4:] = 0xF0  # both extremes of a block
    numbers = weights_parts(Q12_LAYOUTS[GgmlType.Q4_1].pack([raw]), 512, 512).numbers
    assert 2040 <= np.abs(numbers).max() <= 2047


def test_scales_that_are_not_finite_make_their_group_nan() -> None:
    raw = stored_weights(GgmlType.Q4_1, 16, 704, np.random.default_rng(4))
    raw[2, 0:2] = np.array([np.inf], np.float16).view(np.uint8)
    weights = weights_parts(Q12_LAYOUTS[GgmlType.Q4_1].pack([raw]), 16, 704)
    assert np.isnan(weights.scales[2, 0])
    assert (weights.numbers[2, :512] == 0).all()
    assert np.isfinite(np.delete(weights.scales.reshape(-1), 4)).all()
