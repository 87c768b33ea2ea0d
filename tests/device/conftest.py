"""The host device with a kernel library of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.device import libraries
from helios.device.cudart import Cudart
from helios.device.device import Device
from helios.device.kernels import KernelLibrary
from tests.device.compiling import NATIVE, compile_cpp


@pytest.fixture(scope="session")
def cudart() -> Cudart:
    return Cudart(libraries.runtime_library())


@pytest.fixture(scope="session")
def kernel_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "libtest_kernels.so"
    result = compile_cpp(path, [NATIVE / "kernels.cpp"], ["-O2", "-shared", "-fPIC", "-fvisibility=hidden"])
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture
def device(cudart: Cudart, kernel_path: Path) -> Iterator[Device]:
    cudart.call("heliosHostSetThreads", 2)
    with Device(cudart, KernelLibrary.load(cudart, kernel_path), "cpu", "host", "a test asked for it") as device:
        yield device
