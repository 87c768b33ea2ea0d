"""The tensor-core linear maps: every form over ragged shapes, in every order and copy mode; faults planted in them show."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.device.compiling import ROOT, compile_cpp
from tests.kernels import test_linear
from tests.kernels.formats import BF16_ROWS, random_weights
from tests.kernels.harness import Library, load
from tests.kernels.test_linear import make_input, relative_error, run_linear
from tests.simt.conduct import CONDUCTS, SM_90A_CONDUCTS, Conduct, conducted
from tests.simt.faults import NATIVE

CAPACITY = 70  # room for every form
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
@pytest.mark.parametrize("conducts", [CONDUCTS, SM_90A_CONDUCTS], ids=["sm_80", "sm_90a"])
def test_every_form_agrees_with_float64_and_the_cpu_in_every_conduct(
    layout: str, kernel: str, conducts: list[Conduct]
) -> None:
    """CARD-3."""
    simt, cpu = load("simt"), load("x86-64")
    for shape in SHAPES:
        case = Case.random(layout, kernel, *shape)
        outputs = []
        for conduct in conducts:
            with conducted(conduct):
                outputs.append(case.run(simt))
        assert relative_error(outputs[0], case.expected(simt)) < 1e-6
        assert relative_error(outputs[0], case.run(cpu).astype(np.float64)) < 1e-6
        for other in outputs[1:]:
            assert (other.view(np.uint32) == outputs[0].view(np.uint32)).all()


@pytest.mark.parametrize("layout", BF16_ROWS)
@pytest.mark.parametrize("conduct", [Conduct(), Conduct(architecture="sm_90a")], ids=["sm_80", "sm_90a"])
def test_a_row_alone_has_the_bits_that_it_has_in_every_form_for_more(layout: str, conduct: Conduct) -> None:
    """Design 7: exactness. 8 and 32 are the most rows of a form."""
    simt = load("simt")
    case = Case.random(layout, "linear", 140, 608, CAPACITY)
    with conducted(conduct):
        together = case.run(simt)
        for n_rows in (1, 8, 9, 32, 33):
            some = case.run(simt, slice(0, n_rows))
            assert (some.view(np.uint32) == together[:n_rows].view(np.uint32)).all()
        for row in (0, 31, 32, 63, 64, 69):
            for capacity in (1, CAPACITY):
                alone = case.run(simt, slice(row, row + 1), capacity)
                assert (alone.view(np.uint32) == together[row : row + 1].view(np.uint32)).all()


@pytest.mark.parametrize("layout", BF16_ROWS)
def test_what_is_asked_of_linear_maps_holds_on_sm_90a(layout: str) -> None:
    """CARD-3."""
    simt = load("simt")
    with conducted(SM_90A_CONDUCTS[-1]):
        test_linear.test_outputs_are_those_of_float64_on_the_same_inputs(simt, layout, 99, 288)
        test_linear.test_linear_add_adds_and_silu_gate_gates(simt, layout)
        test_linear.test_a_row_that_is_not_finite_stays_alone(simt, layout)


Run = Callable[[Case, Conduct], tuple[np.ndarray, str, int]]


Plant = Callable[[dict[str, str]], Run]


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Plant:
    """plant({right: wrong}): linear.q4_1.g16k8 compiled from its source with each text replaced, run outside the kernel library."""
    cuda, simt = ROOT / "cuda_src" / "cuda", ROOT / "cuda_src" / "simt"
    optimised = ["-O1", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden"]
    emulator = []
    for name in ("block", "fiber", "warpgroup"):
        emulator.append(tmp_path_factory.mktemp("emulator") / f"{name}.o")
        result = compile_cpp(emulator[-1], [simt / f"{name}.cpp"], ["-c", *optimised])
        assert result.returncode == 0, result.stderr

    def compile_planted(faults: dict[str, str]) -> Run:
        headers = {name: (cuda / name).read_text() for name in ("linear_g16.h", "linear_g16_warpgroup.h")}
        for right, wrong in faults.items():
            (name,) = [name for name, text in headers.items() for _ in range(text.count(right))]
            headers[name] = headers[name].replace(right, wrong)
        directory = tmp_path_factory.mktemp("planted")
        for name, text in headers.items():
            (directory / name).write_text(text)
        include = [f"-I{directory}", f"-I{cuda}"]
        flags = [*map(str, emulator), *optimised, "-shared", *include, "-x", "c++"]
        library = directory / "libplanted.so"
        result = compile_cpp(library, [NATIVE / "planted_linear.cu"], flags)
        assert result.returncode == 0, result.stderr
        return partial(run_planted, ctypes.CDLL(str(library)))

    return compile_planted


def run_planted(library: ctypes.CDLL, case: Case, conduct: Conduct) -> tuple[np.ndarray, str, int]:
    """What linear.q4_1.g16k8 gives, the emulator's failure, and how many bytes of weights it copied."""
    n_rows, n_in = case.x.shape
    stored = make_input(load("simt"), case.layout, case.x, CAPACITY).stored
    y, failure = np.zeros((CAPACITY, case.n_out), np.float32), ctypes.create_string_buffer(1000)
    order, seed, copies, architecture = conduct.words
    n_copied = ctypes.c_uint64()
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
            architecture,
            ctypes.c_uint64(case.weights.packed.nbytes),
            ctypes.byref(n_copied),
            failure,
            ctypes.c_size_t(len(failure)),
        ),
    )
    return y[:n_rows], failure.value.decode(), n_copied.value


FEW, MANY = (40, 1760, 8), (140, 288, 33)  # the first takes more stages than its ring has
RING, SOME = (40, 7840, 8), (70, 3936, 20)  # the same for the tiles of two teams
# Every matrix has the tiles of large ones.
LARGE = {"kManyGroups = 512": "kManyGroups = 1", "kSomeGroups = 128": "kSomeGroups = 1"}
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
SM_90A_FAULTS = {
    "weights are not waited for": (RING, "        wait_for_phase(barriers + stage.slot, parity);\n", ""),
    "the parity of the phase before": (SOME, "parity ^= stage.slot == 0", "parity = 0"),
    "a group's copy expects too few bytes": (
        *(
            RING,
            "arrive_and_expect(barriers + stage.slot, nbytes)",
            "arrive_and_expect(barriers + stage.slot, nbytes - 16)",
        ),
    ),
    "one arrival too few": (
        RING,
        "init_barrier(barriers + team.me, kTeamWarps)",
        "init_barrier(barriers + team.me, kTeamWarps - 1)",
    ),
    "one stage of weights too many under way": (
        *(SOME, "i < kStages - 1; i++) fetch_weights()", "i < kStages; i++) fetch_weights()"),
    ),
    "activations are not waited for": (RING, "wait_copies<kXStages - 2>()", "wait_copies<kXStages - 1>()"),
    "activations are not fenced": (RING, "        fence_for_async();\n        team.sync()", "        team.sync()"),
    "the team does not meet": (SOME, "        team.sync();  // the stage's inputs", "        // the stage's inputs"),
    "products are not begun": (RING, "      begin_products();\n", ""),
    "a product is scaled before its end": (MANY, "      end_products(product);\n", ""),
    "the first part does not wait for the others' sums": (
        *(RING, "return;\n    __syncthreads();\n    if (is_first)", "return;\n    if (is_first)"),
    ),
    "the other parts do not wait until their sums are read": (
        *(SOME, "part * kPartThreads];\n    __syncthreads();\n", "part * kPartThreads];\n"),
    ),
}


@pytest.fixture(scope="module")
def right(plant: Plant) -> Run:
    return plant({})


@pytest.fixture(scope="module")
def large(plant: Plant) -> Run:
    return plant(LARGE)


@pytest.mark.parametrize("conducts", [CONDUCTS, SM_90A_CONDUCTS], ids=["sm_80", "sm_90a"])
def test_a_large_matrix_gives_the_bits_of_a_small_one(right: Run, large: Run, conducts: list[Conduct]) -> None:
    """Design 7: the size of a matrix chooses a tile, never a sum."""
    for shape in (RING, SOME, (99, 288, 3), (5, 32, 8), (140, 288, 32)):
        case = Case.random("q4_1.g16k8", "linear", *shape)
        expected, failure, _ = right(case, conducts[0])
        assert failure == ""
        for conduct in conducts:
            y, failure, _ = large(case, conduct)
            assert failure == ""
            assert (y.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("conduct", [CONDUCTS[0], SM_90A_CONDUCTS[0]], ids=["sm_80", "sm_90a"])
def test_up_to_32_rows_read_the_weights_of_a_large_matrix_once(right: Run, large: Run, conduct: Conduct) -> None:
    """CARD-3. A small one has more blocks instead, each for 8 rows, where a warpgroup does not multiply 32."""
    for n_rows in (1, 8, 9, 20, 32):
        case = Case.random("q4_1.g16k8", "linear", 140, 288, n_rows)
        nbytes = case.weights.packed.nbytes
        n_times = -(-n_rows // 8) if conduct.architecture == "sm_80" else 1
        assert (large(case, conduct)[2], right(case, conduct)[2]) == (nbytes, n_times * nbytes)


@pytest.mark.parametrize("fault", [*FAULTS, *SM_90A_FAULTS])
def test_a_planted_fault_shows_in_some_conduct(plant: Plant, right: Run, fault: str) -> None:
    """CARD-3."""
    conducts = CONDUCTS if fault in FAULTS else SM_90A_CONDUCTS
    shape, text, wrong_text = (FAULTS | SM_90A_FAULTS)[fault]
    wrong = plant({text: wrong_text})
    case = Case.random("q4_1.g16k8", "linear", *shape)
    expected, failure, _ = right(case, conducts[0])
    assert failure == ""
    assert relative_error(expected, case.expected(load("simt"))) < 1e-6
    assert any(failure or not np.array_equal(y, expected) for y, failure, _ in (wrong(case, each) for each in conducts))
