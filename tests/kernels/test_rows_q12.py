"""rms_norm_q12 and quantize_q12."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import REFUSED, Library, on_every_target
from tests.kernels.q12 import GROUP, Q12Rows, quantised, rows_nbytes, rows_parts
from tests.kernels.test_norm import EPSILON, run_norm


def check(rows: Q12Rows) -> None:
    """What always holds of q12 rows: their parts agree and are within their bounds."""
    assert (rows.tiles == rows.numbers).all()
    assert (rows.sums == rows.numbers.reshape(*rows.sums.shape, 16).sum(axis=2)).all()
    assert ((rows.factors >= 1) & (rows.factors <= 16)).all()
    assert (np.abs(rows.q) <= 127).all()


@on_every_target
@pytest.mark.parametrize("width", [64, 576, 512, 704, 1536])
def test_numbers_are_within_half_a_step_of_their_half_block(library: Library, width: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((19, width)).astype(np.float32)
    x[:, ::48] *= 40
    x[3] = 0
    x[4, :16] = 0
    x[5] *= np.float32(1e-20)
    rows = rows_parts(quantised(library, x, 20), 20, 19, width)
    check(rows)
    for begin in range(0, width, GROUP):
        part = x[:, begin : begin + GROUP]
        scales = rows.scales[:, begin // GROUP]
        np.testing.assert_allclose(scales, np.abs(part).max(axis=1) / 2032, rtol=1e-6)
    steps = np.repeat(rows.scales, GROUP, axis=1)[:, :width] * np.repeat(rows.factors, 16, axis=1)
    assert (np.abs(rows.values - x) <= steps * 0.50001).all()
    halves = np.abs(x).reshape(19, -1, 16).max(axis=2)
    smaller = (rows.factors - 1) * 127 * steps.reshape(19, -1, 16)[:, :, 0] / rows.factors  # would have been too small
    assert (halves[:3] > smaller[:3] * 0.99999).all()


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_a_row_has_the_same_bits_in_every_batch_and_fused_with_its_norm(library: Library, order: str) -> None:
    rng = np.random.default_rng(3)
    width = 704
    x = rng.standard_normal((64, width)).astype(np.float32)
    weight = rng.uniform(0.5, 2, width).astype(np.float32)
    for n_rows in (1, 5, 16, 33, 64):
        together, floats = np.zeros(rows_nbytes(64, width), np.uint8), np.empty((64, width), np.float32)
        run_norm(library, "rms_norm_q12.1", list(range(n_rows)), x, weight, together, order=order)
        run_norm(library, "rms_norm.1", list(range(n_rows)), x, weight, floats, order=order)
        np.testing.assert_array_equal(together, quantised(library, floats[:n_rows], 64))
        fused = rows_parts(together, 64, n_rows, width)
        check(fused)
        for row in (0, n_rows - 1):
            alone = np.zeros(rows_nbytes(64, width), np.uint8)
            run_norm(library, "rms_norm_q12.1", [row], x, weight, alone)
            assert (rows_parts(alone, 64, 1, width).values[0] == fused.values[row]).all()


@on_every_target
def test_ties_round_to_even_and_factors_rise(library: Library) -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, :6] = [2032, 8, 24, -40, 2024, -2032]
    x[0, 16:20] = [127, 0.5, 1.5, -2.5]
    x[0, 32:34] = [127.25, 1]
    rows = rows_parts(quantised(library, x, 1), 1, 1, 64)
    assert rows.scales[0, 0] == 1
    assert rows.factors[0].tolist() == [16, 1, 2, 1]
    assert rows.q[0, :6].tolist() == [127, 0, 2, -2, 126, -127]
    assert rows.q[0, 16:20].tolist() == [127, 0, 2, -2]
    assert rows.q[0, 32:34].tolist() == [64, 0]


@on_every_target
def test_a_group_that_is_not_finite_is_zeros_with_a_nan_scale(library: Library) -> None:
    for poison in (np.nan, np.inf, -np.inf):
        x = np.ones((2, 704), np.float32)
        x[1, 3] = poison
        rows = rows_parts(quantised(library, x, 2), 2, 2, 704)
        check(rows)
        assert np.isnan(rows.scales[1, 0])
        assert (rows.q[1, :GROUP] == 0).all()
        assert np.isfinite(rows.scales[[0, 0, 1], [0, 1, 1]]).all()


@on_every_target
def test_row_indices_outside_the_input_leave_their_output_alone(library: Library) -> None:
    y = np.full(rows_nbytes(64, 64), 7, np.uint8)
    run_norm(
        library,
        "rms_norm_q12.1",
        [-1, 4, 2**31 - 1, -(2**31)],
        np.ones((4, 64), np.float32),
        np.ones(64, np.float32),
        y,
    )
    assert (y == 7).all()


@on_every_target
def test_senseless_scalars_are_refused(library: Library) -> None:
    good = {"rows_capacity": 4, "x_rows": 4, "width": 64, "epsilon": EPSILON}
    for wrong in ({"rows_capacity": 0}, {"x_rows": -1}, {"width": 0}, {"width": 96}, {"width": 2**31 - 64}):
        assert REFUSED not in library["rms_norm_q12.1"].extents(**good).values()
        assert set(library["rms_norm_q12.1"].extents(**good | wrong).values()) == {REFUSED}
    assert set(library["quantize_q12.1"].extents(rows_capacity=4, width=96).values()) == {REFUSED}
