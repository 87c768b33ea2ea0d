"""rms_norm, rms_norm_q8, rms_norm_bf16, quantize_q8 and round_bf16."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.formats import bf16_rows_nbytes, bf16_rows_parts, q8_rows_nbytes, q8_rows_parts, q8_rows_values
from tests.kernels.harness import REFUSED, Library, int32, on_every_target

EPSILON = 1e-5


def expected_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPSILON) * weight


def run_norm(
    library: Library, name: str, rows: list[int], x: np.ndarray, weight: np.ndarray, y: np.ndarray, **how: object
) -> None:
    library[name].launch(
        n_rows=int32(len(rows)),
        rows=np.array(rows + [0] * 64, np.int32)[:64],
        x=x,
        weight=weight,
        y=y,
        rows_capacity=64,
        x_rows=len(x),
        width=x.shape[1],
        epsilon=EPSILON,
        **how,
    )


@on_every_target
@pytest.mark.parametrize("width", [1, 7, 8, 64, 100, 576])
def test_rms_norm_gathers_and_scales(library: Library, width: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, width)).astype(np.float32) * 3
    weight = rng.uniform(0.5, 2, width).astype(np.float32)
    rows = [8, 0, 3, 3]
    y = np.full((64, width), np.nan, np.float32)
    run_norm(library, "rms_norm.1", rows, x, weight, y)
    np.testing.assert_allclose(y[:4], expected_norm(x[rows], weight), rtol=2e-6)
    assert np.isnan(y[4:]).all()


@on_every_target
@pytest.mark.parametrize("n_rows", [1, 2, 5, 33, 64])
def test_quantised_rows_are_within_half_a_step(library: Library, n_rows: int) -> None:
    rng = np.random.default_rng(2)
    width = 96
    x = rng.standard_normal((64, width)).astype(np.float32)
    x[:, 32:64] *= 100
    x[0, :32] = 0
    weight = rng.uniform(0.5, 2, width).astype(np.float32)
    rows = list(rng.permutation(64)[:n_rows])
    stored = np.zeros(q8_rows_nbytes(64, width), np.uint8)
    run_norm(library, "rms_norm_q8.1", rows, x, weight, stored)
    exact = expected_norm(x[rows], weight)
    step = np.abs(exact.reshape(n_rows, 3, 2, 16)).max(axis=3, keepdims=True) / 127
    error = np.abs(q8_rows_values(stored, 64, n_rows, width) - exact).reshape(n_rows, 3, 2, 16)
    assert (error <= step * 0.5001 + 1e-7).all()
    q, scales = q8_rows_parts(stored, 64, n_rows, width)
    assert (np.abs(q.astype(int)).max(axis=3) == np.where(step[..., 0] > 0, 127, 0)).all()
    np.testing.assert_allclose(scales[..., :2], step[..., 0], rtol=1e-5)
    sums = (q.astype(np.float64).sum(axis=3) * step[..., 0]).sum(axis=2)
    np.testing.assert_allclose(scales[..., 2], sums, rtol=1e-5, atol=1e-5)


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_a_row_has_the_same_bits_in_every_batch(library: Library, order: str) -> None:
    rng = np.random.default_rng(3)
    width = 576
    x = rng.standard_normal((64, width)).astype(np.float32)
    weight = rng.uniform(0.5, 2, width).astype(np.float32)
    for n_rows in (1, 2, 3, 4, 5, 8, 16, 33, 64):
        together, floats = np.zeros(q8_rows_nbytes(64, width), np.uint8), np.empty((64, width), np.float32)
        run_norm(library, "rms_norm_q8.1", list(range(n_rows)), x, weight, together, order=order)
        run_norm(library, "rms_norm.1", list(range(n_rows)), x, weight, floats, order=order)
        fused = q8_rows_parts(together, 64, n_rows, width)
        stored = np.zeros(q8_rows_nbytes(64, width), np.uint8)
        library["quantize_q8.1"].launch(
            n_rows=int32(n_rows), x=floats, y=stored, rows_capacity=64, width=width, order=order
        )
        for a, b in zip(fused, q8_rows_parts(stored, 64, n_rows, width), strict=True):
            np.testing.assert_array_equal(a, b)
        for row in (0, n_rows - 1):
            alone = np.zeros(q8_rows_nbytes(64, width), np.uint8)
            run_norm(library, "rms_norm_q8.1", [row], x, weight, alone)
            for a, b in zip(q8_rows_parts(alone, 64, 1, width), fused, strict=True):
                np.testing.assert_array_equal(a[0], b[row])


@on_every_target
def test_ties_round_to_even_and_the_largest_becomes_127(library: Library) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127, 0.5, 1.5, -2.5, 126.5, -127]
    stored = np.zeros(q8_rows_nbytes(1, 32), np.uint8)
    library["quantize_q8.1"].launch(n_rows=int32(1), x=x, y=stored, rows_capacity=1, width=32)
    q, scales = q8_rows_parts(stored, 1, 1, 32)
    assert q[0, 0, 0, :6].tolist() == [127, 0, 2, -2, 126, -127]
    assert scales[0, 0].tolist() == [1, 0, 126, 0]


def rounded_to_bf16(x: np.ndarray) -> np.ndarray:
    """To nearest, ties to even, by the definition: the nearer of the two neighbours."""
    below = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    above = ((x.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    to_below, to_above = np.abs(x.astype(np.float64) - below), np.abs(x.astype(np.float64) - above)
    is_even = (below.view(np.uint32) & 0x10000) == 0
    return np.where((to_below < to_above) | ((to_below == to_above) & is_even), below, above)


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_bf16_rows_are_the_nearest_numbers_and_their_sums(library: Library, order: str) -> None:
    rng = np.random.default_rng(5)
    width = 576
    x = rng.standard_normal((64, width)).astype(np.float32)
    x[0, :4] = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0x3F808001], np.uint32).view(
        np.float32
    )  # ties and one above
    weight = rng.uniform(0.5, 2, width).astype(np.float32)
    for n_rows in (1, 2, 5, 33, 64):
        stored = np.zeros(bf16_rows_nbytes(64, width), np.uint8)
        library["round_bf16.1"].launch(n_rows=int32(n_rows), x=x, y=stored, rows_capacity=64, width=width, order=order)
        values, sums = bf16_rows_parts(stored, 64, n_rows, width)
        np.testing.assert_array_equal(values, rounded_to_bf16(x[:n_rows]))
        np.testing.assert_allclose(sums, values.reshape(n_rows, -1, 32).sum(axis=2), rtol=1e-4, atol=1e-5)
        normed, floats = np.zeros(bf16_rows_nbytes(64, width), np.uint8), np.empty((64, width), np.float32)
        run_norm(library, "rms_norm_bf16.1", list(range(n_rows)), x, weight, normed, order=order)
        run_norm(library, "rms_norm.1", list(range(n_rows)), x, weight, floats, order=order)
        library["round_bf16.1"].launch(n_rows=int32(n_rows), x=floats, y=stored, rows_capacity=64, width=width)
        np.testing.assert_array_equal(normed, stored)


@on_every_target
def test_numbers_that_are_not_finite_stay_so_in_bf16(library: Library) -> None:
    x = np.ones((2, 32), np.float32)
    x[1, :4] = np.array([0x7F800001, 0xFFFFFFFF, 0x7F800000, 0x7F7FFFFF], np.uint32).view(np.float32)
    stored = np.zeros(bf16_rows_nbytes(2, 32), np.uint8)
    library["round_bf16.1"].launch(n_rows=int32(2), x=x, y=stored, rows_capacity=2, width=32)
    values, sums = bf16_rows_parts(stored, 2, 2, 32)
    assert np.isnan(values[1, :2]).all()
    assert np.isposinf(values[1, 2:4]).all()
    assert np.isnan(sums[1, 0])
    assert sums[0, 0] == 32


@on_every_target
def test_values_that_are_not_finite_give_nan_scales_to_their_half_block(library: Library) -> None:
    for poison in (np.nan, np.inf, -np.inf):
        x = np.ones((2, 64), np.float32)
        x[1, 3] = poison
        stored = np.zeros(q8_rows_nbytes(2, 64), np.uint8)
        library["quantize_q8.1"].launch(n_rows=int32(2), x=x, y=stored, rows_capacity=2, width=64)
        q, scales = q8_rows_parts(stored, 2, 2, 64)
        assert np.isnan(scales[1, 0, [0, 2]]).all()
        assert (q[1, 0, 0] == 0).all()
        assert np.isfinite(scales[0]).all()
        assert np.isfinite(scales[1, 1]).all()


@on_every_target
def test_row_indices_outside_the_input_leave_their_output_alone(library: Library) -> None:
    x = np.ones((4, 32), np.float32)
    weight = np.ones(32, np.float32)
    y = np.full((64, 32), 7, np.float32)
    run_norm(library, "rms_norm.1", [-1, 4, 2**31 - 1, -(2**31), 3], x, weight, y)
    assert (y[:4] == 7).all()
    np.testing.assert_allclose(y[4], 1, rtol=1e-4)
    assert (y[5:] == 7).all()


@on_every_target
def test_senseless_scalars_are_refused(library: Library) -> None:
    good = {"rows_capacity": 4, "x_rows": 4, "width": 64, "epsilon": EPSILON}
    for wrong in ({"rows_capacity": 0}, {"x_rows": -1}, {"width": 0}, {"width": -64}, {"width": 2**31 - 1}):
        for name in ("rms_norm.1", "rms_norm_q8.1", "rms_norm_bf16.1"):
            assert REFUSED not in library[name].extents(**good).values()
            assert set(library[name].extents(**good | wrong).values()) == {REFUSED}
    for name in ("rms_norm_q8.1", "rms_norm_bf16.1"):
        assert set(library[name].extents(**good | {"width": 40}).values()) == {REFUSED}
    for name in ("quantize_q8.1", "round_bf16.1"):
        assert set(library[name].extents(rows_capacity=4, width=40).values()) == {REFUSED}
