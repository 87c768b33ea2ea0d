"""Weight rows of a checkpoint rearranged into the layouts that kernels read (`cuda_src/kernels.h`, "Weight layouts").

It knows block formats and layouts, no names and no files. Packing only moves bits, except that w12 rounds scales; the rows
that pad a matrix to whole groups are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from helios.errors import InternalError
from helios.ignition.checkpoints.ggml_types import GgmlType, row_bytes

Bytes = npt.NDArray[np.uint8]

_BLOCK = 32  # inputs
_LANE = 8  # inputs of a row that lie side by side in g16k8
_SCALE_GROUP = 512  # inputs that share a scale in w12
_MOST = 2042  # of the numbers of w12 before k and j are rounded, which adds less than 5: they stay below 2,047


class RowForm(StrEnum):
    """How the activations of a linear map are stored: floats, 8-bit blocks with scales, 12-bit numbers, or bf16."""

    FLOAT = "float"
    Q8 = "q8"
    Q12 = "q12"
    BF16 = "bf16"


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of one block format in groups of `group`; their kernels read activations in the form `reads`."""

    name: str
    type: GgmlType
    group: int
    reads: RowForm
    arrange: Callable[[Bytes], Bytes]  # of raw [groups, rows of a group, bytes of a row]
    row_nbytes: Callable[[GgmlType, int], int] = row_bytes  # of a packed row of so many columns

    def packed_nbytes(self, n_rows: int, n_columns: int) -> int:
        """Bytes of a packed matrix: those of its rows, padded to whole groups."""
        return -(-n_rows // self.group) * self.group * self.row_nbytes(self.type, n_columns)

    def pack(self, rows: Sequence[Bytes]) -> Bytes:
        """The matrix whose rows are those of the parts, one part after the other; a part is raw [N, bytes of a row]."""
        raw = rows[0] if len(rows) == 1 else np.concatenate(rows)
        padding = -len(raw) % self.group
        if padding:
            raw = np.concatenate([raw, np.zeros((padding, raw.shape[1]), np.uint8)])
        return self.arrange(raw.reshape(-1, self.group, raw.shape[1])).reshape(-1)

    def interleave(self, first: Bytes, second: Bytes) -> Bytes:
        """Raw rows of two matrices alternating by groups: the order that `linear_silu_gate` takes gate and up in."""
        if first.shape != second.shape or len(first) % self.group:
            raise InternalError(f"rows {first.shape} and {second.shape} do not interleave by groups of {self.group}")
        groups = (part.reshape(-1, self.group, part.shape[1]) for part in (first, second))
        return np.stack(list(groups), axis=1).reshape(-1, first.shape[1])


def layout_for(type_: GgmlType, n_columns: int, form: RowForm, *, is_embedding: bool = False) -> Layout:
    """The layout of a matrix on a target whose linear maps are fastest with activations in `form`. Rows of an embedding are read
    one by one, as they are stored: w12 is not for them."""
    if form == RowForm.Q12 and type_ in Q12_LAYOUTS and n_columns % (2 * _BLOCK) == 0 and not is_embedding:
        return Q12_LAYOUTS[type_]
    if form == RowForm.BF16 and type_ in _BF16_LAYOUTS and n_columns % _BLOCK == 0:
        return _BF16_LAYOUTS[type_]
    return _Q8_LAYOUTS[type_]


# Groups of 8: [groups, blocks] of vectors, a lane a row ---------------------------------------------------------------


def _arrange_elements(element_nbytes: int) -> Callable[[Bytes], Bytes]:
    def arrange(groups: Bytes) -> Bytes:
        elements = np.ascontiguousarray(groups).view(f"<u{element_nbytes}")  # [groups, 8, inputs]
        return np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint8)

    return arrange


def _arrange_nibbles(n_scales: int) -> Callable[[Bytes], Bytes]:
    """Q4_0 (d) and Q4_1 (d, m): blocks of 32 with the low nibbles holding inputs 0..15 and the high ones 16..31."""

    def arrange(groups: Bytes) -> Bytes:
        head = 2 * n_scales
        blocks = groups.reshape(*groups.shape[:2], -1, head + _BLOCK // 2)
        stored = np.ascontiguousarray(blocks[..., head:]).view("<u4")  # [groups, 8, blocks, 4], 4 bytes a word
        low, high = stored & 0x0F0F0F0F, stored >> 4 & 0x0F0F0F0F
        # Words of 4 inputs, ascending: the low ones hold inputs 0..15, the high ones 16..31. Vector j takes 2j and 2j+1.
        inputs = np.concatenate([low, high], axis=-1)
        vectors = inputs[..., 0::2] | inputs[..., 1::2] << 4  # [groups, 8, blocks, 4 vectors]
        return _join(vectors, blocks[..., :head])

    return arrange


def _arrange_bytes(lane_nbytes: int) -> Callable[[Bytes], Bytes]:
    """Q8_0: d, then 32 signed bytes, `lane_nbytes` of them to a lane."""

    def arrange(groups: Bytes) -> Bytes:
        blocks = groups.reshape(*groups.shape[:2], -1, 2 + _BLOCK)
        return _join(np.ascontiguousarray(blocks[..., 2:]).view(f"<u{lane_nbytes}"), blocks[..., :2])

    return arrange


# Groups of 16: [groups, blocks] of lanes (z, row), 8 inputs a lane ----------------------------------------------------


def _arrange_lane_elements(element_nbytes: int) -> Callable[[Bytes], Bytes]:
    def arrange(groups: Bytes) -> Bytes:
        n_groups, n_rows, _ = groups.shape
        lanes = groups.reshape(n_groups, n_rows, -1, _BLOCK // _LANE, _LANE * element_nbytes)
        return np.ascontiguousarray(lanes.transpose(0, 2, 3, 1, 4))

    return arrange


def _arrange_lane_nibbles(n_scales: int) -> Callable[[Bytes], Bytes]:
    """A lane is two words p of 16 bits: the nibble at bits 4j of word p is input 2j + p of the lane."""

    def arrange(groups: Bytes) -> Bytes:
        head = 2 * n_scales
        blocks = groups.reshape(*groups.shape[:2], -1, head + _BLOCK // 2)
        stored = np.ascontiguousarray(blocks[..., head:])
        inputs = np.concatenate([stored & 15, stored >> 4], axis=-1)  # [groups, 16, blocks, 32]
        pairs = inputs.reshape(*inputs.shape[:3], _BLOCK // _LANE, 2, 2, 2)  # z, byte of a word, nibble of the byte, p
        words = np.moveaxis(pairs[..., 0, :] | pairs[..., 1, :] << 4, -1, -2)  # z, p, byte of a word
        lanes = np.ascontiguousarray(words).reshape(*inputs.shape[:3], _BLOCK // _LANE, 4)
        return _join(lanes.view("<u4")[..., 0], blocks[..., :head])

    return arrange


# w12: nibbles as in g8k4, whole-number scales of a block, and a float for every _SCALE_GROUP inputs ----------------------


def _arrange_w12(n_scales: int) -> Callable[[Bytes], Bytes]:
    arrange_nibbles = _arrange_nibbles(n_scales)

    def arrange(groups: Bytes) -> Bytes:
        n_groups, n_rows, _ = groups.shape
        head = 2 * n_scales
        blocks = groups.reshape(n_groups, n_rows, -1, head + _BLOCK // 2)
        n_blocks = blocks.shape[2]
        heads = np.ascontiguousarray(blocks[..., :head]).view("<f2").astype(np.float64)
        d = heads[..., :1]
        m = heads[..., 1:] if n_scales == 2 else -8 * d
        scale, multipliers, offsets = _whole_scales(d[..., 0], m[..., 0])
        vectors = arrange_nibbles(groups)[..., : 4 * 4 * n_rows]
        words = (
            np.stack([multipliers, offsets], axis=2).transpose(0, 3, 2, 1).astype("<i2")
        )  # [groups, blocks, 2, rows]
        tails = np.ascontiguousarray(words).view(np.uint8).reshape(n_groups, n_blocks, -1)
        scales = np.ascontiguousarray(scale.transpose(0, 2, 1)).view(np.uint8).reshape(n_groups, -1)
        lines = np.concatenate([vectors, tails], axis=-1).reshape(n_groups, -1)
        return np.concatenate([lines, scales], axis=-1)

    return arrange


_Floats = npt.NDArray[np.float64]


def _whole_scales(d: _Floats, m: _Floats) -> tuple[npt.NDArray[np.float32], _Floats, _Floats]:
    """S of each group of inputs, k and j of each block, where d*q + m is about S * (k*q + j); all [groups, rows, blocks].

    j is centred on q = 8, where the rounding of k costs least. A scale that is not finite makes a NaN of its group.
    """
    n_blocks, n_together = d.shape[2], _SCALE_GROUP // _BLOCK
    most = np.maximum(np.abs(m), np.abs(15 * d + m))
    most = np.pad(most, ((0, 0), (0, 0), (0, -n_blocks % n_together))).reshape(*d.shape[:2], -1, n_together).max(axis=3)
    scale = (most / _MOST).astype("<f4")
    scale[~np.isfinite(scale)] = np.nan
    unit = np.repeat(scale.astype(np.float64), n_together, axis=2)[..., :n_blocks]
    is_number = unit > 0
    inverse = np.divide(1, unit, out=np.zeros_like(unit), where=is_number)
    d, m = np.where(is_number, d, 0), np.where(is_number, m, 0)
    multipliers = np.rint(d * inverse)
    return scale, multipliers, np.rint((m + 8 * d) * inverse) - 8 * multipliers


def _w12_row_nbytes(_type: GgmlType, n_columns: int) -> int:
    """Nibbles, two 16-bit words for a block, and the floats."""
    return n_columns // 2 + n_columns // _BLOCK * 4 + -(-n_columns // _SCALE_GROUP) * 4


def _join(vectors: npt.NDArray[np.unsignedinteger], scales: Bytes) -> Bytes:
    """[groups, blocks] of: the vectors, a lane for each row of the group, then each kind of scale for the rows."""
    lanes = np.ascontiguousarray(vectors.transpose(0, 2, 3, 1)).view(np.uint8)
    halves = np.ascontiguousarray(scales).view("<u2")  # [groups, rows, blocks, kinds]
    tails = np.ascontiguousarray(halves.transpose(0, 2, 3, 1)).view(np.uint8)
    shape = (*lanes.shape[:2], -1)
    return np.concatenate([lanes.reshape(shape), tails.reshape(shape)], axis=-1)


_Q8_LAYOUTS = {
    layout.type: layout
    for layout in (
        Layout("q4_1.g8k4", GgmlType.Q4_1, 8, RowForm.Q8, _arrange_nibbles(2)),
        Layout("q4_0.g8k4", GgmlType.Q4_0, 8, RowForm.Q8, _arrange_nibbles(1)),
        Layout("q8_0.g8k4", GgmlType.Q8_0, 8, RowForm.Q8, _arrange_bytes(4)),
        Layout("f32.g8", GgmlType.F32, 8, RowForm.FLOAT, _arrange_elements(4)),
        Layout("f16.g8", GgmlType.F16, 8, RowForm.FLOAT, _arrange_elements(2)),
        Layout("bf16.g8", GgmlType.BF16, 8, RowForm.FLOAT, _arrange_elements(2)),
    )
}
_BF16_LAYOUTS = {
    layout.type: layout
    for layout in (
        Layout("q4_1.g16k8", GgmlType.Q4_1, 16, RowForm.BF16, _arrange_lane_nibbles(2)),
        Layout("q4_0.g16k8", GgmlType.Q4_0, 16, RowForm.BF16, _arrange_lane_nibbles(1)),
        Layout("q8_0.g16k8", GgmlType.Q8_0, 16, RowForm.BF16, _arrange_bytes(_LANE)),
        Layout("f16.g16k8", GgmlType.F16, 16, RowForm.BF16, _arrange_lane_elements(2)),
        Layout("bf16.g16k8", GgmlType.BF16, 16, RowForm.BF16, _arrange_lane_elements(2)),
    )
}
Q12_LAYOUTS = {
    GgmlType.Q4_1: Layout("w12.g16", GgmlType.Q4_1, 16, RowForm.Q12, _arrange_w12(2), _w12_row_nbytes),
    GgmlType.Q4_0: Layout("w12.g16", GgmlType.Q4_0, 16, RowForm.Q12, _arrange_w12(1), _w12_row_nbytes),
}
LAYOUTS = {layout.name: layout for family in (_Q8_LAYOUTS, _BF16_LAYOUTS) for layout in family.values()}
