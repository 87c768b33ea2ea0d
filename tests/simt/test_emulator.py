"""The emulator runs right kernels in every order and copy mode, and catches each planted fault."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from tests.simt.conduct import CONDUCTS, Conduct
from tests.simt.faults import NATIVE, compile_faults

N = 64
Run = Callable[..., tuple[np.ndarray, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(kernel, fault, conduct): what the kernel gives for INPUT, and the failure."""
    library = compile_faults(tmp_path_factory.mktemp("simt"), "faults.cu")
    pointer = np.ctypeslib.ndpointer(np.float32)
    library.run_fault.argtypes = (
        *(ctypes.c_char_p, pointer, pointer, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int),
        *(ctypes.c_char_p, ctypes.c_size_t),
    )
    library.run_fault.restype = None

    def run_kernel(name: str, fault: int, conduct: Conduct) -> tuple[np.ndarray, str]:
        given, failure = np.full(2 * N, np.nan, np.float32), ctypes.create_string_buffer(1000)
        source = MATRICES if name == "matrices" else INPUT
        library.run_fault(name.encode(), source, given, fault, *conduct.words[:3], failure, len(failure))
        return given[: len(RIGHT[name])], failure.value.decode()

    return run_kernel


INPUT = np.arange(-4, N - 4, dtype=np.float32)
LEFT, UPPER = (
    np.random.default_rng(5).integers(-99, 99, (16, 16)),
    np.random.default_rng(6).integers(-99, 99, (15, 8)),
)
MATRICES = (
    np.concatenate([LEFT.ravel(), UPPER.ravel(), np.full(8, 7)]).astype(np.float32).view(np.uint32) >> 16
).astype(np.uint16)
MATRICES = MATRICES.view(np.float32)  # what run_fault takes
RIGHT = {
    "reverse": INPUT[::-1],
    "staged_copy": INPUT[::-1],
    "overrun": INPUT,
    "diverge": np.repeat(INPUT.reshape(2, 32).sum(axis=1), 32),
    "vote": np.repeat([1000 + 27, 1000 + 32], 32),
    "matrices": (LEFT[:, :15] @ UPPER).astype(np.float32).ravel(),
}


@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_right_in_every_order_and_copy_mode(run: Run, name: str, conduct: Conduct) -> None:
    """CARD-3."""
    given, failure = run(name, 0, conduct)
    assert failure == ""
    assert (given == RIGHT[name]).all()


def wrong(run: Run, name: str, fault: int) -> set[str]:
    """The conducts under which the fault shows in the numbers."""
    return {str(conduct) for conduct in CONDUCTS if not np.array_equal(run(name, fault, conduct)[0], RIGHT[name])}


def test_a_missing_barrier_gives_wrong_numbers(run: Run) -> None:
    """CARD-3: before the read it shows in every order; after it, not in the one in which a waiting thread's turn always comes."""
    assert wrong(run, "reverse", 1) == {str(conduct) for conduct in CONDUCTS}
    assert {str(conduct) for conduct in CONDUCTS if conduct.order != "first_in"} <= wrong(run, "reverse", 2)


def test_a_wrong_wait_count_shows_when_copies_are_deferred(run: Run) -> None:
    """CARD-3."""
    assert wrong(run, "staged_copy", 1) == {str(conduct) for conduct in CONDUCTS if conduct.copies == "deferred"}
    for conduct in CONDUCTS:
        _, failure = run("staged_copy", 2, conduct)
        assert ("asynchronous copies that it did not wait for" in failure) == (conduct.copies == "deferred")


def test_matrices_are_copied_whole_before_they_are_read(run: Run) -> None:
    """CARD-3."""
    assert wrong(run, "matrices", 1) == {str(conduct) for conduct in CONDUCTS if conduct.copies == "deferred"}
    assert wrong(run, "matrices", 3) == {str(conduct) for conduct in CONDUCTS}


@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
def test_a_matrix_row_off_its_alignment_is_a_failure(run: Run, conduct: Conduct) -> None:
    """CARD-3."""
    _, failure = run("matrices", 2, conduct)
    place = failure.removeprefix("kernel matrices, block 0: a matrix row is not aligned to 16 bytes in ldmatrix at ")
    file, line = place.rsplit(":", 1)
    assert file.endswith("faults.cu")
    assert "a.fault == 2" in (NATIVE / "faults.cu").read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
def test_one_element_past_a_shared_array_is_a_failure(run: Run, conduct: Conduct) -> None:
    """CARD-3."""
    _, failure = run("overrun", 1, conduct)
    assert failure == "kernel overrun, block 0: wrote past the end of shared array shared"


@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
@pytest.mark.parametrize(
    ("fault", "reason", "operations"),
    [
        (1, "divergence", ("__syncthreads",)),
        (2, "deadlock", ("__syncthreads", "__shfl_xor_sync")),
        (3, "divergence", ("__shfl_sync", "__shfl_xor_sync")),
    ],
)
def test_threads_that_wait_for_each_other_are_named_with_file_and_line(
    run: Run, fault: int, reason: str, operations: tuple[str, ...], conduct: Conduct
) -> None:
    """CARD-3: a deadlock or a divergence says who waits where."""
    _, failure = run("diverge", fault, conduct)
    assert failure.startswith("kernel diverge, block 0: ")
    assert reason in failure
    lines = (NATIVE / "faults.cu").read_text().splitlines()
    places = [word.split(":")[1].rstrip(";,") for word in failure.split() if "faults.cu:" in word]
    assert len(places) == 2
    for operation in operations:
        assert any(f"{operation}(" in lines[int(place) - 1] for place in places), failure
