"""The kernels' tests as gpu_check runs them: faults against exactness are found, and what did not run is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helios.device import libraries
from scripts.gpu_checking.kernel_tests import TESTS, Outcome, read_report, run
from tests.device.compiling import compile_cpp

EXACTNESS = TESTS[0]
TESTS_OF_LINEAR = ("one_row_and_one_weight_have_one_product_in_every_place", "a_row_has_its_bits_in_any_company")
FAULTY = {
    *(f"test_{name}[linear-q4_1.g16k8-simt]" for name in TESTS_OF_LINEAR),
    *(f"test_{name}[linear_add-q8_0.g8k4-simt]" for name in TESTS_OF_LINEAR),
    "test_attention_in_parts_has_the_bits_of_the_whole[q8-simt]",
}


def test_planted_faults_against_exactness_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 7: a bit that depends on the place in a tile, on company or on the cut, in otherwise right kernels."""
    right = libraries.simt_kernel_library()
    for library in right.parent.glob("*.so"):
        if library.name != right.name:
            (tmp_path / library.name).symlink_to(library)
    source = Path(__file__).parent / "native" / "faulty_kernels.cpp"
    flags = ["-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-ldl"]
    result = compile_cpp(tmp_path / right.name, [source], flags)
    assert result.returncode == 0, result.stderr
    monkeypatch.setenv("HELIOS_TEST_KERNELS", str(right))
    monkeypatch.setenv("HELIOS_NATIVE", str(tmp_path))
    outcome = run("simt", [EXACTNESS], limit_s=600)
    assert {re.sub(r"^.*::| - .*", "", each) for each in outcome.failed} == FAULTY
    assert outcome.n_passed > len(FAULTY)
    assert outcome.n_left_out == 0


def test_a_run_without_tests_has_failed() -> None:
    assert run("simt", [Path("tests/kernels/no_such_file.py")], 60).failed


def test_what_an_interrupted_run_has_left_is_counted() -> None:
    text = """collected 90 items / 70 deselected / 20 selected

tests/kernels/test_a.py::test_one[simt] PASSED                   [  5%]
tests/kernels/test_a.py::test_two[a b-simt] FAILED               [ 10%]
tests/kernels/test_a.py::test_three[simt] """
    assert read_report(text) == Outcome(1, ("tests/kernels/test_a.py::test_two[a b-simt]",), 18, ())
    summary = """
FAILED tests/kernels/test_a.py::test_two[a b-simt] - AssertionError: 1 is not 2
never launched: commit.1 score.1
!!!!!!!!!!!!!!!!!!!!!!!!!!!!! KeyboardInterrupt !!!!!!!!!!!!!!!!!!!!!!!!!!!!
"""
    failed = ("tests/kernels/test_a.py::test_two[a b-simt] - AssertionError: 1 is not 2",)
    assert read_report(text + summary) == Outcome(1, failed, 18, ("commit.1", "score.1"))
