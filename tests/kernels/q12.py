"""q12 rows and w12 weights (`cuda_src/kernels.h`) read apart by a decoder of its own, and what they should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helios.ignition.checkpoints.ggml_types import GgmlType
from helios.ignition.preparation.layouts import Q12_LAYOUTS
from tests.kernels.harness import Library, int32

GROUP = 512


def n_groups(width: int) -> int:
    """Of inputs that share a scale."""
    return -(-width // GROUP)


def rows_nbytes(rows_capacity: int, width: int) -> int:
    """Bytes of q12 rows."""
    n_tiled = -(-rows_capacity // 16) * 16
    return n_tiled * width * 2 + rows_capacity * width * 5 // 4 + rows_capacity * n_groups(width) * 4


@dataclass(frozen=True)
class Q12Rows:
    """`tiles` are the numbers of the first part, `numbers` c*q of the second; `q`, `factors` and `sums` by half block."""

    tiles: np.ndarray
    q: np.ndarray
    factors: np.ndarray
    sums: np.ndarray
    scales: np.ndarray

    @property
    def numbers(self) -> np.ndarray:
        """c * q, int64 [rows, width]."""
        return (self.q.reshape(*self.factors.shape, 16) * self.factors[..., None]).reshape(self.q.shape)

    @property
    def values(self) -> np.ndarray:
        """float64 [rows, width]."""
        return self.numbers * np.repeat(self.scales.astype(np.float64), GROUP, axis=1)[:, : self.q.shape[1]]


def rows_parts(stored: np.ndarray, rows_capacity: int, n_rows: int, width: int) -> Q12Rows:
    """The first `n_rows` of q12 rows."""
    n_tiles = -(-rows_capacity // 16)
    at = n_tiles * 16 * width * 2
    tiles = stored[:at].view(np.int8).reshape(n_tiles, width // 64, 2, 16, 64).astype(np.int64)
    tiled = (tiles[:, :, 0] * 256 + tiles[:, :, 1]).transpose(0, 2, 1, 3).reshape(-1, width)
    q = stored[at : at + rows_capacity * width].view(np.int8).reshape(rows_capacity, width)
    at += rows_capacity * width
    words = stored[at : at + rows_capacity * width // 4].view(np.int16).reshape(rows_capacity, width // 32, 2, 2)
    at += rows_capacity * width // 4
    scales = stored[at:].view(np.float32).reshape(rows_capacity, -1)
    halves = (part.reshape(rows_capacity, -1)[:n_rows].astype(np.int64) for part in (words[:, :, 0], words[:, :, 1]))
    return Q12Rows(tiled[:n_rows], q[:n_rows].astype(np.int64), *halves, scales[:n_rows])


def quantised(library: Library, x: np.ndarray, rows_capacity: int) -> np.ndarray:
    """Float rows as q12 rows, by the library's kernel."""
    n_rows, width = x.shape
    padded = np.zeros((rows_capacity, width), np.float32)
    padded[:n_rows] = x
    stored = np.zeros(rows_nbytes(rows_capacity, width), np.uint8)
    library["quantize_q12.1"].launch(n_rows=int32(n_rows), x=padded, y=stored, rows_capacity=rows_capacity, width=width)
    return stored


@dataclass(frozen=True)
class W12Weights:
    """Packed, and apart: the numbers k*q + j, int64 [n_out, n_in], and float32 scales [n_out, groups of inputs]."""

    packed: np.ndarray
    numbers: np.ndarray
    scales: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """float64 [n_out, n_in]."""
        n_in = self.numbers.shape[1]
        return self.numbers * np.repeat(self.scales.astype(np.float64), GROUP, axis=1)[:, :n_in]

    def times(self, rows: Q12Rows) -> np.ndarray:
        """The product in float64."""
        return rows.values @ self.values.T


def weights_parts(packed: np.ndarray, n_out: int, n_in: int) -> W12Weights:
    """A packed matrix taken apart as the header says."""
    n_blocks = n_in // 32
    groups = packed.reshape(-(-n_out // 16), -1)
    blocks = groups[:, : n_blocks * 320].reshape(-1, n_blocks, 320)
    nibbles = blocks[..., :256].reshape(-1, n_blocks, 4, 16, 4)
    q = np.stack([nibbles & 15, nibbles >> 4], axis=4).transpose(0, 3, 1, 2, 4, 5)  # group, row, block, j, half, byte
    words = np.ascontiguousarray(blocks[..., 256:]).view(np.int16).reshape(-1, n_blocks, 2, 16).astype(np.int64)
    k, j = (words[:, :, part].transpose(0, 2, 1)[..., None] for part in (0, 1))
    numbers = k * q.reshape(*q.shape[:3], 32).astype(np.int64) + j
    scales = np.ascontiguousarray(groups[:, n_blocks * 320 :]).view(np.float32).reshape(len(groups), -1, 16)
    scales = scales.transpose(0, 2, 1).reshape(len(groups) * 16, -1)
    return W12Weights(packed, numbers.reshape(-1, n_in)[:n_out], scales[:n_out])


def stored_weights(type_: GgmlType, n_out: int, n_in: int, rng: np.random.Generator) -> np.ndarray:
    """Raw rows of Q4_1 or Q4_0 whose weights are about 0.05."""
    shape = (n_out, n_in // 32, 1)
    d = rng.uniform(0.002, 0.01, shape).astype(np.float16)
    m = rng.uniform(-0.1, 0.05, shape).astype(np.float16)
    nibbles = rng.integers(0, 256, (n_out, n_in // 32, 16), np.uint8)
    head = [d.view(np.uint8), m.view(np.uint8)] if type_ == GgmlType.Q4_1 else [d.view(np.uint8)]
    return np.concatenate([*head, nibbles], axis=-1).reshape(n_out, -1)


def random_weights(n_out: int, n_in: int, rng: np.random.Generator) -> W12Weights:
    """A matrix with weights of about 0.05."""
    raw = stored_weights(GgmlType.Q4_1, n_out, n_in, rng)
    return weights_parts(Q12_LAYOUTS[GgmlType.Q4_1].pack([raw]), n_out, n_in)
