"""Device and pinned memory with one owner each.

It knows sizes and addresses, not contents. A buffer's address is valid until `close`, which waits for the device's streams;
numpy views of a pinned buffer must not be used after it.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_void_p

import numpy as np
import numpy.typing as npt

from helios.device.cudart import OUT_OF_MEMORY, Cudart
from helios.errors import OutOfMemoryError
from helios.owner import Owner


class DeviceBuffer(Owner):
    """`size_bytes` of zeroed memory that kernels use, at `address`."""

    _ALLOCATE: tuple[str, tuple[int, ...]] = ("cudaMalloc", ())
    _FREE = "cudaFree"

    def __init__(self, cudart: Cudart, size_bytes: int) -> None:
        name, flags = self._ALLOCATE
        pointer = c_void_p()
        code = cudart.function(name)(byref(pointer), size_bytes, *flags)
        if code == OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{size_bytes:,} bytes were asked for, {memory_free_bytes(cudart):,} are free")
        if code:
            cudart.fail(name, code)
        self._cudart = cudart
        self._pointer: c_void_p | None = pointer
        self.address: int = pointer.value or 0
        self.size_bytes = size_bytes

    def host_view(self) -> memoryview:
        """All of it, if this process can reach it: pinned memory, and that of the host runtime."""
        return memoryview((ctypes.c_uint8 * self.size_bytes).from_address(self.address)).cast("B")

    @property
    def is_open(self) -> bool:
        return self._pointer is not None

    def close(self) -> None:
        """Free the memory once all streams have passed what was submitted before. A second call does nothing."""
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._cudart.release(self._FREE, pointer)


class SparseBuffer(DeviceBuffer):
    """Memory of the host runtime that is resident where it is touched."""

    _ALLOCATE = ("heliosHostMallocSparse", ())


class PinnedBuffer(DeviceBuffer):
    """Host memory that asynchronous copies accept; `view` is all of it, as uint8."""

    _ALLOCATE = ("cudaHostAlloc", (0,))
    _FREE = "cudaFreeHost"

    def __init__(self, cudart: Cudart, size_bytes: int) -> None:
        super().__init__(cudart, size_bytes)
        self.view: npt.NDArray[np.uint8] = np.frombuffer(self.host_view(), np.uint8)

    def close(self) -> None:
        self.view = np.empty(0, np.uint8)
        super().close()


def memory_free_bytes(cudart: Cudart) -> int:
    """What the device can still allocate."""
    free, total = c_size_t(), c_size_t()
    cudart.call("cudaMemGetInfo", byref(free), byref(total))
    return free.value
