"""A kernel library: the table it exports, and launch handles for the kernels in it.

It knows argument structs, not what a kernel computes. What a kernel may touch through a pointer is asked of the library itself
(`extents`), from the scalar arguments alone, so it can be known before anything runs.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

from helios.device.cudart import Cudart
from helios.errors import DeviceError

KERNEL_ABI = 1  # HeliosKernelLibrary.abi, cuda_src/kernels.h
EXTENT_REFUSED = (1 << 64) - 1  # the scalar arguments overflow or make no sense


class FieldKind(IntEnum):
    """HELIOS_KIND_*: what an argument is."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2
    I32 = 3
    I64 = 4
    U32 = 5
    F32 = 6

    @property
    def is_pointer(self) -> bool:
        return self <= FieldKind.READ_WRITE

    @property
    def reads(self) -> bool:
        return self in (FieldKind.READ, FieldKind.READ_WRITE)

    @property
    def writes(self) -> bool:
        return self in (FieldKind.WRITE, FieldKind.READ_WRITE)


@dataclass(frozen=True, slots=True)
class KernelField:
    """One argument: its name, byte offset in the struct, and kind."""

    name: str
    offset: int
    kind: FieldKind


@dataclass(frozen=True)
class KernelSignature:
    """A kernel's argument struct and launch handle. `pointers` maps a byte offset to the index of the pointer field there."""

    name: str
    args_size_bytes: int
    fields: tuple[KernelField, ...]
    handle: c_void_p
    pointers: dict[int, int]


class _Field(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("offset", c_uint32), ("kind", c_uint32))


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("args_nbytes", c_uint32),
        ("n_fields", c_uint32),
        ("fields", POINTER(_Field)),
        ("extent", CFUNCTYPE(c_uint64, c_char_p, c_uint32)),
        ("n_tasks", c_void_p),
        ("run", c_void_p),
    )


class _Library(ctypes.Structure):
    _fields_ = (("abi", c_uint32), ("n_kernels", c_uint32), ("kernels", POINTER(_Kernel)), ("target", c_char_p))


class KernelLibrary:
    """The kernels that the device can run. `target` names the instruction set they were built for."""

    def __init__(self, cudart: Cudart, handle: c_void_p, table: Any) -> None:
        self._cudart = cudart
        self._handle: c_void_p | None = handle
        self._entries: dict[str, Any] = {}
        self.target: str = table.target.decode()
        self.signatures: dict[str, KernelSignature] = {}
        for entry in table.kernels[: table.n_kernels]:
            signature = _signature(entry, cudart.create("cudaLibraryGetKernel", handle, entry.name))
            self.signatures[signature.name] = signature
            self._entries[signature.name] = entry
        # Layers differ only in their pointers, so a program asks the same question once a layer.
        self.extents = functools.lru_cache(maxsize=4096)(self._extents)

    @classmethod
    def load(cls, cudart: Cudart, path: Path) -> Self:
        """Load the library at `path`; DeviceError when it is none, or one of another ABI."""
        try:
            get_table = ctypes.CDLL(str(path)).helios_kernel_library
        except (OSError, AttributeError) as error:
            raise DeviceError(f"kernel library {path} cannot be used: {error}") from error
        get_table.argtypes = ()
        get_table.restype = POINTER(_Library)
        table = get_table().contents
        if table.abi != KERNEL_ABI:
            raise DeviceError(f"kernel library {path} has ABI {table.abi}, this Helios needs {KERNEL_ABI}")
        handle = cudart.create("cudaLibraryLoadFromFile", str(path).encode(), None, None, 0, None, None, 0)
        return cls(cudart, handle, table)

    def extent(self, name: str, arguments: bytes, field_index: int) -> int:
        """Bytes that kernel `name` may touch from that pointer on; EXTENT_REFUSED for arguments it does not accept."""
        if len(arguments) != self.signatures[name].args_size_bytes:
            raise DeviceError(
                f"kernel {name!r} takes {self.signatures[name].args_size_bytes} bytes, not {len(arguments)}"
            )
        return int(self._entries[name].extent(arguments, field_index))

    def _extents(self, name: str, arguments: bytes) -> tuple[int, ...]:
        fields = self.signatures[name].fields
        return tuple(self.extent(name, arguments, i) if field.kind.is_pointer else 0 for i, field in enumerate(fields))

    def close(self) -> None:
        """Unload the library; graphs that hold its kernels keep working. A second call does nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._cudart.release("cudaLibraryUnload", handle)


def _signature(entry: Any, handle: c_void_p) -> KernelSignature:
    fields = tuple(KernelField(f.name.decode(), f.offset, FieldKind(f.kind)) for f in entry.fields[: entry.n_fields])
    pointers = {field.offset: i for i, field in enumerate(fields) if field.kind.is_pointer}
    return KernelSignature(entry.name.decode(), entry.args_nbytes, fields, handle, pointers)
