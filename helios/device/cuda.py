"""Why the CUDA device cannot be used here, in one clause.

It asks the real CUDA runtime, when there is one, and knows nothing else about GPUs. It never raises: the answer is text.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from helios.device.cudart import SUCCESS, Cudart
from helios.errors import DeviceError

LIBRARY_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
TOOLKIT_DIRECTORIES = (Path("/usr/local/cuda/lib64"),)


def why_not() -> str:
    """The first thing that is missing: the runtime library, the driver, the GPU, or kernels built for it."""
    reason = "the CUDA runtime library (libcudart 12.8 or newer) is not installed"
    for candidate in _candidates():
        try:
            cudart = Cudart(candidate)
        except DeviceError as error:
            if "cannot be loaded" not in error.message:
                reason = error.message
            continue
        return _missing_beyond(cudart)
    return reason


def _missing_beyond(cudart: Cudart) -> str:
    if cudart.integer("cudaDriverGetVersion") == 0:
        return "there is no NVIDIA driver on this machine"
    n_devices = ctypes.c_int()
    code = cudart.function("cudaGetDeviceCount")(ctypes.byref(n_devices))
    if code != SUCCESS:
        return f"the NVIDIA driver reports {cudart.describe(code)}"
    return "this build of Helios has no CUDA kernels"


def _candidates() -> Iterator[str]:
    yield from LIBRARY_NAMES
    directories = list(TOOLKIT_DIRECTORIES)
    package = importlib.util.find_spec("nvidia")
    for root in (package.submodule_search_locations or ()) if package else ():
        directories += (Path(root) / "cu13" / "lib", Path(root) / "cuda_runtime" / "lib")
    for directory in directories:
        yield from (str(directory / name) for name in LIBRARY_NAMES if (directory / name).is_file())
