"""Attention in tiles on the emulated matrix units: a row's bits are its own, in every order of threads and copy mode."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import load
from tests.kernels.paged import FORMATS
from tests.kernels.test_attention import expected_attention, random_case, run_split, run_whole
from tests.simt.conduct import CONDUCTS, Conduct, conducted

SHAPES = [  # query heads, KV heads, head dimension: groups of 1 to 8, of one tile and of more, dimensions that fill no tile
    (1, 1, 64),
    (4, 2, 80),
    (3, 1, 128),
    (8, 2, 8),
    (10, 2, 72),
    (6, 1, 64),
    (14, 2, 64),
    (8, 1, 256),
    (18, 1, 16),
]
LAST_POSITIONS = [0, 15, 16, 254, 255, 256, 257, 511]


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_group_of_heads_agrees_with_float64_in_both_forms(shape: tuple[int, int, int], kv: str) -> None:
    cache, q, positions, slots = random_case(*shape, LAST_POSITIONS, kv)
    library = load("simt")
    whole = run_whole(library, cache, q, positions, slots, len(q))
    np.testing.assert_allclose(whole, expected_attention(cache, q, positions, slots), atol=2e-5)
    split = run_split(library, cache, q, positions, slots, len(q))
    np.testing.assert_array_equal(split.view(np.uint32), whole.view(np.uint32))


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
def test_a_prompt_in_chunks_has_the_bits_of_single_steps(conduct: Conduct, kv: str) -> None:
    """Tiles begin at other rows, hold fewer, or hold rows of two slots: nothing of it shows."""
    cache, q, positions, _ = random_case(6, 2, 72, list(range(247, 265)), kv)
    slots = np.array([0] * 11 + [1] * 7, np.int32)
    library = load("simt")
    with conducted(conduct):
        together = run_whole(library, cache, q, positions, slots, len(q))
        for rows in (slice(0, 1), slice(3, 12), slice(10, 18)):
            some = run_whole(library, cache, q[rows], positions[rows], slots[rows], len(q[rows]))
            np.testing.assert_array_equal(some.view(np.uint32), together[rows].view(np.uint32))
        split = run_split(library, cache, q[8:13], positions[8:13], slots[8:13], 5)
        np.testing.assert_array_equal(split.view(np.uint32), together[8:13].view(np.uint32))


@pytest.mark.parametrize("kv", ["f16", "bf16"])
@pytest.mark.parametrize("first", [0, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_seen_by_the_rows_from_it_on_alone(bad: float, first: int, kv: str) -> None:
    """0 times it is NaN: rows of the same tile at earlier positions must not meet it."""
    cache, q, positions, _ = random_case(4, 2, 64, list(range(first, first + 16)), kv)
    slots = np.zeros(16, np.int32)
    library = load("simt")
    clean = run_whole(library, cache, q, positions, slots, 16)
    keys, values = cache.read(0, first + 9)
    values = values.copy()
    values[1, 33] = bad
    cache.write(0, first + 9, keys, values)
    with conducted(CONDUCTS[-1]):
        out = run_whole(library, cache, q, positions, slots, 16)
        np.testing.assert_array_equal(out[:9], clean[:9])
        assert not np.isfinite(out[9:, 2:, 33]).any()
        assert np.isfinite(out[9:, :2]).all()
        for i in (8, 9, 15):
            one = slice(i, i + 1)
            alone = run_split(library, cache, q[one], positions[one], slots[one], 1)
            np.testing.assert_array_equal(alone, out[one])


@pytest.mark.parametrize("kv", FORMATS)
def test_a_bad_page_empties_the_segment_for_the_rows_that_see_it_alone(kv: str) -> None:
    cache, q, positions, _ = random_case(4, 2, 64, list(range(28, 36)), kv)
    slots = np.zeros(8, np.int32)
    library = load("simt")
    clean = run_whole(library, cache, q, positions, slots, 8)
    cache.page_table[0, 2] = cache.n_pages
    out = run_whole(library, cache, q, positions, slots, 8)
    np.testing.assert_array_equal(out[:4], clean[:4])
    assert (out[4:] == 0).all()
