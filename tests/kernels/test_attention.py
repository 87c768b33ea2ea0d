"""attention, and attention_split with attention_merge, over paged keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import REFUSED, Library, counts, int32, on_every_target
from tests.kernels.paged import FORMATS, Cache

SHAPES = [(9, 3, 64), (4, 4, 32), (8, 1, 8), (14, 2, 40), (2, 1, 256)]  # query heads, KV heads, head dimension


def expected_attention(cache: Cache, q: np.ndarray, positions: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """q [rows, heads, head_dim], already scaled; float64."""
    out = np.zeros(q.shape)
    share = q.shape[1] // cache.n_kv_heads
    for i, (position, slot) in enumerate(zip(positions, slots, strict=True)):
        pairs = [cache.read(slot, p) for p in range(position + 1)]
        k, v = (
            np.stack([pair[j] for pair in pairs]).astype(np.float64) for j in (0, 1)
        )  # [positions, kv heads, head_dim]
        for h in range(q.shape[1]):
            scores = k[:, h // share] @ q[i, h].astype(np.float64)
            weights = np.exp(scores - scores.max())
            out[i, h] = weights @ v[:, h // share] / weights.sum()
    return out


def tolerance(library: Library, kv: str) -> float:
    """Sums in float; the matrix units of a GPU take queries and weights as two bf16 numbers each, 2^-17 of them off, or of f16."""
    return 2e-5 if library.is_cuda and kv != "f16" else 3e-6


def qkv_of(q: np.ndarray, n_kv_heads: int) -> np.ndarray:
    padding = np.full((len(q), 2 * n_kv_heads, q.shape[2]), np.nan, np.float32)
    return np.concatenate([q, padding], axis=1)


def run_whole(
    library: Library, cache: Cache, q: np.ndarray, positions: np.ndarray, slots: np.ndarray, n_rows: int, **how: Any
) -> np.ndarray:
    out = np.full(q.shape, 7, np.float32)
    library[cache.kernel("attention")].launch(
        counts=counts(n_rows),
        row_position=positions,
        row_slot=slots,
        qkv=qkv_of(q, cache.n_kv_heads),
        out=out,
        rows_capacity=len(q),
        n_heads=q.shape[1],
        **cache.arguments(),
        **how,
    )
    return out


def run_split(
    library: Library, cache: Cache, q: np.ndarray, positions: np.ndarray, slots: np.ndarray, n_rows: int, **how: Any
) -> np.ndarray:
    out = np.full(q.shape, 7, np.float32)
    max_segments = -(-cache.pages_per_slot * 16 // 256)
    partials = np.full((len(q), q.shape[1], max_segments, q.shape[2] + 2), np.nan, np.float32)
    library[cache.kernel("attention_split")].launch(
        counts=counts(n_rows),
        row_position=positions,
        row_slot=slots,
        qkv=qkv_of(q, cache.n_kv_heads),
        partials=partials,
        rows_capacity=len(q),
        n_heads=q.shape[1],
        max_segments=max_segments,
        **cache.arguments(),
        **how,
    )
    library["attention_merge.1"].launch(
        counts=counts(n_rows),
        row_position=positions,
        partials=partials,
        out=out,
        rows_capacity=len(q),
        n_heads=q.shape[1],
        head_dim=q.shape[2],
        max_segments=max_segments,
        **how,
    )
    return out


def random_case(
    n_heads: int, n_kv_heads: int, head_dim: int, positions: list[int], kv: str = "f16"
) -> tuple[Cache, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    cache = Cache(2, max(positions) // 16 + 1, n_kv_heads, head_dim, rng, kv)
    q = rng.standard_normal((len(positions), n_heads, head_dim)).astype(np.float32) / np.float32(head_dim**0.5) * 2
    return cache, q, np.array(positions, np.int32), rng.integers(0, 2, len(positions)).astype(np.int32)


in_every_format = pytest.mark.parametrize("kv", FORMATS)


@on_every_target
@in_every_format
@pytest.mark.parametrize("shape", SHAPES)
def test_both_ways_agree_with_float64_and_with_each_other(
    library: Library, shape: tuple[int, int, int], kv: str
) -> None:
    cache, q, positions, slots = random_case(*shape, [0, 1, 15, 16, 100, 255, 256, 300, 511, 512, 777], kv)
    whole = run_whole(library, cache, q, positions, slots, len(q))
    np.testing.assert_allclose(whole, expected_attention(cache, q, positions, slots), atol=tolerance(library, kv))
    split = run_split(library, cache, q, positions, slots, len(q))
    np.testing.assert_array_equal(split.view(np.uint32), whole.view(np.uint32))


@on_every_target
@in_every_format
@pytest.mark.parametrize("run", [run_whole, run_split])
def test_a_row_has_the_same_bits_in_every_batch_and_order(library: Library, run: Any, kv: str) -> None:
    some_positions = [int(p) for p in np.random.default_rng(2).integers(0, 600, 40)]
    cache, q, positions, slots = random_case(6, 2, 64, some_positions, kv)
    together = run(library, cache, q, positions, slots, 40)
    for how in ({"order": "shuffled"}, {"order": "threads", "n_threads": 3}, {"n_threads": 64}):
        np.testing.assert_array_equal(run(library, cache, q, positions, slots, 40, **how), together)
    for n_rows in (1, 2, 3, 5, 17):
        some = run(library, cache, q, positions, slots, n_rows)
        np.testing.assert_array_equal(some[:n_rows], together[:n_rows])
        assert (some[n_rows:] == 7).all()
    for i in range(0, 40, 7):
        one = slice(i, i + 1)
        np.testing.assert_array_equal(run(library, cache, q[one], positions[one], slots[one], 1), together[one])


@on_every_target
@in_every_format
def test_rows_of_one_prompt_have_the_bits_of_single_steps(library: Library, kv: str) -> None:
    n = 290
    cache, q, positions, _ = random_case(6, 2, 32, list(range(n)), kv)
    slots = np.zeros(n, np.int32)
    together = run_whole(library, cache, q, positions, slots, n)
    for i in (0, 1, 2, 3, 16, 17, 254, 255, 256, 257, 289):
        one = slice(i, i + 1)
        np.testing.assert_array_equal(run_split(library, cache, q[one], positions[one], slots[one], 1), together[one])
    for first in (3, 64, 255):
        rest = slice(first, n)
        np.testing.assert_array_equal(
            run_whole(library, cache, q[rest], positions[rest], slots[rest], n - first), together[rest]
        )


@on_every_target
@in_every_format
def test_lanes_with_a_common_prefix_have_the_bits_of_single_steps(library: Library, kv: str) -> None:
    """Their first segment is in the same pages, the second in some; one of them has a bad page, which the rest do not."""
    n, rng = 11, np.random.default_rng(5)
    cache = Cache(n, 40, 2, 32, rng, kv)
    shared, bad = [0, 2, 3, 5, 6, 7, 9, 10], [8]
    cache.page_table[shared, :16] = cache.page_table[0, :16]
    cache.page_table[[5, 7], 16:32] = cache.page_table[5, 16:32]
    cache.page_table[bad, :16] = cache.page_table[0, :16]
    cache.page_table[bad, 15] = cache.n_pages
    q = rng.standard_normal((n, 6, 32)).astype(np.float32)
    positions, slots = int32(300, 600, 255, 256, 30, 520, 254, 639, 400, 511, 270), np.arange(n, dtype=np.int32)
    together = run_split(library, cache, q, positions, slots, n)
    for i in range(n):
        one = slice(i, i + 1)
        np.testing.assert_array_equal(run_split(library, cache, q[one], positions[one], slots[one], 1), together[one])
    for n_rows in (4, 6, 9):
        some = run_split(library, cache, q, positions, slots, n_rows, order="shuffled")
        np.testing.assert_array_equal(some[:n_rows], together[:n_rows])


@on_every_target
@in_every_format
def test_a_bad_page_hides_only_the_segments_that_need_it(library: Library, kv: str) -> None:
    n = 40
    cache, q, positions, _ = random_case(6, 2, 32, list(range(n)), kv)
    slots = np.zeros(n, np.int32)
    cache.page_table[0, 2] = cache.n_pages  # positions 32..47: rows 0..31 do not see them
    together = run_whole(library, cache, q, positions, slots, n)
    for i in range(n):
        one = slice(i, i + 1)
        np.testing.assert_array_equal(run_split(library, cache, q[one], positions[one], slots[one], 1), together[one])
    for first in (1, 2, 3):
        rest = slice(first, n)
        np.testing.assert_array_equal(
            run_whole(library, cache, q[rest], positions[rest], slots[rest], n - first), together[rest]
        )
    assert (together[32:] == 0).all()
    assert together[:32].any(axis=(1, 2)).all()


@on_every_target
def test_extreme_scores_are_finite(library: Library) -> None:
    cache, q, positions, slots = random_case(2, 1, 8, [300])
    for scale in (0.0, 1e6, 1e20):
        out = run_whole(library, cache, q * np.float32(scale), positions, slots, 1)
        assert np.isfinite(out).all()


@on_every_target
def test_nan_stays_in_its_row(library: Library) -> None:
    cache, q, positions, slots = random_case(6, 2, 64, [40, 300, 20])
    clean = run_whole(library, cache, q, positions, slots, 3)
    q[1, 2, 5] = np.nan
    for run in (run_whole, run_split):
        out = run(library, cache, q, positions, slots, 3)
        np.testing.assert_array_equal(out[[0, 2]], clean[[0, 2]])
        assert np.isnan(out[1, 2]).all()
        np.testing.assert_array_equal(out[1, 3:], clean[1, 3:])


@on_every_target
def test_impossible_rows_touch_nothing_outside(library: Library) -> None:
    cache, q, _, _ = random_case(6, 2, 32, [300] * 9)
    cache.page_table[1, 3] = cache.n_pages
    cache.page_table[1, 17] = -1
    positions = int32(-1, -(2**31), 2**31 - 1, 304, 10, 10, 10, 300, 300)
    slots = int32(0, 0, 0, 0, -1, 2, 2**31 - 1, 1, 0)
    for run in (run_whole, run_split):
        out = run(library, cache, q, positions, slots, 2**31 - 1)
        assert (out[:3] == 7).all()
        assert np.isfinite(out[4:7]).all()
        assert (out[7] == 0).all(), "both of its segments hold a bad page"
        np.testing.assert_allclose(out[8:], expected_attention(cache, q[8:], positions[8:], slots[8:]), atol=3e-6)


@on_every_target
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_segments": 0},
        {"max_segments": -1},
        {"head_dim": 12},
        {"head_dim": 264},
        {"n_heads": 0},
        {"n_heads": 2**31 - 2},
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
        "max_segments": 2,
    }
    formats = ("1", "bf16.1", "q8.1")
    for name in ("attention_merge.1", *(f"{way}.{kv}" for way in ("attention", "attention_split") for kv in formats)):
        names = {field for field, _, kind in library[name].fields if kind > 2}
        if wrong.keys() <= names:
            assert REFUSED not in library[name].extents(**{key: good[key] for key in names}).values()
            assert set(library[name].extents(**{key: (good | wrong)[key] for key in names}).values()) == {REFUSED}
