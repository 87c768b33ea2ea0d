"""The element types of ggml: which there are, how their blocks are sized, and how the readable ones become float32.

It knows no file. A row always is a whole number of blocks; sizes are known for every type, so that a layout can be
checked even where the values cannot be read, and values follow ggml's own reference arithmetic bit for bit.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from helios.errors import CheckpointError

if TYPE_CHECKING:
    from helios.ignition.checkpoints.gguf import GgufTensor


class GgmlType(enum.IntEnum):
    """Numbers as they stand in files. 4, 5, 31-33 and 36-38 were withdrawn by ggml and are unknown here."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39


# (elements, bytes) of one block, from the struct sizes in ggml-common.h.
_BLOCKS: dict[GgmlType, tuple[int, int]] = {
    GgmlType.F32: (1, 4),
    GgmlType.F16: (1, 2),
    GgmlType.Q4_0: (32, 18),
    GgmlType.Q4_1: (32, 20),
    GgmlType.Q5_0: (32, 22),
    GgmlType.Q5_1: (32, 24),
    GgmlType.Q8_0: (32, 34),
    GgmlType.Q8_1: (32, 40),
    GgmlType.Q2_K: (256, 84),
    GgmlType.Q3_K: (256, 110),
    GgmlType.Q4_K: (256, 144),
    GgmlType.Q5_K: (256, 176),
    GgmlType.Q6_K: (256, 210),
    GgmlType.Q8_K: (256, 292),
    GgmlType.IQ2_XXS: (256, 66),
    GgmlType.IQ2_XS: (256, 74),
    GgmlType.IQ3_XXS: (256, 98),
    GgmlType.IQ1_S: (256, 50),
    GgmlType.IQ4_NL: (32, 18),
    GgmlType.IQ3_S: (256, 110),
    GgmlType.IQ2_S: (256, 82),
    GgmlType.IQ4_XS: (256, 136),
    GgmlType.I8: (1, 1),
    GgmlType.I16: (1, 2),
    GgmlType.I32: (1, 4),
    GgmlType.I64: (1, 8),
    GgmlType.F64: (1, 8),
    GgmlType.IQ1_M: (256, 56),
    GgmlType.BF16: (1, 2),
    GgmlType.TQ1_0: (256, 54),
    GgmlType.TQ2_0: (256, 66),
    GgmlType.MXFP4: (32, 17),
}


def block_elements(type_: GgmlType) -> int:
    """Elements of one block: a row's length is a multiple of it."""
    return _BLOCKS[type_][0]


def row_bytes(type_: GgmlType, n_columns: int) -> int:
    """Bytes of a row of `n_columns` elements, which must be whole blocks."""
    n_elements, n_bytes = _BLOCKS[type_]
    return n_columns // n_elements * n_bytes


def _blocks(raw: npt.NDArray[np.uint8], type_: GgmlType) -> npt.NDArray[np.uint8]:
    return raw.reshape(raw.shape[0], -1, _BLOCKS[type_][1])


def _scales(blocks: npt.NDArray[np.uint8], offset: int) -> npt.NDArray[np.float32]:
    """The fp16 at `offset` of each block: [rows, blocks, 1]."""
    return np.ascontiguousarray(blocks[..., offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """16 bytes to 32 values: the low nibbles are elements 0..15, the high ones 16..31."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=-1)


def _from_f32(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(raw).view("<f4").astype(np.float32)


def _from_f16(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _from_bf16(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return (np.ascontiguousarray(raw).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _from_q8_0(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    blocks = _blocks(raw, GgmlType.Q8_0)
    return np.ascontiguousarray(blocks[..., 2:]).view(np.int8).astype(np.float32) * _scales(blocks, 0)


def _from_q4_0(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    blocks = _blocks(raw, GgmlType.Q4_0)
    return (_nibbles(blocks[..., 2:]).astype(np.float32) - np.float32(8)) * _scales(blocks, 0)


def _from_q4_1(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    blocks = _blocks(raw, GgmlType.Q4_1)
    return _nibbles(blocks[..., 4:]).astype(np.float32) * _scales(blocks, 0) + _scales(blocks, 2)


_TO_FLOAT: dict[GgmlType, Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]] = {
    GgmlType.F32: _from_f32,
    GgmlType.F16: _from_f16,
    GgmlType.BF16: _from_bf16,
    GgmlType.Q8_0: _from_q8_0,
    GgmlType.Q4_0: _from_q4_0,
    GgmlType.Q4_1: _from_q4_1,
}

READABLE_TYPES = frozenset(_TO_FLOAT)


def require_readable(name: str, type_: GgmlType) -> None:
    """Raise CheckpointError, naming tensor and type, unless the values of `type_` can be read."""
    if type_ not in READABLE_TYPES:
        readable = ", ".join(sorted(known.name for known in READABLE_TYPES))
        raise CheckpointError(
            f"tensor {name!r} has type {type_.name}, which this build does not read", hint=f"it reads {readable}"
        )


def dequantize(tensor: GgufTensor) -> npt.NDArray[np.float32]:
    """The tensor's values as a new float32 array of `tensor.shape`."""
    require_readable(tensor.name, tensor.type)
    return _TO_FLOAT[tensor.type](tensor.raw).reshape(tensor.shape)
