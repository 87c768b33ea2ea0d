"""embed over every weight format."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.formats import ALL, random_weights
from tests.kernels.harness import REFUSED, Library, counts, int32, on_every_target


@on_every_target
@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize("order", ["serial", "shuffled"])
def test_rows_are_those_of_the_tokens(library: Library, layout: str, order: str) -> None:
    rng = np.random.default_rng(1)
    vocabulary, hidden, capacity = 21, 1056, 16
    weights = random_weights(layout, vocabulary, hidden, rng)
    tokens = rng.integers(0, vocabulary, capacity).astype(np.int32)
    tokens[:3] = [0, 20, 8]
    x = np.full((capacity, hidden), np.nan, np.float32)
    library[f"embed.{layout}.1"].launch(
        counts=counts(11),
        row_token=tokens,
        weight=weights.packed,
        x=x,
        rows_capacity=capacity,
        hidden=hidden,
        vocabulary=vocabulary,
        order=order,
    )
    np.testing.assert_allclose(x[:11], weights.values[tokens[:11]], rtol=1e-6, atol=1e-7)
    assert np.isnan(x[11:]).all()


@on_every_target
@pytest.mark.parametrize("layout", ALL)
def test_tokens_outside_the_vocabulary_leave_their_row_alone(library: Library, layout: str) -> None:
    weights = random_weights(layout, 21, 32, np.random.default_rng(1))
    x = np.full((4, 32), 7, np.float32)
    library[f"embed.{layout}.1"].launch(
        counts=counts(2**31 - 1),
        row_token=int32(-1, 21, 2**31 - 1, 20),
        weight=weights.packed,
        x=x,
        rows_capacity=4,
        hidden=32,
        vocabulary=21,
    )
    assert (x[:3] == 7).all()
    np.testing.assert_allclose(x[3], weights.values[20], rtol=1e-6, atol=1e-7)


@on_every_target
def test_senseless_scalars_are_refused(library: Library) -> None:
    good = {"rows_capacity": 4, "hidden": 64, "vocabulary": 10}
    for wrong in (
        {"rows_capacity": 0},
        {"hidden": 48},
        {"hidden": 0},
        {"hidden": -32},
        {"vocabulary": 0},
        {"vocabulary": 2**31 - 1},
    ):
        assert REFUSED not in library["embed.q4_1.g8k4.1"].extents(**good).values()
        assert set(library["embed.q4_1.g8k4.1"].extents(**good | wrong).values()) == {REFUSED}
