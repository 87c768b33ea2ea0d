"""The emulator's instructions of sm_90a: barriers in shared memory, bulk copies, products of a warpgroup; each planted fault."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from tests.simt.conduct import SM_90A_CONDUCTS, Conduct
from tests.simt.faults import compile_faults

LEFT = np.random.default_rng(5).integers(-9, 9, (64, 64)).astype(np.float32)
RIGHT = np.random.default_rng(6).integers(-9, 9, (64, 32)).astype(np.float32)
THREADS = np.arange(128).reshape(2, 64)
EXPECTED = {
    "product": (LEFT @ RIGHT).ravel(),
    "teams": np.concatenate([THREADS[0], THREADS[1][::-1]]).astype(np.float32),  # four times and five times round
}
Run = Callable[..., tuple[np.ndarray, str]]


def bf16(values: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(kernel, fault, conduct): what the kernel gives, and the failure."""
    library = compile_faults(tmp_path_factory.mktemp("simt"), "warpgroup_faults.cu")
    # Steps of 16 rows; of each, core matrices of 8 rows of a column in 16 bytes.
    right = bf16(RIGHT.reshape(4, 2, 8, 32).transpose(0, 1, 3, 2))
    left = bf16(LEFT)

    def run_kernel(name: str, fault: int, conduct: Conduct) -> tuple[np.ndarray, str]:
        given, failure = np.full(len(EXPECTED[name]), np.nan, np.float32), ctypes.create_string_buffer(1000)
        order, seed, copies, architecture = conduct.words
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (left, right, given))
        how = (order, ctypes.c_uint64(seed), copies, architecture)
        library.run_fault(name.encode(), *pointers, fault, *how, failure, ctypes.c_size_t(len(failure)))
        return given, failure.value.decode()

    return run_kernel


@pytest.mark.parametrize("conduct", SM_90A_CONDUCTS, ids=str)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_right_kernel_is_right_in_every_order_and_copy_mode(run: Run, name: str, conduct: Conduct) -> None:
    """CARD-3."""
    given, failure = run(name, 0, conduct)
    assert failure == ""
    assert (given == EXPECTED[name]).all()


DEFERRED = {str(conduct) for conduct in SM_90A_CONDUCTS if conduct.copies == "deferred"}
EAGER = {str(conduct) for conduct in SM_90A_CONDUCTS} - DEFERRED


@pytest.mark.parametrize(
    ("name", "fault", "at_least"),
    [
        pytest.param("product", 1, DEFERRED, id="a phase is not waited for"),
        pytest.param("product", 2, DEFERRED, id="the parity of the phase before"),
        pytest.param("product", 10, EAGER, id="a product is read before its end"),
        pytest.param("product", 11, EAGER, id="a slot is filled again while a product reads it"),
        pytest.param("teams", 1, {"last_in-eager-sm_90a", "random-eager-sm_90a"}, id="no barrier before the read"),
        pytest.param("teams", 2, {"last_in-eager-sm_90a", "random-eager-sm_90a"}, id="no barrier after the read"),
    ],
)
def test_a_missing_wait_shows_in_the_numbers(run: Run, name: str, fault: int, at_least: set[str]) -> None:
    """CARD-3."""
    results = {str(conduct): run(name, fault, conduct) for conduct in SM_90A_CONDUCTS}
    shown = {how for how, (given, failure) in results.items() if failure or not np.array_equal(given, EXPECTED[name])}
    assert at_least <= shown


@pytest.mark.parametrize("conduct", SM_90A_CONDUCTS, ids=str)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (3, "deadlock; thread 0 waits in mbarrier.try_wait at "),  # too few bytes expected
        (4, "deadlock; thread 0 waits in mbarrier.try_wait at "),  # too many
        (5, "a bulk copy is not aligned to 16 bytes in cp.async.bulk at "),
        (6, "the mbarrier was not initialised in mbarrier.arrive.expect_tx at "),
        (7, "what was copied is not fenced in wgmma.mma_async at "),
        (8, "products were not begun in wgmma.mma_async at "),
        (9, "the warps of a warpgroup did not start the same products"),
    ],
)
def test_a_broken_rule_is_a_failure_in_every_conduct(run: Run, fault: int, reason: str, conduct: Conduct) -> None:
    """CARD-3."""
    _, failure = run("product", fault, conduct)
    assert failure.startswith(f"kernel product, block 0: {reason}")
    if failure.removeprefix(f"kernel product, block 0: {reason}"):
        assert "warpgroup_faults.cu:" in failure
