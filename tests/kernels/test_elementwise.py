"""add_bias and silu_gate."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import REFUSED, Library, int32, on_every_target


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_bias_is_added_to_live_rows_and_columns(library: Library, order: str) -> None:
    rng = np.random.default_rng(1)
    y, bias = rng.standard_normal((20, 203)).astype(np.float32), rng.standard_normal(199).astype(np.float32)
    expected = y.copy()
    expected[:13, :199] += bias
    library["add_bias.1"].launch(
        n_rows=int32(13), bias=bias, y=y, rows_capacity=20, n_out=199, y_stride=203, order=order
    )
    np.testing.assert_array_equal(y, expected)


@on_every_target
@pytest.mark.parametrize("width", [1, 13, 1536])
@pytest.mark.parametrize("is_in_place", [False, True])
def test_silu_gate_is_the_same_in_any_place(library: Library, width: int, is_in_place: bool) -> None:
    rng = np.random.default_rng(2)
    gate, up = (rng.standard_normal((9, width)).astype(np.float32) * 10 for _ in range(2))
    y = np.full((9, width), 7, np.float32)
    given = {"gate": gate.copy(), "up": up} if is_in_place else {"gate": gate, "up": up, "y": y}
    aliases = {"y": "gate"} if is_in_place else None
    library["silu_gate.1"].launch(
        n_rows=int32(6), rows_capacity=9, width=width, aliases=aliases, order="shuffled", **given
    )
    result = given["gate"] if is_in_place else y
    exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
    np.testing.assert_allclose(result[:6], exact[:6], rtol=2e-6, atol=1e-30)
    np.testing.assert_array_equal(result[6:], gate[6:] if is_in_place else y[6:])


@on_every_target
def test_silu_of_large_values_neither_overflows_nor_hides_nan(library: Library) -> None:
    gate = np.array([[-1e30, -200, -88, 0, 88, 200, 1e30, np.nan]], np.float32)
    y = np.empty((1, 8), np.float32)
    library["silu_gate.1"].launch(
        n_rows=int32(1), gate=gate, up=np.ones((1, 8), np.float32), y=y, rows_capacity=1, width=8
    )
    assert np.isnan(y[0, 7])
    np.testing.assert_allclose(y[0, 1:7], [0, 0, 0, 88, 200, 1e30], rtol=1e-6, atol=1e-30)


@on_every_target
def test_senseless_scalars_are_refused(library: Library) -> None:
    for wrong in ({"n_out": 0}, {"y_stride": 7}, {"rows_capacity": -1}, {"n_out": 2**31 - 1, "y_stride": 2**31 - 1}):
        scalars = {"rows_capacity": 2, "n_out": 8, "y_stride": 8} | wrong
        assert set(library["add_bias.1"].extents(**scalars).values()) == {REFUSED}
    for wrong in ({"width": 0}, {"rows_capacity": 0}, {"width": -8}):
        assert set(library["silu_gate.1"].extents(**{"rows_capacity": 2, "width": 8} | wrong).values()) == {REFUSED}
