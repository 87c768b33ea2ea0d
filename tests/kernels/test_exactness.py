"""Design 7: a row's bits do not depend on its place in a tile, nor on its company. Of a GPU's matrix unit this is assumed, and
confirmed here with the shapes of a model: `scripts/gpu_check` runs this file first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helios.device import libraries
from helios.ignition.preparation.layouts import LAYOUTS
from tests.kernels.formats import ALL, BF16_ROWS, Weights, random_weights
from tests.kernels.harness import Library, on_every_gpu_target
from tests.kernels.paged import FORMATS
from tests.kernels.test_attention import random_case, run_split, run_whole
from tests.kernels.test_linear import make_input, run_linear

in_every_map = pytest.mark.parametrize("kernel", ["linear", "linear_add", "linear_silu_gate"])
in_every_layout = pytest.mark.parametrize("layout", ALL)


def is_emulated(library: Library) -> bool:
    return library.target == libraries.SIMT_TARGET


def outputs(library: Library, kernel: str, layout: str, weights: Weights, x: np.ndarray) -> np.ndarray:
    """The bits of all rows of x in one launch; what linear_add adds to is 0.5."""
    n_out = len(weights.values) // (2 if kernel == "linear_silu_gate" else 1)
    y = np.full((len(x), n_out), 0.5, np.float32)
    given = make_input(library, layout, x, len(x))
    run_linear(library, f"{kernel}.{layout}.1", weights, given.stored, y, len(x), n_out)
    return y.view(np.uint32)


@on_every_gpu_target
@in_every_layout
@in_every_map
def test_one_row_and_one_weight_have_one_product_in_every_place(library: Library, layout: str, kernel: str) -> None:
    """All rows of x are the same one, and all outputs' weights: so all products are, wherever in a tile, in every form."""
    rng = np.random.default_rng(1)
    n_out, n_in = (96, 160) if is_emulated(library) else (512, 2048)
    one = random_weights(layout, 1, n_in, rng)
    raw = np.repeat(one.raw, n_out, axis=0)
    weights = replace(one, packed=LAYOUTS[layout].pack([raw]), values=np.repeat(one.values, n_out, axis=0))
    row = rng.standard_normal((1, n_in)).astype(np.float32)
    alone = outputs(library, kernel, layout, weights, row)
    assert (alone == alone[0, 0]).all()
    for n_rows in (2, 8, 33, 70) if is_emulated(library) else (2, 8, 16, 33, 64, 100, 300):
        many = outputs(library, kernel, layout, weights, np.repeat(row, n_rows, axis=0))
        assert (many == alone[0, 0]).all(), f"{n_rows} rows, at {np.argwhere(many != alone[0, 0])[:4].tolist()}"


@on_every_gpu_target
@in_every_layout
@in_every_map
def test_a_row_has_its_bits_in_any_company(library: Library, layout: str, kernel: str) -> None:
    """From alone to a whole prompt, so in each form of the kernel, and at the beginning, in the middle and at the end."""
    rng = np.random.default_rng(2)
    (n_out, n_in), most = ((96, 160), 70) if is_emulated(library) else ((512, 2048), 300)
    weights = random_weights(layout, n_out, n_in, rng)
    x = rng.standard_normal((most, n_in)).astype(np.float32)
    together = outputs(library, kernel, layout, weights, x)
    for n_rows in (1, 3, 9, 33) if is_emulated(library) else (1, 2, 5, 9, 17, 33, 65, 129):
        for first in (0, most // 2, most - n_rows):
            rows = slice(first, first + n_rows)
            some = outputs(library, kernel, layout, weights, x[rows])
            assert (some == together[rows]).all(), f"{n_rows} rows from {first} on"


@on_every_gpu_target
@pytest.mark.parametrize("layout", BF16_ROWS)
@in_every_map
def test_a_row_has_its_bits_in_a_matrix_of_any_size(library: Library, layout: str, kernel: str) -> None:
    """A large matrix has tiles of its own for few rows; its first outputs are also those of a small one."""
    rng = np.random.default_rng(3)
    (n_large, n_small), n_in = ((2112, 64), 64) if is_emulated(library) else ((8192, 512), 544)
    weights = random_weights(layout, n_large, n_in, rng)
    small = replace(
        weights,
        raw=weights.raw[:n_small],
        packed=LAYOUTS[layout].pack([weights.raw[:n_small]]),
        values=weights.values[:n_small],
    )
    for n_rows in (1, 8, 20, 70):
        x = rng.standard_normal((n_rows, n_in)).astype(np.float32)
        expected = outputs(library, kernel, layout, small, x)
        found = outputs(library, kernel, layout, weights, x)[:, : expected.shape[1]]
        assert (found == expected).all(), f"{n_rows} rows"


@on_every_gpu_target
@pytest.mark.parametrize("kv", FORMATS)
def test_attention_in_parts_has_the_bits_of_the_whole(library: Library, kv: str) -> None:
    """A prompt at once, its end alone, and single steps: each row over the same positions."""
    n, shape = (40, (4, 2, 32)) if is_emulated(library) else (600, (32, 8, 128))
    cache, q, positions, _ = random_case(*shape, list(range(n)), kv)
    slots = np.zeros(n, np.int32)
    together = run_whole(library, cache, q, positions, slots, n)
    np.testing.assert_array_equal(run_split(library, cache, q, positions, slots, n), together)
    for first in (n - 1, n - 9, 3):
        rows = slice(first, n)
        for run in (run_whole, run_split):
            some = run(library, cache, q[rows], positions[rows], slots[rows], n - first)
            np.testing.assert_array_equal(some, together[rows])
