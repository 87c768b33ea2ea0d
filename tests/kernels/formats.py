"""Random weights in every stored format: the raw rows of a checkpoint, the packed layout, and the values in float64.

The values come from a decoder of its own, so a mistake in packing or in a kernel shows against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helios.ignition.preparation.layouts import LAYOUTS, RowForm

ALL = list(LAYOUTS)
QUANTISED = [name for name in ALL if LAYOUTS[name].reads == RowForm.Q8]
FLOATS = [name for name in ALL if LAYOUTS[name].reads == RowForm.FLOAT]
BF16_ROWS = [name for name in ALL if LAYOUTS[name].reads == RowForm.BF16]


@dataclass(frozen=True)
class Weights:
    """A matrix: `raw` as stored, `packed` as a kernel reads it, `values` float64 [n_out, n_in].

    `offsets` float64 [n_out, n_blocks] is the part of a block's weights that meets the stored sum of the activations: m, or -8d.
    """

    raw: np.ndarray
    packed: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


def random_weights(layout: str, n_out: int, n_in: int, rng: np.random.Generator) -> Weights:
    """A matrix with weights of about 0.05."""
    raw, values, offsets = _DECODERS[layout.split(".", maxsplit=1)[0]](n_out, n_in, rng)
    return Weights(raw, LAYOUTS[layout].pack([raw]), values, offsets)


def _halves(shape: tuple[int, ...], low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(low, high, shape).astype(np.float16)


_Decoded = tuple[np.ndarray, np.ndarray, np.ndarray]


def _nibbles(n_out: int, n_in: int, has_offset: bool, rng: np.random.Generator) -> _Decoded:
    n_blocks = n_in // 32
    d = _halves((n_out, n_blocks, 1), 0.002, 0.01, rng)
    m = _halves((n_out, n_blocks, 1), -0.1, 0.05, rng)
    stored = rng.integers(0, 256, (n_out, n_blocks, 16), np.uint8)
    q = np.concatenate([stored & 15, stored >> 4], axis=-1).astype(np.float64)
    offsets = m.astype(np.float64) if has_offset else -8 * d.astype(np.float64)
    values = d.astype(np.float64) * q + offsets
    head = [d.view(np.uint8), m.view(np.uint8)] if has_offset else [d.view(np.uint8)]
    return np.concatenate([*head, stored], axis=-1).reshape(n_out, -1), values.reshape(n_out, n_in), offsets[..., 0]


def _bytes(n_out: int, n_in: int, rng: np.random.Generator) -> _Decoded:
    n_blocks = n_in // 32
    d = _halves((n_out, n_blocks, 1), 0.0002, 0.001, rng)
    q = rng.integers(-128, 128, (n_out, n_blocks, 32)).astype(np.int8)
    values = d.astype(np.float64) * q.astype(np.float64)
    raw = np.concatenate([d.view(np.uint8), q.view(np.uint8)], axis=-1)
    return raw.reshape(n_out, -1), values.reshape(n_out, n_in), np.zeros((n_out, n_blocks))


def _floats(n_out: int, n_in: int, dtype: str, rng: np.random.Generator) -> _Decoded:
    exact = (rng.standard_normal((n_out, n_in)) * 0.05).astype(np.float32)
    no_offsets = np.zeros((n_out, n_in // 32))
    if dtype == "bf16":
        words = (exact.view(np.uint32) >> 16).astype(np.uint16)
        return words.view(np.uint8), (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64), no_offsets
    stored = exact.astype(dtype)
    return stored.view(np.uint8), stored.astype(np.float64), no_offsets


_DECODERS: dict[str, Callable[[int, int, np.random.Generator], _Decoded]] = {
    "q4_1": lambda n, k, rng: _nibbles(n, k, True, rng),
    "q4_0": lambda n, k, rng: _nibbles(n, k, False, rng),
    "q8_0": _bytes,
    "f32": lambda n, k, rng: _floats(n, k, "float32", rng),
    "f16": lambda n, k, rng: _floats(n, k, "float16", rng),
    "bf16": lambda n, k, rng: _floats(n, k, "bf16", rng),
}


def bf16_rows_nbytes(rows_capacity: int, width: int) -> int:
    """Bytes of activation rows in bf16."""
    return rows_capacity * width * 2 + rows_capacity * width // 8


def bf16_rows_parts(stored: np.ndarray, rows_capacity: int, n_rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n_rows, width] and the sums, float32 [n_rows, blocks], of activation rows in bf16."""
    words = stored.view(np.uint16)[: n_rows * width].astype(np.uint32) << 16
    sums = stored[2 * rows_capacity * width :].view(np.float32)[: n_rows * (width // 32)]
    return words.view(np.float32).reshape(n_rows, width), sums.reshape(n_rows, -1)


def q8_rows_nbytes(rows_capacity: int, width: int) -> int:
    """Bytes of quantised activation rows."""
    return rows_capacity * width * 3 // 2


def q8_rows_values(stored: np.ndarray, rows_capacity: int, n_rows: int, width: int) -> np.ndarray:
    """Quantised activation rows as float64 [n_rows, width]."""
    q, scales = q8_rows_parts(stored, rows_capacity, n_rows, width)
    return (q.astype(np.float64) * scales[..., :2, None].astype(np.float64)).reshape(n_rows, width)


def q8_rows_parts(stored: np.ndarray, rows_capacity: int, n_rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 [n_rows, blocks, 2 halves, 16] and float32 [n_rows, blocks, 4] of quantised activation rows."""
    n_blocks, n = width // 32, n_rows
    q = stored.view(np.int8)[: n * width].reshape(n_blocks, n, 2, 16).transpose(1, 0, 2, 3)
    scales = stored[rows_capacity * width :].view(np.float32)[: n_blocks * n * 4].reshape(n_blocks, n, 4)
    return q, scales.transpose(1, 0, 2)
