"""linear, linear_add and linear_silu_gate over w12 weights and q12 rows, whose sums are whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CUDA_TARGET, REFUSED, Library, int32, load, on_every_target, runnable_targets
from tests.kernels.q12 import Q12Rows, W12Weights, quantised, random_weights, rows_parts
from tests.kernels.test_linear import relative_error

LIVE_COUNTS = [*range(1, 18), 24, 31, 32, 33, 40, 64, 257]
CAPACITY = 260
_NO_FMA = "x86-64"


def run(
    library: Library,
    kernel: str,
    packed: np.ndarray,
    stored: np.ndarray,
    y: np.ndarray,
    n_rows: int,
    n_in: int,
    **how: object,
) -> int:
    """One launch over rows whose capacity is y's."""
    return library[f"{kernel}.w12.g16.1"].launch(
        n_rows=int32(n_rows),
        x=stored,
        weight=packed,
        y=y,
        rows_capacity=len(y),
        n_in=n_in,
        n_out=how.pop("n_out", y.shape[1]),
        y_stride=y.shape[1],
        **how,
    )


def defined(weights: W12Weights, rows: Q12Rows) -> np.ndarray:
    """float32 [rows, n_out], each operation as kernels.h has it: the sums whole, the product rounded, the multiply-add once."""
    n_in = weights.numbers.shape[1]
    acc = np.zeros((len(rows.q), len(weights.numbers)), np.float32)
    for group, begin in enumerate(range(0, n_in, 512)):
        part = slice(begin, begin + 512)
        sums = rows.numbers[:, part] @ weights.numbers[:, part].T
        assert np.abs(sums).max() < 2**31
        scaled = sums.astype(np.float32) * weights.scales[:, group]
        product = scaled.astype(np.float64) * rows.scales[:, group, None].astype(np.float64)  # exact
        acc = (product + acc).astype(np.float32)
    return acc


@on_every_target
@pytest.mark.parametrize(("n_out", "n_in"), [(40, 64), (99, 576), (16, 512), (7, 704), (33, 1536)])
def test_outputs_are_those_of_float64_on_the_same_inputs(library: Library, n_out: int, n_in: int) -> None:
    rng = np.random.default_rng(1)
    weights = random_weights(n_out, n_in, rng)
    for n_rows in (1, 3, 9, 12):
        x = rng.standard_normal((n_rows, n_in)).astype(np.float32) * 3
        x[:, ::64] *= 30
        stored = quantised(library, x, 12)
        y = np.full((12, n_out + 5), np.nan, np.float32)
        run(library, "linear", weights.packed, stored, y, n_rows, n_in, n_out=n_out)
        rows = rows_parts(stored, 12, n_rows, n_in)
        assert relative_error(y[:n_rows, :n_out], weights.times(rows)) < 3e-7
        if library.target != _NO_FMA:
            np.testing.assert_allclose(y[:n_rows, :n_out], defined(weights, rows), rtol=2e-7)
        assert np.isnan(y[n_rows:]).all()
        assert np.isnan(y[:, n_out:]).all()


@on_every_target
@pytest.mark.parametrize("n_rows", [2, 11, 21])
def test_linear_add_adds_and_silu_gate_gates(library: Library, n_rows: int) -> None:
    rng = np.random.default_rng(2)
    weights = random_weights(160, 704, rng)
    stored = quantised(library, rng.standard_normal((n_rows, 704)).astype(np.float32) * 3, n_rows)
    product = weights.times(rows_parts(stored, n_rows, n_rows, 704))
    before = rng.standard_normal((n_rows, 160)).astype(np.float32)
    y = before.copy()
    run(library, "linear_add", weights.packed, stored, y, n_rows, 704)
    assert relative_error(y, before + product) < 1e-6
    y = np.empty((n_rows, 80), np.float32)
    run(library, "linear_silu_gate", weights.packed, stored, y, n_rows, 704)
    groups = product.reshape(n_rows, 5, 2, 16)
    gate, up = (groups[:, :, part].reshape(n_rows, -1) for part in (0, 1))
    assert relative_error(y, gate / (1 + np.exp(-gate)) * up) < 1e-6


@on_every_target
@pytest.mark.parametrize("kernel", ["linear", "linear_add", "linear_silu_gate"])
def test_a_row_has_the_same_bits_in_every_batch(library: Library, kernel: str) -> None:
    """Design 7: in every form, every tile and every part of one."""
    rng = np.random.default_rng(3)
    n_out, n_in = (208, 704) if kernel == "linear_silu_gate" else (204, 704)
    counts = [1, 2, 4, 5, 17] if library.is_cuda else LIVE_COUNTS
    weights = random_weights(2 * n_out if kernel == "linear_silu_gate" else n_out, n_in, rng)
    x = rng.standard_normal((CAPACITY, n_in)).astype(np.float32)
    before = rng.standard_normal((CAPACITY, n_out)).astype(np.float32)
    alone = before.copy()
    for row in range(counts[-1]):
        run(library, kernel, weights.packed, quantised(library, x[row : row + 1], 1), alone[row : row + 1], 1, n_in)
    grids = set()
    for n_rows in counts:
        stored = quantised(library, x[:n_rows], CAPACITY)
        for n_threads, order in [(1, "serial"), (3, "threads"), (64, "shuffled")]:
            y = before.copy()
            grids.add(run(library, kernel, weights.packed, stored, y, n_rows, n_in, n_threads=n_threads, order=order))
            np.testing.assert_array_equal(y[:n_rows].view(np.uint32), alone[:n_rows].view(np.uint32))
            assert (y[n_rows:] == before[n_rows:]).all()
    assert len(grids) > 2 or not library.counts_tasks


@pytest.mark.parametrize("n_in", [64, 1536])
def test_all_targets_give_the_same_bits(n_in: int) -> None:
    """Rows and products: sums are whole numbers, and what is left is a fused multiply-add a group."""
    rng = np.random.default_rng(6)
    weights = random_weights(80, n_in, rng)
    x = rng.standard_normal((37, n_in)).astype(np.float32)
    stored, outputs = {}, {}
    for target in runnable_targets():
        library = load(target)
        rows = stored[target] = quantised(library, x, 37)
        if target in (_NO_FMA, CUDA_TARGET):
            continue
        for n_rows in (1, 7, 16, 37):
            y = np.zeros((37, 80), np.float32)
            run(library, "linear", weights.packed, rows, y, n_rows, n_in)
            outputs[target, n_rows] = y[:n_rows].view(np.uint32)
    first_rows, first_y = next(iter(stored.values())), next(y for (_, n_rows), y in outputs.items() if n_rows == 37)
    for target, rows in stored.items():
        np.testing.assert_array_equal(rows, first_rows, err_msg=target)
    for (target, n_rows), y in outputs.items():
        np.testing.assert_array_equal(y, first_y[:n_rows], err_msg=f"{target}, {n_rows} rows")


@on_every_target
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("q", [0, 15])
def test_the_largest_numbers_do_not_overflow(library: Library, q: int, sign: int) -> None:
    """512 products of 2,047 and 2,032, the most that the layouts allow."""
    n_in = 512
    packed = np.full(16 * 320 + 64, q * 17, np.uint8)
    blocks = packed[:-64].reshape(16, 320)
    k = 2047 * 2 // 15
    blocks[:, 256:288] = np.full(16, k, np.int16).view(np.uint8)
    blocks[:, 288:] = np.full(16, 2047 - 15 * k if q else -2047, np.int16).view(np.uint8)
    packed[-64:] = np.ones(16, np.float32).view(np.uint8)
    for n_rows in (1, 8, 9, 16):
        stored = quantised(library, np.full((n_rows, n_in), sign, np.float32), n_rows)
        y = np.empty((n_rows, 16), np.float32)
        run(library, "linear", packed, stored, y, n_rows, n_in)
        np.testing.assert_allclose(y, sign * (2047 if q else -2047) * n_in, rtol=1e-6)


@on_every_target
def test_foreign_numbers_give_wrong_answers_and_no_fault(library: Library) -> None:
    """Nothing that a core or a row holds is an index: whatever it holds, the kernel ends and stays in its extents."""
    rng = np.random.default_rng(7)
    weights = rng.integers(0, 256, 3 * (16 * 320 + 64), np.uint8)
    for n_rows in (1, 8, 20):
        stored = rng.integers(0, 256, quantised(library, np.ones((n_rows, 512), np.float32), n_rows).size, np.uint8)
        y = np.zeros((n_rows, 48), np.float32)
        run(library, "linear", weights, stored, y, n_rows, 512)


@on_every_target
def test_a_row_that_is_not_finite_stays_alone(library: Library) -> None:
    rng = np.random.default_rng(4)
    weights = random_weights(16, 704, rng)
    for n_rows in (6, 18):
        x = rng.standard_normal((n_rows, 704)).astype(np.float32)
        expected = np.empty((n_rows, 16), np.float32)
        run(library, "linear", weights.packed, quantised(library, x, n_rows), expected, n_rows, 704)
        for poison in (np.nan, np.inf, -np.inf):
            poisoned = x.copy()
            poisoned[2, 600] = poison
            y = np.empty((n_rows, 16), np.float32)
            run(library, "linear", weights.packed, quantised(library, poisoned, n_rows), y, n_rows, 704)
            assert np.isnan(y[2]).all()
            others = np.arange(n_rows) != 2
            assert (y[others] == expected[others]).all()


@on_every_target
@pytest.mark.parametrize(
    "wrong",
    [
        {"rows_capacity": 0},
        {"n_in": 0},
        {"n_in": -64},
        {"n_in": 96},
        {"n_in": 2**31 - 64},
        {"n_out": -(2**31)},
        {"y_stride": 15},
        {"n_out": 2**31 - 1, "y_stride": 2**31 - 1},
    ],
)
def test_senseless_scalars_are_refused(library: Library, wrong: dict[str, int]) -> None:
    scalars = {"rows_capacity": 4, "n_in": 64, "n_out": 16, "y_stride": 16}
    for kernel in ("linear", "linear_add", "linear_silu_gate"):
        assert REFUSED not in library[f"{kernel}.w12.g16.1"].extents(**scalars).values()
        assert set(library[f"{kernel}.w12.g16.1"].extents(**scalars | wrong).values()) == {REFUSED}
    assert set(library["linear_silu_gate.w12.g16.1"].extents(**scalars | {"n_out": 12}).values()) == {REFUSED}
