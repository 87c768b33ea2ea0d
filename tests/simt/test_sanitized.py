"""The CUDA kernels over the emulator, built with AddressSanitizer and UndefinedBehaviorSanitizer: a part of their tests again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helios.device import libraries
from scripts.building.native import SIMT_LIBRARY, emulated_library
from scripts.building.project import Project
from tests.device.compiling import ROOT, compile_cpp, compiler

SANITIZE = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]  # -O0 compiles fastest
# One or two of each kernel that cross threads, copies or formats: more takes minutes here.
TESTS = "simt and (adds_and or gathers or ties or tokens or page_hides or saved or restored)"
FILES = [f"tests/kernels/test_{name}.py" for name in ("linear", "norm", "embed", "rope", "attention", "page_copy")]
OVERRUN = """
import numpy as np
from tests.kernels.harness import load
kernel = load("simt")["round_bf16.1"]
n_rows, x, y = np.ones(1, np.int32), np.ones(4096, np.float32), np.zeros(4096 * 2 + 512 - {missing}, np.uint8)
args = kernel.pack(rows_capacity=1, width=4096)
for name, offset, kind in kernel.fields:
    if name in ("n_rows", "x", "y"):
        args[offset : offset + 8] = {{"n_rows": n_rows, "x": x, "y": y}}[name].ctypes.data.to_bytes(8, "little")
kernel._run(args, 1, "serial", 0)
print("ran")
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(words): Python in this environment over the sanitized library."""
    directory = tmp_path_factory.mktemp("native")
    sources = emulated_library(Project.load(ROOT)).sources

    def compile_one(source: Path) -> Path:
        # The host's kernels are there for what they say of extents; they do not run.
        is_run = source.parent.name != "host"
        compiled = directory / f"{source.parent.name}-{source.stem}.o"
        flags = ["-x", "c++", "-c", "-w", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", '-DHELIOS_TARGET="simt"']
        result = compile_cpp(compiled, [source], [*flags, *(SANITIZE if is_run else ["-O0"])])
        assert result.returncode == 0, result.stderr
        return compiled

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    for library in libraries.simt_kernel_library().parent.glob("*.so"):
        (directory / library.name).symlink_to(library)
    (directory / SIMT_LIBRARY).unlink()
    result = compile_cpp(directory / SIMT_LIBRARY, objects, ["-shared", *SANITIZE])
    assert result.returncode == 0, result.stderr
    runtimes = [
        subprocess.run(
            [*compiler().command, f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("asan", "ubsan")
    ]
    if not all(Path(path).is_absolute() for path in runtimes):
        pytest.skip("the compiler has no sanitizer libraries")

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "HELIOS_NATIVE": str(directory),
            "LD_PRELOAD": ":".join(runtimes),
            "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0",
        }
        return subprocess.run(
            [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )

    return python


def test_kernels_touch_nothing_that_is_not_theirs(run: Run) -> None:
    """CARD-3."""
    result = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", TESTS, *FILES)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert " passed" in result.stdout


@pytest.mark.parametrize(("missing", "is_caught"), [(0, False), (4, True)])
def test_one_element_past_a_device_buffer_is_caught(run: Run, missing: int, is_caught: bool) -> None:
    """CARD-3."""
    result = run("-c", OVERRUN.format(missing=missing))
    assert (result.stdout == "ran\n") == (not is_caught), result.stderr[-3000:]
    assert ("heap-buffer-overflow" in result.stderr) == is_caught
