"""rope_kv in both pairings: rotation, query scale, and the write into pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import REFUSED, Library, counts, int32, on_every_target
from tests.kernels.paged import FORMATS, Cache

N_POSITIONS = 64


def rope_table(n_rot: int, n_positions: int = N_POSITIONS) -> np.ndarray:
    angles = np.outer(np.arange(n_positions), 10000.0 ** (-np.arange(n_rot // 2) / max(n_rot // 2, 1)))
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def rotated(x: np.ndarray, position: int, n_rot: int, is_interleaved: bool) -> np.ndarray:
    """x [heads, head_dim] in float64."""
    half = n_rot // 2
    first = np.arange(half) * 2 if is_interleaved else np.arange(half)
    second = first + 1 if is_interleaved else first + half
    cos, sin = (rope_table(n_rot)[position, :, i].astype(np.float64) for i in (0, 1))
    out = x.astype(np.float64).copy()
    out[:, first] = x[:, first] * cos - x[:, second] * sin
    out[:, second] = x[:, first] * sin + x[:, second] * cos
    return out


def run_rope(
    library: Library,
    name: str,
    cache: Cache,
    qkv: np.ndarray,
    positions: np.ndarray,
    slots: np.ndarray,
    n_rows: int,
    n_heads: int,
    n_rot: int,
    **how: Any,
) -> None:
    library[name].launch(
        counts=counts(n_rows),
        row_position=positions,
        row_slot=slots,
        rope=rope_table(n_rot),
        qkv=qkv,
        rows_capacity=len(qkv),
        n_heads=n_heads,
        n_rot=n_rot,
        n_positions=N_POSITIONS,
        q_scale=0.25,
        **cache.arguments(),
        **how,
    )


@on_every_target
@pytest.mark.parametrize("is_interleaved", [True, False])
@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "head_dim", "n_rot"), [(9, 3, 64, 64), (4, 4, 32, 16), (6, 1, 8, 0), (2, 1, 256, 128)]
)
@pytest.mark.parametrize(("order", "kv"), [("serial", "f16"), *(("shuffled", kv) for kv in FORMATS)])
def test_rows_are_rotated_and_cached(
    library: Library,
    is_interleaved: bool,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    n_rot: int,
    order: str,
    kv: str,
) -> None:
    rng = np.random.default_rng(1)
    cache = Cache(n_slots=3, pages_per_slot=4, n_kv_heads=n_kv_heads, head_dim=head_dim, rng=rng, kv=kv)
    before = cache.plane.copy()
    n_rows, capacity = 9, 12
    positions = rng.permutation(N_POSITIONS)[:capacity].astype(np.int32)
    slots = rng.integers(0, 3, capacity).astype(np.int32)
    x = rng.standard_normal((capacity, n_heads + 2 * n_kv_heads, head_dim)).astype(np.float32)
    qkv = x.copy()
    name = cache.kernel("rope_kv.interleaved" if is_interleaved else "rope_kv.half")
    run_rope(library, name, cache, qkv, positions, slots, n_rows, n_heads, n_rot, order=order)
    expected = x.astype(np.float64)
    for i in range(n_rows):
        expected[i, : n_heads + n_kv_heads] = rotated(x[i, : n_heads + n_kv_heads], positions[i], n_rot, is_interleaved)
    expected[:n_rows, :n_heads] *= 0.25
    np.testing.assert_allclose(qkv, expected, atol=1e-6)
    np.testing.assert_array_equal(qkv[n_rows:], x[n_rows:])
    written = Cache(n_slots=3, pages_per_slot=4, n_kv_heads=n_kv_heads, head_dim=head_dim, rng=rng, kv=kv)
    written.plane[:], written.page_table = before, cache.page_table
    for i in range(n_rows):
        k, v = qkv[i, n_heads : n_heads + n_kv_heads], x[i, n_heads + n_kv_heads :]
        written.write(slots[i], positions[i], k, v)
    np.testing.assert_array_equal(cache.plane, written.plane)


@on_every_target
def test_impossible_rows_write_nothing(library: Library) -> None:
    rng = np.random.default_rng(2)
    cache = Cache(n_slots=2, pages_per_slot=2, n_kv_heads=1, head_dim=8, rng=rng)
    cache.page_table[1] = [-1, cache.n_pages]
    before = cache.plane.copy()
    positions = int32(-1, N_POSITIONS, 32, 5, 5, 5, 20, 2**31 - 1, -(2**31))
    slots = int32(0, 0, 0, -1, 2, 1, 1, 0, 0)  # position 32 is past the slot's two pages; slot 1 has two bad page ids
    qkv = rng.standard_normal((9, 4 * 8)).astype(np.float32)
    untouched = qkv.copy()
    run_rope(library, "rope_kv.half.1", cache, qkv, positions, slots, 2**31 - 1, 2, 8)
    np.testing.assert_array_equal(qkv, untouched)
    np.testing.assert_array_equal(cache.plane, before)


@on_every_target
def test_overflowing_halves_become_infinite_and_small_ones_subnormal(library: Library) -> None:
    cache = Cache(n_slots=1, pages_per_slot=1, n_kv_heads=1, head_dim=8, rng=np.random.default_rng(3))
    values = np.array([65504, 65520, -1e30, 2.0**-24, 2.0**-25, 3 * 2.0**-25, np.inf, np.nan], np.float32)
    qkv = np.stack([values, values, values]).reshape(1, 24)
    run_rope(library, "rope_kv.half.1", cache, qkv, int32(0), int32(0), 1, 1, 0)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    k, v = cache.read(0, 0)
    np.testing.assert_array_equal(v[0], expected)
    np.testing.assert_array_equal(k[0], expected)


@on_every_target
def test_a_position_that_is_not_finite_or_nearly_nothing_keeps_to_itself_in_q8(library: Library) -> None:
    cache = Cache(n_slots=1, pages_per_slot=1, n_kv_heads=1, head_dim=8, rng=np.random.default_rng(4), kv="q8")
    rows = np.ones((5, 8), np.float32)
    rows[0, 3], rows[1, 7], rows[2], rows[3], rows[4, 1] = np.nan, -np.inf, 1e-31, 0, 127e30
    qkv = np.concatenate([rows, rows, rows], axis=1)
    run_rope(library, "rope_kv.half.q8.1", cache, qkv, int32(0, 1, 2, 3, 4), int32(0, 0, 0, 0, 0), 5, 1, 0)
    for position, expected in enumerate([np.full(8, np.nan), np.full(8, np.nan), np.zeros(8), np.zeros(8)]):
        for part in cache.read(0, position):
            np.testing.assert_array_equal(part[0], expected)
    np.testing.assert_allclose(cache.read(0, 4)[0][0], [0, 127e30, 0, 0, 0, 0, 0, 0], rtol=1e-6)


@on_every_target
@pytest.mark.parametrize(
    "wrong",
    [
        {"rows_capacity": 0},
        {"n_slots": 0},
        {"pages_per_slot": -1},
        {"n_pages": 0},
        {"page_stride": 2047},
        {"page_stride": -2048},
        {"page_stride": 2**63 - 2},
        {"n_heads": 0},
        {"n_kv_heads": 3},
        {"n_kv_heads": 0},
        {"head_dim": 12},
        {"head_dim": 264},
        {"head_dim": 0},
        {"n_rot": 3},
        {"n_rot": 34},
        {"n_rot": -2},
        {"n_positions": 0},
        {"n_heads": 2**31 - 2},
        {"pages_per_slot": 2**31 - 1},
    ],
)
def test_senseless_scalars_are_refused(library: Library, wrong: dict[str, int]) -> None:
    good = {
        "rows_capacity": 2,
        "n_slots": 2,
        "pages_per_slot": 2,
        "n_pages": 4,
        "page_stride": 4096,
        "n_heads": 4,
        "n_kv_heads": 1,
        "head_dim": 32,
        "n_rot": 32,
        "n_positions": 32,
        "q_scale": 1.0,
    }
    for name in ("rope_kv.half.1", "rope_kv.interleaved.1", "rope_kv.half.bf16.1", "rope_kv.interleaved.bf16.1"):
        assert library[name].extents(**good)["kv"] == 3 * 4096 + 2048
        assert library[name].extents(**good | {"page_stride": 2056})["kv"] == REFUSED, "8 is no multiple of 16"
    for name in ("rope_kv.half.q8.1", "rope_kv.interleaved.q8.1"):
        assert library[name].extents(**good)["kv"] == 3 * 4096 + 1152
        assert library[name].extents(**good | {"page_stride": 1136})["kv"] == REFUSED, "shorter than a page"
    for name in ("rope_kv.half.1", "rope_kv.interleaved.1"):
        refused = library[name].extents(**good | wrong)
        assert set(refused.values()) == {REFUSED} or (wrong == {"page_stride": 2**63 - 2} and refused["kv"] == REFUSED)
