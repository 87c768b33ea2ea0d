"""Weight rows of a checkpoint rearranged into the layouts that kernels read (`cuda_src/kernels.h`, "Weight layouts").

It knows block formats and layouts, no names and no files. Packing only moves bits: no value changes, and the rows that
pad a matrix to whole groups of 8 are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from helios.errors import InternalError
from helios.ignition.checkpoints.ggml_types import GgmlType, row_bytes

Bytes = npt.NDArray[np.uint8]

GROUP = 8  # rows
_BLOCK = 32  # inputs

LAYOUTS: dict[GgmlType, str] = {
    GgmlType.Q4_1: "q4_1.g8k4",
    GgmlType.Q4_0: "q4_0.g8k4",
    GgmlType.Q8_0: "q8_0.g8k4",
    GgmlType.F32: "f32.g8",
    GgmlType.F16: "f16.g8",
    GgmlType.BF16: "bf16.g8",
}
_ELEMENT_NBYTES = {GgmlType.F32: 4, GgmlType.F16: 2, GgmlType.BF16: 2}


def packed_nbytes(type_: GgmlType, n_rows: int, n_columns: int) -> int:
    """Bytes of a packed matrix: those of its rows, padded to whole groups."""
    return -(-n_rows // GROUP) * GROUP * row_bytes(type_, n_columns)


def pack(type_: GgmlType, rows: Sequence[Bytes]) -> Bytes:
    """The matrix whose rows are those of the parts, one part after the other; a part is raw [N, bytes of a row]."""
    raw = rows[0] if len(rows) == 1 else np.concatenate(rows)
    padding = -len(raw) % GROUP
    if padding:
        raw = np.concatenate([raw, np.zeros((padding, raw.shape[1]), np.uint8)])
    return _PACKERS[type_](raw.reshape(-1, GROUP, raw.shape[1])).reshape(-1)


def interleave_groups(first: Bytes, second: Bytes) -> Bytes:
    """Raw rows of two matrices alternating by groups of 8: the order that `linear_silu_gate` takes gate and up in."""
    if first.shape != second.shape or len(first) % GROUP:
        raise InternalError(f"rows {first.shape} and {second.shape} do not interleave by groups of {GROUP}")
    groups = (part.reshape(-1, GROUP, part.shape[1]) for part in (first, second))
    return np.stack(list(groups), axis=1).reshape(-1, first.shape[1])


def _pack_floats(element_nbytes: int) -> Callable[[Bytes], Bytes]:
    def pack_floats(groups: Bytes) -> Bytes:
        elements = np.ascontiguousarray(groups).view(f"<u{element_nbytes}")  # [groups, 8, inputs]
        return np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint8)

    return pack_floats


def _pack_nibbles(n_scales: int) -> Callable[[Bytes], Bytes]:
    """Q4_0 (d) and Q4_1 (d, m): blocks of 32 with the low nibbles holding inputs 0..15 and the high ones 16..31."""

    def pack_nibbles(groups: Bytes) -> Bytes:
        head = 2 * n_scales
        blocks = groups.reshape(groups.shape[0], GROUP, -1, head + _BLOCK // 2)
        stored = np.ascontiguousarray(blocks[..., head:]).view("<u4")  # [groups, 8, blocks, 4], 4 bytes a word
        low, high = stored & 0x0F0F0F0F, stored >> 4 & 0x0F0F0F0F
        # Words of 4 inputs, ascending: the low ones hold inputs 0..15, the high ones 16..31. Vector j takes 2j and 2j+1.
        inputs = np.concatenate([low, high], axis=-1)
        vectors = inputs[..., 0::2] | inputs[..., 1::2] << 4  # [groups, 8, blocks, 4 vectors]
        return _join(vectors, blocks[..., :head])

    return pack_nibbles


def _pack_bytes(groups: Bytes) -> Bytes:
    """Q8_0: d, then 32 signed bytes."""
    blocks = groups.reshape(groups.shape[0], GROUP, -1, 2 + _BLOCK)
    return _join(np.ascontiguousarray(blocks[..., 2:]).view("<u4"), blocks[..., :2])


def _join(vectors: npt.NDArray[np.uint32], scales: Bytes) -> Bytes:
    """[groups, blocks] of: the vectors, 8 lanes of 4 bytes each, then each kind of scale for the 8 rows."""
    lanes = np.ascontiguousarray(vectors.transpose(0, 2, 3, 1)).view(np.uint8)
    halves = np.ascontiguousarray(scales).view("<u2")  # [groups, 8, blocks, kinds]
    tails = np.ascontiguousarray(halves.transpose(0, 2, 3, 1)).view(np.uint8)
    shape = (*lanes.shape[:2], -1)
    return np.concatenate([lanes.reshape(shape), tails.reshape(shape)], axis=-1)


_PACKERS: dict[GgmlType, Callable[[Bytes], Bytes]] = {
    GgmlType.Q4_1: _pack_nibbles(2),
    GgmlType.Q4_0: _pack_nibbles(1),
    GgmlType.Q8_0: _pack_bytes,
    **{type_: _pack_floats(nbytes) for type_, nbytes in _ELEMENT_NBYTES.items()},
}
