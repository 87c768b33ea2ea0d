"""A kernel library on a device: its table, and a launch handle for each kernel in it.

It knows handles and argument lists, not what a kernel computes. Every kernel of the table was found in the device code, and its
argument list there is the table's, before the library can be used.
"""

from __future__ import annotations

from ctypes import byref, c_size_t, c_void_p
from pathlib import Path
from typing import Self

from helios.device.cudart import SUCCESS, Cudart
from helios.device.kernel_table import KernelSignature, KernelTable
from helios.errors import DeviceError


class KernelLibrary:
    """The kernels that the device can run: `table` says what they take, `handles` is for launches."""

    def __init__(self, cudart: Cudart, table: KernelTable) -> None:
        self.table = table
        self.handles: dict[str, c_void_p] = {}
        self._cudart = cudart
        self._images: dict[str, c_void_p] = {}
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    @classmethod
    def load(cls, cudart: Cudart, path: Path) -> Self:
        """Load the library at `path`; DeviceError when it is none, or not one for this Helios or this device."""
        return cls(cudart, KernelTable.load(path))

    def _load(self) -> None:
        """A host library is its own device code. A CUDA library carries one image for each source, which the driver takes the
        device's code from, or compiles it."""
        no_options = (None, None, 0, None, None, 0)
        for image in self.table.images:
            handle = self._cudart.create("cudaLibraryLoadData", image.address, *no_options)
            self._images[image.name] = handle
        if not self.table.images:
            path = str(self.table.path).encode()
            self._images[""] = self._cudart.create("cudaLibraryLoadFromFile", path, *no_options)
        for name, signature in self.table.signatures.items():
            symbol = signature.symbol if signature.image else name
            handle = self._cudart.create("cudaLibraryGetKernel", self._images[signature.image], symbol.encode())
            self._check_arguments(signature, handle)
            self.handles[name] = handle

    def _check_arguments(self, signature: KernelSignature, handle: c_void_p) -> None:
        """Exactly one argument: the struct of the table, by value."""
        offset, size_bytes = c_size_t(), c_size_t()
        self._cudart.call("cudaFuncGetParamInfo", handle, 0, byref(offset), byref(size_bytes))
        has_more = self._cudart.function("cudaFuncGetParamInfo")(handle, 1, byref(c_size_t()), byref(c_size_t()))
        self._cudart.function("cudaGetLastError")()  # it is not there, and that is no error
        if has_more == SUCCESS or (offset.value, size_bytes.value) != (0, signature.args_size_bytes):
            raise DeviceError(
                f"kernel {signature.name!r} takes {size_bytes.value} bytes in the device code and "
                f"{signature.args_size_bytes} in the table of {self.table.path}"
            )

    def close(self) -> None:
        """Unload the library; graphs that hold its kernels keep working. A second call does nothing."""
        images, self._images = self._images, {}
        for handle in images.values():
            self._cudart.release("cudaLibraryUnload", handle)
