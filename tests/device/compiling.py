"""Compiles the C++ of these tests with the compiler that the build uses."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from helios.device import libraries
from helios.errors import DeviceError
from scripts.building.native import Compiler, find_compiler
from scripts.building.project import Project

ROOT = Path(__file__).resolve().parents[2]
CUDART_SOURCES = sorted((ROOT / "cuda_src" / "cudart").glob("*.cpp"))
NATIVE = Path(__file__).parent / "native"


def need_cuda_library() -> None:
    """Skip a test where there is no nvcc to build the CUDA kernels with."""
    try:
        libraries.cuda_kernel_library()
    except DeviceError as missing:
        pytest.skip(str(missing))


@functools.cache
def compiler() -> Compiler:
    """The compiler that the build uses."""
    return find_compiler(Project.load(ROOT))


def compile_cpp(output: Path, sources: list[Path], flags: list[str]) -> subprocess.CompletedProcess[str]:
    """Compile and link `sources` into `output`; the finished compiler process."""
    command = [*compiler().command, "-std=c++17", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'cuda_src'}"]
    return subprocess.run(
        [*command, *flags, *map(str, sources), "-o", str(output)], capture_output=True, text=True, check=False
    )
