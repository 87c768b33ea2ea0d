"""Where the native libraries lie, and which kernel library suits the processor.

It loads nothing. The first of HELIOS_NATIVE, `native/` beside the package (a zipapp) and `build/native/` (a checkout) that
exists is used, and every missing file is one sentence that says where it was looked for.
"""

from __future__ import annotations

from pathlib import Path

import helios
from helios import settings
from helios.errors import DeviceError

RUNTIME_LIBRARY = "libhelios_cudart.so"
SIMT_TARGET = "simt"
CUDA_LIBRARY = "libhelios_cuda.so"

# The host runtime reports the processor's level as compute capability; best kernels first.
TARGETS_BY_LEVEL = {
    1: ("x86-64",),
    3: ("x86-64-v3", "x86-64"),
    4: ("x86-64-v4", "x86-64-v3", "x86-64"),
    5: ("x86-64-v4-amx", "x86-64-v4", "x86-64-v3", "x86-64"),
    8: ("aarch64",),
}


def runtime_library() -> Path:
    """The host runtime; DeviceError when it is not there."""
    return _find(RUNTIME_LIBRARY)


def kernel_library(level: int) -> Path:
    """The best kernel library for a processor of `level`, or the one that HELIOS_KERNELS names."""
    chosen = settings.kernel_target()
    targets = (chosen,) if chosen else TARGETS_BY_LEVEL.get(level, ())
    for target in targets:
        path = _directory() / _kernel_library_name(target)
        if path.is_file():
            return path
    return _find(_kernel_library_name(targets[-1] if targets else f"level-{level}"))


def cuda_kernel_library() -> Path:
    """The CUDA kernels and their table; DeviceError when this build has none."""
    return _find(CUDA_LIBRARY, hint="run python3 build.py all --cuda")


def simt_kernel_library() -> Path:
    """The CUDA kernels over the emulator; DeviceError when they are not there, as in a release."""
    return _find(_kernel_library_name(SIMT_TARGET))


def _kernel_library_name(target: str) -> str:
    return f"libhelios_kernels.{target}.so"


def _candidates() -> tuple[Path, ...]:
    chosen = settings.native_directory()
    if chosen:
        return (chosen,)
    root = Path(helios.__file__).resolve().parent.parent
    return (root / "native", root / "build" / "native")


def _directory() -> Path:
    candidates = _candidates()
    return next((path for path in candidates if path.is_dir()), candidates[-1])


def _find(name: str, hint: str = "run python3 build.py") -> Path:
    path = _directory() / name
    if not path.is_file():
        places = " or ".join(str(candidate) for candidate in _candidates())
        raise DeviceError(f"native library {name} is not in {places}", hint=hint)
    return path
