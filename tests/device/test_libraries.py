"""Which native files are used, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.device import libraries
from helios.errors import DeviceError


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HELIOS_NATIVE", str(tmp_path))
    monkeypatch.delenv("HELIOS_KERNELS", raising=False)
    return tmp_path


def make_kernels(native: Path, *targets: str) -> None:
    for target in targets:
        (native / f"libhelios_kernels.{target}.so").touch()


def test_the_best_kernels_that_the_processor_runs_are_taken(native: Path) -> None:
    make_kernels(native, "x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-amx")
    for level, target in ((1, "x86-64"), (3, "x86-64-v3"), (4, "x86-64-v4"), (5, "x86-64-v4-amx")):
        assert libraries.kernel_library(level).name == f"libhelios_kernels.{target}.so"


def test_plainer_kernels_are_taken_where_the_best_were_not_built(native: Path) -> None:
    make_kernels(native, "x86-64")
    assert libraries.kernel_library(4).name == "libhelios_kernels.x86-64.so"


def test_the_environment_can_choose_the_kernels(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_kernels(native, "x86-64", "x86-64-v3")
    monkeypatch.setenv("HELIOS_KERNELS", "x86-64")
    assert libraries.kernel_library(3).name == "libhelios_kernels.x86-64.so"
    monkeypatch.setenv("HELIOS_KERNELS", "pdp-11")
    with pytest.raises(DeviceError, match=r"libhelios_kernels.pdp-11.so is not in"):
        libraries.kernel_library(3)


def test_a_missing_library_is_one_sentence_that_says_what_to_do(native: Path) -> None:
    expected = f"native library libhelios_cudart.so is not in {native}; run python3 build.py"
    with pytest.raises(DeviceError) as missing:
        libraries.runtime_library()
    assert str(missing.value) == expected
    for level in (1, 3, 4, 8, 99):
        with pytest.raises(DeviceError, match=r"run python3 build\.py"):
            libraries.kernel_library(level)
