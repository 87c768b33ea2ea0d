"""The one table of C functions, bound by ctypes to whichever runtime library stands behind it.

It knows names and argument types, not what they are for. No function is called without its argument types, and no result is
dropped: `call` and `create` turn anything but success into a DeviceError that names the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any

from helios.errors import DeviceError

SUCCESS = 0
OUT_OF_MEMORY = 2
NOT_READY = 600
# The device is lost for this process, and every later call reports it again, the release of what it held too: by the header,
# illegal address, launch timeout, destroyed context, assertion, stack, instruction, alignment, address space, program counter,
# launch failure, tensor memory leak, contained and uncorrectable memory errors, an ended MPS client, an external device, unknown.
STICKY_ERRORS = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999})
UNLOADING = 4  # the process ends, and the driver has let go of everything itself

COPY_HOST_TO_DEVICE = 1
COPY_DEVICE_TO_HOST = 2
COPY_DEVICE_TO_DEVICE = 3
COPY_BY_ADDRESS = 4

EVENT_BLOCKING_SYNC = 1
EVENT_DISABLE_TIMING = 2
STREAM_NON_BLOCKING = 1
DEVICE_BLOCKING_SYNC = 4

ATTRIBUTE_N_PROCESSORS = 16
ATTRIBUTE_CAPABILITY_MAJOR = 75
ATTRIBUTE_CAPABILITY_MINOR = 76
ATTRIBUTE_MAX_DYNAMIC_SHARED = 97
FUNCTION_MAX_DYNAMIC_SHARED = 8
NODE_KERNEL = 0
PORT_PROGRAMMATIC = 1  # the edge leaves before the kernel has ended: the next one waits for it itself
EDGE_PROGRAMMATIC = 1


class Dim3(ctypes.Structure):
    _fields_ = (("x", c_uint), ("y", c_uint), ("z", c_uint))


class KernelNodeParams(ctypes.Structure):
    """cudaKernelNodeParams, 56 bytes."""

    _fields_ = (
        ("func", c_void_p),
        ("grid", Dim3),
        ("block", Dim3),
        ("shared_bytes", c_uint),
        ("params", POINTER(c_void_p)),
        ("extra", c_void_p),
    )


class MemsetParams(ctypes.Structure):
    """cudaMemsetParams, 40 bytes."""

    _fields_ = (
        ("dst", c_void_p),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_bytes", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class GraphNodeParams(ctypes.Structure):
    """cudaGraphNodeParams of a kernel node, 256 bytes; what is not named has to be zero."""

    _fields_ = (
        ("type", c_int),
        ("reserved0", c_int * 3),
        ("kernel", KernelNodeParams),
        ("reserved1", c_size_t * 23),
    )


class EdgeData(ctypes.Structure):
    """cudaGraphEdgeData, 8 bytes."""

    _fields_ = (("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_ubyte * 5))


_OUT_INT = POINTER(c_int)
_OUT_SIZE = POINTER(c_size_t)
_OUT_HANDLE = POINTER(c_void_p)
_HANDLES = POINTER(c_void_p)

# cuda_src/cudart/cudart.h declares the same functions; a test compares the two. All return cudaError_t.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudaRuntimeGetVersion": (_OUT_INT,),
    "cudaDriverGetVersion": (_OUT_INT,),
    "cudaGetDeviceCount": (_OUT_INT,),
    "cudaSetDevice": (c_int,),
    "cudaGetDevice": (_OUT_INT,),
    "cudaSetDeviceFlags": (c_uint,),
    "cudaDeviceGetAttribute": (_OUT_INT, c_int, c_int),
    "cudaDeviceSynchronize": (),
    "cudaMemGetInfo": (_OUT_SIZE, _OUT_SIZE),
    "cudaMalloc": (_OUT_HANDLE, c_size_t),
    "cudaFree": (c_void_p,),
    "cudaHostAlloc": (_OUT_HANDLE, c_size_t, c_uint),
    "cudaFreeHost": (c_void_p,),
    "cudaStreamCreateWithFlags": (_OUT_HANDLE, c_uint),
    "cudaStreamDestroy": (c_void_p,),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "cudaMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "cudaEventCreateWithFlags": (_OUT_HANDLE, c_uint),
    "cudaEventDestroy": (c_void_p,),
    "cudaEventRecord": (c_void_p, c_void_p),
    "cudaEventQuery": (c_void_p,),
    "cudaEventSynchronize": (c_void_p,),
    "cudaLibraryLoadFromFile": (_OUT_HANDLE, c_char_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint),
    "cudaLibraryLoadData": (_OUT_HANDLE, c_void_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint),
    "cudaLibraryUnload": (c_void_p,),
    "cudaLibraryGetKernel": (_OUT_HANDLE, c_void_p, c_char_p),
    "cudaFuncGetParamInfo": (c_void_p, c_size_t, _OUT_SIZE, _OUT_SIZE),
    "cudaFuncSetAttribute": (c_void_p, c_int, c_int),
    "cudaGraphCreate": (_OUT_HANDLE, c_uint),
    "cudaGraphDestroy": (c_void_p,),
    "cudaGraphAddKernelNode": (_OUT_HANDLE, c_void_p, _HANDLES, c_size_t, POINTER(KernelNodeParams)),
    "cudaGraphAddNode": (_OUT_HANDLE, c_void_p, _HANDLES, POINTER(EdgeData), c_size_t, POINTER(GraphNodeParams)),
    "cudaGraphAddMemcpyNode1D": (_OUT_HANDLE, c_void_p, _HANDLES, c_size_t, c_void_p, c_void_p, c_size_t, c_int),
    "cudaGraphAddMemsetNode": (_OUT_HANDLE, c_void_p, _HANDLES, c_size_t, POINTER(MemsetParams)),
    "cudaGraphInstantiate": (_OUT_HANDLE, c_void_p, c_ulonglong),
    "cudaGraphUpload": (c_void_p, c_void_p),
    "cudaGraphLaunch": (c_void_p, c_void_p),
    "cudaGraphExecDestroy": (c_void_p,),
    "cudaGetLastError": (),
    "cudaPeekAtLastError": (),
}
# CUDA 12 has the functions with edges under these names, and others without edges under the plain ones.
NAMES_OF_12 = {"cudaGraphAddNode": "cudaGraphAddNode_v2"}
# Functions that return text: const char*(cudaError_t).
TEXT_FUNCTIONS = ("cudaGetErrorName", "cudaGetErrorString")
# Functions that only the host library has.
HOST_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "heliosHostSetThreads": (c_int,),
    "heliosHostMallocSparse": (_OUT_HANDLE, c_size_t),
}


class Cudart:
    """A loaded runtime library. `function(name)` is for hot paths, which check the code themselves with `fail`."""

    def __init__(self, path: Path | str) -> None:
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(f"runtime library {path} cannot be loaded: {error}") from error
        self._functions = {name: _bind(library, name, types, c_int) for name, types in FUNCTIONS.items()}
        self._functions |= {name: _bind(library, name, (c_int,), c_char_p) for name in TEXT_FUNCTIONS}
        for name, types in HOST_FUNCTIONS.items():
            if hasattr(library, name):
                self._functions[name] = _bind(library, name, types, c_int)

    def function(self, name: str) -> Callable[..., int]:
        """The bound function itself; it returns a code that the caller has to check."""
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> None:
        """Call `name`; DeviceError unless it succeeds."""
        code = self._functions[name](*arguments)
        if code:
            self.fail(name, code)

    def create(self, name: str, *arguments: Any) -> c_void_p:
        """Call `name`, whose first parameter receives the handle or address that is returned here."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle

    def integer(self, name: str, *arguments: Any) -> int:
        """Call `name`, whose first parameter receives an int."""
        value = c_int()
        self.call(name, byref(value), *arguments)
        return value.value

    def release(self, name: str, handle: c_void_p) -> None:
        """Give `handle` back. A lost device reports its fault here again, which is not this call's failure."""
        code = self._functions[name](handle)
        if code and code not in STICKY_ERRORS and code != UNLOADING:
            self.fail(name, code)

    def fail(self, name: str, code: int) -> None:
        """Raise the DeviceError of `name` having returned `code`."""
        raise DeviceError(f"{name} failed with {self.describe(code)}")

    def describe(self, code: int) -> str:
        """`code` in words: name, number, sentence."""
        name: Any = self._functions["cudaGetErrorName"](code)
        sentence: Any = self._functions["cudaGetErrorString"](code)
        return f"{name.decode()} ({code}): {sentence.decode()}"


def _bind(library: ctypes.CDLL, name: str, argtypes: tuple[Any, ...], restype: Any) -> Callable[..., Any]:
    function = getattr(library, NAMES_OF_12.get(name, name), None) or getattr(library, name, None)
    if function is None:
        raise DeviceError(f"runtime library {library._name} has no {name}; it is too old")
    function.argtypes = argtypes
    function.restype = restype
    bound: Callable[..., Any] = function
    return bound
