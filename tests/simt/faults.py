"""Kernels with planted faults (`native/`), compiled with the emulator they run on."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.device.compiling import ROOT, compile_cpp

NATIVE = Path(__file__).parent / "native"


def compile_faults(directory: Path, source: str) -> ctypes.CDLL:
    """The library of `source`, a file of `native/`, made in `directory`. It exports `run_fault`."""
    path = directory / "libfaults.so"
    simt = ROOT / "cuda_src" / "simt"
    sources = [NATIVE / source, *(simt / f"{name}.cpp" for name in ("block", "fiber", "warpgroup"))]
    flags = ["-x", "c++", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'cuda_src'}"]
    result = compile_cpp(path, sources, flags)
    assert result.returncode == 0, result.stderr
    return ctypes.CDLL(str(path))
