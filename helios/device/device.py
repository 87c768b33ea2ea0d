"""One device: its runtime library, its kernels, its main stream, and the memory that was taken from it.

It knows no model and no program. There is no silent fallback: `auto` says in `reason` what it took and why, and a device that
is not there is one sentence. Close a device after everything that was made on it; whatever is left is closed with it.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from helios.device import cuda, libraries
from helios.device import cudart as abi
from helios.device.cudart import Cudart
from helios.device.kernels import KernelLibrary
from helios.device.memory import DeviceBuffer, PinnedBuffer, SparseBuffer, memory_free_bytes
from helios.device.stream import Event, Stream
from helios.errors import DeviceError
from helios.owner import Owner

_Memory = TypeVar("_Memory", bound=DeviceBuffer)

LEAST_EARLY_CAPABILITY = 9  # of GPUs that start a kernel while the one before it ends
# Of a GPU's memory, for executable graphs, what the driver loads later, and other processes.
CUDA_RESERVE_BYTES = 1 << 30
STAGING_BYTES = 4 << 20  # one pinned block that uploads and downloads go through


class Device(Owner):
    """An open device. `name` is its kind, `reason` why it was taken, `target` the program family it runs, `gpu_index`
    a GPU's number for the runtime, None over the host runtime, whose memory is the host's (`is_host`)."""

    def __init__(
        self,
        cudart: Cudart,
        kernels: KernelLibrary,
        name: str,
        target: str,
        reason: str,
        gpu_index: int | None = None,
    ) -> None:
        self.cudart = cudart
        self.kernels = kernels
        self.name = name
        self.target = target
        self.reason = reason
        self.is_host = gpu_index is None
        self._index = gpu_index or 0
        self.stream = Stream(cudart)
        self.n_threads = self._attribute(abi.ATTRIBUTE_N_PROCESSORS)
        self.max_dynamic_shared_bytes = self._attribute(abi.ATTRIBUTE_MAX_DYNAMIC_SHARED)
        # The emulator's device is the host's, whose capability is the processor's.
        least = 0 if self.is_host else LEAST_EARLY_CAPABILITY
        self.starts_kernels_early = target == "cuda" and self._attribute(abi.ATTRIBUTE_CAPABILITY_MAJOR) >= least
        self._memory: list[DeviceBuffer] = []
        self._staging = self.pinned(STAGING_BYTES)

    @classmethod
    def open(cls, name: str = "auto", n_threads: int | None = None, target: str | None = None) -> Device:
        """Open `cpu`, `cuda`, `cuda:N` or `auto`: a GPU if there is one, and of the two what runs `target` if that is given.
        `n_threads` is of the CPU device (None: all that this process may use).

        `simt` is the host runtime with the CUDA kernels over an emulator, for tests: the programs of a GPU, slowly.
        """
        kind, _, number = name.partition(":")
        if kind == "cuda":
            return cls._open_cuda(int(number or 0), "it was asked for")
        if name not in ("cpu", "simt", "auto"):
            raise DeviceError(f"there is no device {name!r}", hint="use cpu, cuda, cuda:N or auto")
        if name != "auto":
            return cls._open_host(name, n_threads, "it was asked for")
        if target is not None:
            reason = "the core was prepared for it"
            return cls._open_host("cpu", n_threads, reason) if target == "host" else cls._open_cuda(0, reason)
        missing = why_no_cuda()
        return cls._open_host("cpu", n_threads, missing) if missing else cls._open_cuda(0, "there is one")

    @classmethod
    def _open_host(cls, name: str, n_threads: int | None, reason: str) -> Device:
        cudart = Cudart(libraries.runtime_library())
        cudart.call("cudaSetDeviceFlags", abi.DEVICE_BLOCKING_SYNC)
        cudart.call("cudaSetDevice", 0)
        cudart.call("heliosHostSetThreads", n_threads or 0)
        if name == "simt":
            return cls(cudart, KernelLibrary.load(cudart, libraries.simt_kernel_library()), name, "cuda", reason)
        level = cudart.integer("cudaDeviceGetAttribute", abi.ATTRIBUTE_CAPABILITY_MAJOR, 0)
        return cls(cudart, KernelLibrary.load(cudart, libraries.kernel_library(level)), name, "host", reason)

    @classmethod
    def _open_cuda(cls, index: int, reason: str) -> Device:
        name = f"cuda:{index}"
        try:
            path = libraries.cuda_kernel_library()
            cudart = cuda.open_runtime(index)
            kernels = KernelLibrary.load(cudart, path)
        except DeviceError as error:
            raise DeviceError(
                f"device {name} cannot be used: {error.message}", hint="serve with --device cpu"
            ) from error
        return cls(cudart, kernels, name, "cuda", reason, index)

    def make_current(self) -> None:
        """Let this thread's calls go to this device. Every thread begins at the first one."""
        if self._index:
            self.cudart.call("cudaSetDevice", self._index)

    def _attribute(self, number: int) -> int:
        return self.cudart.integer("cudaDeviceGetAttribute", number, self._index)

    def allocate(self, size_bytes: int, *, is_sparse: bool = False) -> DeviceBuffer:
        """Zeroed device memory; OutOfMemoryError with the numbers when there is no room. Of what is sparse, little is touched."""
        self.make_current()
        kind = SparseBuffer if is_sparse and self.is_host else DeviceBuffer
        memory = self._keep(kind(self.cudart, size_bytes))
        if not self.is_host and size_bytes:  # the host library's is zero without being touched
            self.stream.fill_async(memory.address, 0, size_bytes)
            self.stream.synchronize()
        return memory

    def pinned(self, size_bytes: int) -> PinnedBuffer:
        """Zeroed host memory for asynchronous copies."""
        self.make_current()
        memory = self._keep(PinnedBuffer(self.cudart, size_bytes))
        if not self.is_host:
            memory.view[:] = 0
        return memory

    def new_stream(self) -> Stream:
        """A further stream; its owner closes it."""
        self.make_current()
        return Stream(self.cudart)

    def new_event(self) -> Event:
        """An event; its owner closes it."""
        self.make_current()
        return Event(self.cudart)

    def upload(self, address: int, data: npt.NDArray[np.uint8] | bytes | memoryview) -> None:
        """Copy `data` to device memory at `address` and wait for it."""
        source = np.frombuffer(data, np.uint8)
        for start in range(0, source.size, STAGING_BYTES):
            block = source[start : start + STAGING_BYTES]
            self._staging.view[: block.size] = block
            self.stream.copy_async(address + start, self._staging.address, block.size, abi.COPY_HOST_TO_DEVICE)
            self.stream.synchronize()

    def download(self, address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Copy device memory at `address` to a new array and wait for it."""
        data = np.empty(size_bytes, np.uint8)
        for start in range(0, size_bytes, STAGING_BYTES):
            n_bytes = min(STAGING_BYTES, size_bytes - start)
            self.stream.copy_async(self._staging.address, address + start, n_bytes, abi.COPY_DEVICE_TO_HOST)
            self.stream.synchronize()
            data[start : start + n_bytes] = self._staging.view[:n_bytes]
        return data

    def memory_free_bytes(self) -> int:
        """What can still be allocated, less the reserve."""
        self.make_current()
        reserve_bytes = 0 if self.is_host else CUDA_RESERVE_BYTES
        return max(0, memory_free_bytes(self.cudart) - reserve_bytes)

    def statistics(self) -> dict[str, int]:
        """Numbers for /metrics and tests."""
        device = [memory for memory in self._memory if not isinstance(memory, PinnedBuffer) and memory.is_open]
        pinned = [memory for memory in self._memory if isinstance(memory, PinnedBuffer) and memory.is_open]
        return {
            "n_threads": self.n_threads,
            "n_device_buffers": len(device),
            "device_bytes": sum(memory.size_bytes for memory in device),
            "n_pinned_buffers": len(pinned),
            "pinned_bytes": sum(memory.size_bytes for memory in pinned),
            "memory_free_bytes": self.memory_free_bytes(),
        }

    def close(self) -> None:
        """Drain the stream, then give everything back. A second call does nothing."""
        self.stream.close()
        for memory in self._memory:
            memory.close()
        self._memory.clear()
        self.kernels.close()

    def _keep(self, memory: _Memory) -> _Memory:
        self._memory = [kept for kept in self._memory if kept.is_open]
        self._memory.append(memory)
        return memory


def why_no_cuda() -> str | None:
    """Why no GPU can be used here, None when one can."""
    missing = cuda.why_not()
    if missing is None:
        try:
            libraries.cuda_kernel_library()
        except DeviceError:
            return "this build of Helios has no CUDA kernels"
    return missing
