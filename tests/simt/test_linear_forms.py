"""The tensor-core linear maps: both forms over ragged shapes, in every order and copy mode; faults planted in them show."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.compiling import ROOT, compile_cpp
from tests.kernels.formats import BF16_ROWS, random_weights
from tests.kernels.harness import Library, load
from tests.kernels.test_linear import make_input, relative_error, run_linear
from tests.simt.conduct import CONDUCTS, Conduct, conducted

NATIVE = Path(__file__).parent / "native"
CAPACITY = 70  # room for both forms
# Fewer blocks of 32 inputs than parts, as many, and parts that differ; outputs that end in the middle of a group and of a tile.
SHAPES = [(5, 32, 3), (40, 96, 8), (16, 256, 32), (140, 288, 33), (272, 576, 70)]  # n_out, n_in, n_rows


@dataclass(frozen=True)
class Case:
    """A linear map and its input; the outputs stand in rows that are 3 floats longer."""

    layout: str
    kernel: str
    n_out: int
    x: np.ndarray
    weights: Any

    @classmethod
    def random(cls, layout: str, kernel: str, n_out: int, n_in: int, n_rows: int) -> Case:
        rng = np.random.default_rng(n_out * n_in * n_rows)
        if kernel == "linear_silu_gate":
            n_out = -(-n_out // 16) * 16
        n_weight_rows = 2 * n_out if kernel == "linear_silu_gate" else n_out
        x = rng.standard_normal((n_rows, n_in)).astype(np.float32)
        return cls(layout, kernel, n_out, x, random_weights(layout, n_weight_rows, n_in, rng))

    def run(self, library: Library, rows: slice = slice(None), capacity: int = CAPACITY) -> np.ndarray:
        x = self.x[rows]
        y = np.full((capacity, self.n_out + 3), 0.5, np.float32)
        given = make_input(library, self.layout, x, capacity)
        run_linear(library, f"{self.kernel}.{self.layout}.1", self.weights, given.stored, y, len(x), self.n_out)
        assert (y[len(x) :] == 0.5).all()
        assert (y[:, self.n_out :] == 0.5).all()
        return y[: len(x), : self.n_out]

    def expected(self, library: Library) -> np.ndarray:
        """In float64."""
        product = make_input(library, self.layout, self.x, len(self.x)).times(self.weights)
        if self.kernel == "linear":
            return product
        if self.kernel == "linear_add":
            return 0.5 + product
        gate, up = product.reshape(len(product), -1, 2, 16).transpose(2, 0, 1, 3).reshape(2, len(product), -1)
        return gate / (1 + np.exp(-gate)) * up


@pytest.mark.parametrize("layout", BF16_ROWS)
@pytest.mark.parametrize("kernel", ["linear", "linear_add", "linear_silu_gate"])
def test_both_forms_agree_with_float64_and_the_cpu_in_every_conduct(layout: str, kernel: str) -> None:
    """CARD-3."""
    simt, cpu = load("simt"), load("x86-64")
    for shape in SHAPES:
        case = Case.random(layout, kernel, *shape)
        outputs = []
        for conduct in CONDUCTS:
            with conducted(conduct):
                outputs.append(case.run(simt))
        assert relative_error(outputs[0], case.expected(simt)) < 1e-6
        assert relative_error(outputs[0], case.run(cpu).astype(np.float64)) < 1e-6
        for other in outputs[1:]:
            assert (other.view(np.uint32) == outputs[0].view(np.uint32)).all()


@pytest.mark.parametrize("layout", BF16_ROWS)
def test_a_row_alone_has_the_bits_that_it_has_in_the_form_for_many(layout: str) -> None:
    """Design 7: exactness."""
    simt = load("simt")
    case = Case.random(layout, "linear", 140, 608, CAPACITY)
    together = case.run(simt)
    for row in (0, 31, 32, 63, 64, 69):
        for capacity in (1, CAPACITY):
            alone = case.run(simt, slice(row, row + 1), capacity)
            assert (alone.view(np.uint32) == together[row : row + 1].view(np.uint32)).all()


Run = Callable[[Case, Conduct], tuple[np.ndarray, str]]


def planted(directory: Path, faults: dict[str, str]) -> Run:
    """linear.q4_1.g16k8 compiled from its source with each text replaced, run outside the kernel library."""
    cuda = ROOT / "cuda_src" / "cuda"
    header = (cuda / "linear_g16.h").read_text()
    for right, wrong in faults.items():
        assert header.count(right) == 1, f"linear_g16.h has no one place like {right}"
        header = header.replace(right, wrong)
    (directory / "linear_g16.h").write_text(header)
    simt = ROOT / "cuda_src" / "simt"
    sources = [NATIVE / "planted_linear.cu", simt / "block.cpp", simt / "fiber.cpp"]
    include = [f"-I{directory}", f"-I{cuda}", f"-I{ROOT / 'cuda_src'}"]
    flags = ["-x", "c++", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden", *include]
    result = compile_cpp(directory / "libplanted.so", sources, flags)
    assert result.returncode == 0, result.stderr
    return partial(run_planted, ctypes.CDLL(str(directory / "libplanted.so")))


def run_planted(library: ctypes.CDLL, case: Case, conduct: Conduct) -> tuple[np.ndarray, str]:
    """What linear.q4_1.g16k8 gives, and the emulator's failure."""
    n_rows, n_in = case.x.shape
    stored = make_input(load("simt"), case.layout, case.x, CAPACITY).stored
    y, failure = np.zeros((CAPACITY, case.n_out), np.float32), ctypes.create_string_buffer(1000)
    order, seed, copies = conduct.words
    arrays = (np.array([n_rows], np.int32), stored, case.weights.packed, y)
    library.run_planted(
        *(ctypes.c_void_p(array.ctypes.data) for array in arrays),
        *(
            CAPACITY,
            n_in,
            case.n_out,
            case.n_out,
            order,
            ctypes.c_uint64(seed),
            copies,
            failure,
            ctypes.c_size_t(len(failure)),
        ),
    )
    return y[:n_rows], failure.value.decode()


FEW, MANY = (40, 1760, 8), (140, 288, 33)  # the first takes more stages than its ring has
FAULTS = {
    "few rows, the warp does not meet": (FEW, "__syncwarp();  // the stage", "// the stage"),
    "few rows, the parts are added too early": (FEW, "    __syncthreads();\n    const int me", "    const int me"),
    "few rows, one group of copies too many under way": (
        *(FEW, "wait_copies<kStages - 2>();\n      __syncwarp()", "wait_copies<kStages - 1>();\n      __syncwarp()"),
    ),
    "few rows, a sum past the end": (FEW, "partials[warp][group][(", "partials[warp][group][(warp == 7) + ("),
    "many rows, the block does not meet": (MANY, "__syncthreads();  // the stage", "// the stage"),
    "many rows, one group of copies too many under way": (
        *(
            MANY,
            "wait_copies<kStages - 2>();\n        __syncthreads()",
            "wait_copies<kStages - 1>();\n        __syncthreads()",
        ),
    ),
}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return planted(tmp_path_factory.mktemp("right"), {})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows_in_some_conduct(tmp_path: Path, right: Run, fault: str) -> None:
    """CARD-3."""
    shape, text, wrong_text = FAULTS[fault]
    wrong = planted(tmp_path, {text: wrong_text})
    case = Case.random("q4_1.g16k8", "linear", *shape)
    expected, failure = right(case, Conduct())
    assert failure == ""
    assert relative_error(expected, case.expected(load("simt"))) < 1e-6
    assert any(failure or not np.array_equal(y, expected) for y, failure in (wrong(case, each) for each in CONDUCTS))
