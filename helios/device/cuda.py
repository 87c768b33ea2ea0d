"""Finds the CUDA runtime and a GPU that can be used through it.

It knows where the runtime library may lie and what has to be there beside it, and nothing of kernels. What is missing is one
clause, the first of: runtime library, driver, GPU, its age.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from helios import settings
from helios.device import cudart as abi
from helios.device.cudart import SUCCESS, Cudart
from helios.errors import DeviceError

LIBRARY_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
TOOLKIT = Path("/usr/local/cuda")
TOOLKIT_DIRECTORIES = (Path("lib64"), Path("lib"))  # the second where it comes from packages
PACKAGE_DIRECTORIES = (Path("cu13/lib"), Path("cuda_runtime/lib"))  # of nvidia-cuda-runtime 13, and of 12
LEAST_CAPABILITY = 8  # of the oldest code in libhelios_cuda.so
INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100


def open_runtime(index: int) -> Cudart:
    """The CUDA runtime with GPU `index` made this thread's. DeviceError is one clause that says what is missing."""
    cudart = _find_runtime()
    if cudart.integer("cudaDriverGetVersion") == 0:
        raise DeviceError("there is no NVIDIA driver on this machine")
    n_devices = ctypes.c_int()
    code = cudart.function("cudaGetDeviceCount")(ctypes.byref(n_devices))
    if code == NO_DEVICE or (code == SUCCESS and n_devices.value == 0):
        raise DeviceError("there is no GPU on this machine")
    if code == INSUFFICIENT_DRIVER:
        version = cudart.integer("cudaRuntimeGetVersion")
        raise DeviceError(f"the NVIDIA driver is too old for CUDA {version // 1000}.{version % 1000 // 10}")
    if code != SUCCESS:
        raise DeviceError(f"the NVIDIA driver reports {cudart.describe(code)}")
    if index >= n_devices.value:
        raise DeviceError(f"there is no GPU {index}, this machine has {n_devices.value}")
    # The device first: flags are those of the current one, and would take memory on another.
    cudart.call("cudaSetDevice", index)
    cudart.call("cudaSetDeviceFlags", abi.DEVICE_BLOCKING_SYNC)
    capability = cudart.integer("cudaDeviceGetAttribute", abi.ATTRIBUTE_CAPABILITY_MAJOR, index)
    if capability < LEAST_CAPABILITY:
        raise DeviceError(f"GPU {index} has compute capability {capability}, {LEAST_CAPABILITY}.0 is the least")
    return cudart


def why_not() -> str | None:
    """Why no GPU can be used here, None when the first one can."""
    try:
        open_runtime(0)
    except DeviceError as error:
        return error.message
    return None


def _find_runtime() -> Cudart:
    chosen = settings.cuda_runtime()
    if chosen:
        return Cudart(chosen)
    reason = "the CUDA runtime library (libcudart 12.8 or newer) is not installed"
    for candidate in _candidates():
        try:
            return Cudart(candidate)
        except DeviceError as error:
            if "cannot be loaded" not in error.message:
                reason = error.message
    raise DeviceError(reason)


def _candidates() -> Iterator[str]:
    """The toolkits that the environment names, the loader's path, the toolkit's usual place, the packages."""
    yield from _in_directories(settings.cuda_toolkits(), TOOLKIT_DIRECTORIES)
    yield from LIBRARY_NAMES
    package = importlib.util.find_spec("nvidia")
    yield from _in_directories([TOOLKIT], TOOLKIT_DIRECTORIES)
    yield from _in_directories(map(Path, (package and package.submodule_search_locations) or ()), PACKAGE_DIRECTORIES)


def _in_directories(roots: Iterable[Path], directories: Iterable[Path]) -> Iterator[str]:
    places = (root / directory / name for root in roots for directory in directories for name in LIBRARY_NAMES)
    return (str(place) for place in places if place.is_file())
