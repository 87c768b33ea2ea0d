"""linear, linear_add and linear_silu_gate over every weight format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from helios.device import libraries
from helios.ignition.preparation.layouts import LAYOUTS
from tests.kernels.formats import (
    ALL,
    BF16_ROWS,
    FLOATS,
    QUANTISED,
    Weights,
    bf16_rows_nbytes,
    bf16_rows_parts,
    q8_rows_nbytes,
    q8_rows_parts,
    q8_rows_values,
    random_weights,
)
from tests.kernels.harness import CUDA_TARGET, REFUSED, Library, int32, load, on_every_target, runnable_targets

LIVE_COUNTS = [1, 2, 3, 4, 5, 8, 16, 33, 128, 270]
CAPACITY = 280


@dataclass(frozen=True)
class Input:
    """A kernel's input: the bytes it reads, the values they stand for, and by how much the stored block sums are off from them."""

    stored: np.ndarray
    values: np.ndarray
    excess_sums: np.ndarray

    def times(self, weights: Weights) -> np.ndarray:
        """The product in float64, as the kernels define it: offsets of blocks meet the stored sums."""
        return self.values @ weights.values.T + self.excess_sums @ weights.offsets.T


def make_input(library: Library, layout: str, x: np.ndarray, rows_capacity: int) -> Input:
    """The kernel's input for float rows x."""
    n_rows, width = x.shape
    padded = np.zeros((rows_capacity, width), np.float32)
    padded[:n_rows] = x
    if layout in FLOATS:
        return Input(padded, x.astype(np.float64), np.zeros((n_rows, width // 32)))
    if layout in BF16_ROWS:
        stored = np.zeros(bf16_rows_nbytes(rows_capacity, width), np.uint8)
        library["round_bf16.1"].launch(
            n_rows=int32(n_rows), x=padded, y=stored, rows_capacity=rows_capacity, width=width
        )
        rounded, sums = (part.astype(np.float64) for part in bf16_rows_parts(stored, rows_capacity, n_rows, width))
        with np.errstate(invalid="ignore"):  # a row may be poisoned
            return Input(stored, rounded, sums - rounded.reshape(n_rows, -1, 32).sum(axis=2))
    stored = np.zeros(q8_rows_nbytes(rows_capacity, width), np.uint8)
    library["quantize_q8.1"].launch(n_rows=int32(n_rows), x=padded, y=stored, rows_capacity=rows_capacity, width=width)
    values = q8_rows_values(stored, rows_capacity, n_rows, width)
    _, scales = q8_rows_parts(stored, rows_capacity, n_rows, width)
    return Input(stored, values, scales[..., 2].astype(np.float64) - values.reshape(n_rows, -1, 32).sum(axis=2))


def run_linear(
    library: Library, name: str, weights: Weights, x: np.ndarray, y: np.ndarray, n_rows: int, n_out: int, **how: object
) -> int:
    n_in = weights.values.shape[1]
    return library[name].launch(
        n_rows=int32(n_rows),
        x=x,
        weight=weights.packed,
        y=y,
        rows_capacity=len(y),
        n_in=n_in,
        n_out=n_out,
        y_stride=y.shape[1],
        **how,
    )


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.sqrt(((actual - expected) ** 2).sum() / (expected**2).sum()))


@on_every_target
@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize(("n_out", "n_in"), [(40, 64), (99, 288), (8, 32)])
def test_outputs_are_those_of_float64_on_the_same_inputs(library: Library, layout: str, n_out: int, n_in: int) -> None:
    rng = np.random.default_rng(1)
    weights = random_weights(layout, n_out, n_in, rng)
    for n_rows in (1, 3, 9):
        given = make_input(library, layout, rng.standard_normal((n_rows, n_in)).astype(np.float32), 12)
        y = np.full((12, n_out + 5), np.nan, np.float32)
        run_linear(library, f"linear.{layout}.1", weights, given.stored, y, n_rows, n_out)
        assert relative_error(y[:n_rows, :n_out], given.times(weights)) < 1e-6
        assert np.isnan(y[n_rows:]).all()
        assert np.isnan(y[:, n_out:]).all()


@on_every_target
@pytest.mark.parametrize("layout", ALL)
def test_linear_add_adds_and_silu_gate_gates(library: Library, layout: str) -> None:
    rng = np.random.default_rng(2)
    n_group = LAYOUTS[layout].group
    weights = random_weights(layout, 6 * n_group, 96, rng)
    given = make_input(library, layout, rng.standard_normal((7, 96)).astype(np.float32) * 8, 7)
    before = rng.standard_normal((7, 6 * n_group)).astype(np.float32)
    y = before.copy()
    run_linear(library, f"linear_add.{layout}.1", weights, given.stored, y, 7, 6 * n_group)
    product = given.times(weights)
    assert relative_error(y, before + product) < 1e-6
    y = np.empty((7, 3 * n_group), np.float32)
    run_linear(library, f"linear_silu_gate.{layout}.1", weights, given.stored, y, 7, 3 * n_group)
    groups = product.reshape(7, 3, 2, n_group)
    gate, up = (groups[:, :, part].reshape(7, -1) for part in (0, 1))
    assert relative_error(y, gate / (1 + np.exp(-gate)) * up) < 1e-6


@on_every_target
@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize("kernel", ["linear", "linear_add", "linear_silu_gate"])
def test_a_row_has_the_same_bits_in_every_batch(library: Library, layout: str, kernel: str) -> None:
    rng = np.random.default_rng(3)
    n_out = LAYOUTS[layout].group * 13 - (0 if kernel == "linear_silu_gate" else 4)  # padded where it may be
    n_in = 160
    weights = random_weights(layout, 2 * n_out if kernel == "linear_silu_gate" else n_out, n_in, rng)
    x = rng.standard_normal((CAPACITY, n_in)).astype(np.float32)
    before = rng.standard_normal((CAPACITY, n_out)).astype(np.float32)
    alone = before.copy()
    for row in range(LIVE_COUNTS[-1]):
        given = make_input(library, layout, x[row : row + 1], 1)
        run_linear(library, f"{kernel}.{layout}.1", weights, given.stored, alone[row : row + 1], 1, n_out)
    grids = set()
    for n_rows in LIVE_COUNTS:
        given = make_input(library, layout, x[:n_rows], CAPACITY)
        for n_threads, order in [(1, "serial"), (2, "shuffled"), (3, "threads"), (64, "serial")]:
            y = before.copy()
            name = f"{kernel}.{layout}.1"
            grids.add(
                run_linear(library, name, weights, given.stored, y, n_rows, n_out, n_threads=n_threads, order=order)
            )
            assert (y[:n_rows].view(np.uint32) == alone[:n_rows].view(np.uint32)).all()
            assert (y[n_rows:] == before[n_rows:]).all()
    assert len(grids) > 2 or not library.counts_tasks


@pytest.mark.parametrize("layout", BF16_ROWS)
@pytest.mark.parametrize("n_in", [32, 96, 160, 2112])
def test_every_host_target_that_fuses_gives_the_bits_of_the_matrix_unit(layout: str, n_in: int) -> None:
    """Blocks in odd and even numbers, and more than the kernels take in one go."""
    rng = np.random.default_rng(6)
    weights = random_weights(layout, 80, n_in, rng)
    x = rng.standard_normal((37, n_in)).astype(np.float32)
    outputs = {}
    for target in runnable_targets():
        if target in (libraries.SIMT_TARGET, CUDA_TARGET, "x86-64"):  # another order; no fused multiply-add
            continue
        library = load(target)
        given = make_input(library, layout, x, 37)
        for n_rows in (1, 2, 7, 16, 37):
            y = np.zeros((37, 80), np.float32)
            run_linear(library, f"linear.{layout}.1", weights, given.stored, y, n_rows, 80)
            outputs[target, n_rows] = y[:n_rows].view(np.uint32)
    first = outputs[next(iter(outputs))[0], 37]
    for (target, n_rows), y in outputs.items():
        assert (y == first[:n_rows]).all(), f"{target}, {n_rows} rows"


@on_every_target
@pytest.mark.parametrize(
    ("layout", "byte"),
    [
        (f"{kind}.{grouping}", byte)
        for kind, byte in (("q4_1", 0xFF), ("q4_0", 0xFF), ("q8_0", 0x80), ("q8_0", 0x7F))
        for grouping in ("g8k4", "g16k8")
    ],
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_extreme_weights_and_activations_do_not_overflow(library: Library, layout: str, byte: int, sign: int) -> None:
    n_in = 320
    kind = layout.split(".", maxsplit=1)[0]
    block = {"q4_1": 20, "q4_0": 18, "q8_0": 34}[kind]
    raw = np.full((8, n_in // 32, block), byte, np.uint8)
    raw[..., :2] = np.array([1.0], np.float16).view(np.uint8)
    if kind == "q4_1":
        raw[..., 2:4] = 0
    packed = LAYOUTS[layout].pack([raw.reshape(8, -1)])
    weight = {"q4_1": 15, "q4_0": 7}.get(kind, int(np.int8(np.uint8(byte))))
    for n_rows in (1, 2, 8):
        given = make_input(library, layout, np.full((n_rows, n_in), sign, np.float32), n_rows)
        y = np.empty((n_rows, 8), np.float32)
        run_linear(
            library,
            f"linear.{layout}.1",
            Weights(raw, packed, np.empty((8, n_in)), np.empty(0)),
            given.stored,
            y,
            n_rows,
            8,
        )
        np.testing.assert_allclose(y, sign * weight * n_in, rtol=1e-6)


@on_every_target
@pytest.mark.parametrize("layout", QUANTISED + BF16_ROWS)
def test_a_row_that_is_not_finite_stays_alone(library: Library, layout: str) -> None:
    rng = np.random.default_rng(4)
    weights = random_weights(layout, 16, 64, rng)
    x = rng.standard_normal((6, 64)).astype(np.float32)
    given = make_input(library, layout, x, 6)
    expected = np.empty((6, 16), np.float32)
    run_linear(library, f"linear.{layout}.1", weights, given.stored, expected, 6, 16)
    for poison in (np.nan, np.inf, -np.inf):
        poisoned = x.copy()
        poisoned[2, 40] = poison
        given = make_input(library, layout, poisoned, 6)
        y = np.empty((6, 16), np.float32)
        run_linear(library, f"linear.{layout}.1", weights, given.stored, y, 6, 16)
        assert not np.isfinite(y[2]).any()  # an infinity stays one in bf16
        others = [0, 1, 3, 4, 5]
        assert (y[others] == expected[others]).all()


@on_every_target
def test_live_counts_are_clamped_to_the_capacity(library: Library) -> None:
    rng = np.random.default_rng(5)
    weights = random_weights("q4_1.g8k4", 16, 64, rng)
    given = make_input(library, "q4_1.g8k4", rng.standard_normal((6, 64)).astype(np.float32), 6)
    for n_rows in (-1, -(2**31), 0):
        y = np.full((6, 16), 7, np.float32)
        n_tasks = run_linear(library, "linear.q4_1.g8k4.1", weights, given.stored, y, n_rows, 16)
        assert n_tasks == 0 or not library.counts_tasks
        assert (y == 7).all()
    for n_rows in (7, 2**31 - 1):
        y = np.full((6, 16), 7, np.float32)
        run_linear(library, "linear.q4_1.g8k4.1", weights, given.stored, y, n_rows, 16)
        assert relative_error(y, given.times(weights)) < 1e-6


@on_every_target
@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize(
    "wrong",
    [
        {"rows_capacity": 0},
        {"rows_capacity": -1},
        {"n_in": 0},
        {"n_in": -32},
        {"n_out": 0},
        {"n_out": -(2**31)},
        {"y_stride": 15},
        {"y_stride": -1},
        {"n_in": 2**31 - 1},
        {"n_out": 2**31 - 1, "y_stride": 2**31 - 1},
    ],
)
def test_senseless_scalars_are_refused(library: Library, layout: str, wrong: dict[str, int]) -> None:
    scalars = {"rows_capacity": 4, "n_in": 64, "n_out": 16, "y_stride": 16}
    for kernel in ("linear", "linear_add", "linear_silu_gate"):
        assert REFUSED not in library[f"{kernel}.{layout}.1"].extents(**scalars).values()
        assert set(library[f"{kernel}.{layout}.1"].extents(**scalars | wrong).values()) == {REFUSED}
    assert set(library[f"linear_silu_gate.{layout}.1"].extents(**scalars | {"n_out": 12}).values()) == {REFUSED}
    if layout not in FLOATS:
        assert set(library[f"linear.{layout}.1"].extents(**scalars | {"n_in": 48}).values()) == {REFUSED}
