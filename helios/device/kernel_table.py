"""The table that a kernel library exports: what each kernel takes, may touch, and how it is launched.

It knows argument structs, not what a kernel computes, and needs no runtime and no device: a core is prepared and checked with
it where neither is. What a kernel may touch through a pointer, and the launch it needs, follow from the scalar arguments alone.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

from helios.errors import DeviceError

KERNEL_ABI = 3  # HELIOS_KERNEL_ABI, cuda_src/kernels.h
EXTENT_REFUSED = (1 << 64) - 1  # the scalar arguments overflow or make no sense
KERNEL_WAITS = 1  # HELIOS_KERNEL_WAITS


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
    def struct_format(self) -> str:
        """How `struct` packs a scalar."""
        return _SCALAR_FORMATS[self]

    @property
    def is_pointer(self) -> bool:
        return self <= FieldKind.READ_WRITE

    @property
    def reads(self) -> bool:
        return self in (FieldKind.READ, FieldKind.READ_WRITE)

    @property
    def writes(self) -> bool:
        return self in (FieldKind.WRITE, FieldKind.READ_WRITE)


_SCALAR_FORMATS = {FieldKind.I32: "<i", FieldKind.I64: "<q", FieldKind.U32: "<I", FieldKind.F32: "<f"}


@dataclass(frozen=True, slots=True)
class KernelField:
    """One argument: its name, byte offset in the struct, and kind; the bytes that a pointer is a multiple of, 0 of a number."""

    name: str
    offset: int
    kind: FieldKind
    alignment: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """A launch: blocks, threads in a block, bytes of dynamic shared memory. The defaults are a host kernel's."""

    n_blocks: int = 1
    n_threads: int = 1
    shared_bytes: int = 0


@dataclass(frozen=True)
class KernelSignature:
    """A kernel's argument struct. `pointers` maps a byte offset to the index of the pointer field there; `image` and `symbol` say
    where a CUDA kernel is; `waits`: it may be started while the kernel before it ends, because it waits for that itself."""

    name: str
    args_size_bytes: int
    fields: tuple[KernelField, ...]
    pointers: dict[int, int]
    waits: bool
    image: str
    symbol: str


@dataclass(frozen=True, slots=True)
class Image:
    """Device code inside the library, which keeps it."""

    name: str
    address: int
    size_bytes: int


class _Field(Structure):
    _fields_ = (("name", c_char_p), ("offset", c_uint32), ("kind", c_uint16), ("alignment", c_uint16))


class LaunchGeometry(Structure):
    """HeliosGeometry."""

    _fields_ = (("n_blocks", c_int64), ("n_threads", c_int32), ("shared_nbytes", c_int32))


class KernelEntry(Structure):
    """HeliosKernel. The functions that run a kernel are for tests: a runtime library calls them itself."""

    _fields_ = (
        ("name", c_char_p),
        ("args_nbytes", c_uint32),
        ("n_fields", c_uint32),
        ("fields", POINTER(_Field)),
        ("extent", CFUNCTYPE(c_uint64, c_void_p, c_uint32)),
        ("geometry", CFUNCTYPE(None, c_void_p, POINTER(LaunchGeometry))),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("n_tasks", CFUNCTYPE(c_int32, c_void_p, c_int32)),
        ("run", CFUNCTYPE(None, c_void_p, c_int32, c_int32)),
        ("run_block", CFUNCTYPE(c_int32, c_void_p, POINTER(LaunchGeometry), c_int32)),
        ("image", c_char_p),
        ("symbol", c_char_p),
    )


class _Image(Structure):
    _fields_ = (("name", c_char_p), ("data", c_void_p), ("nbytes", c_size_t))


class _Library(Structure):
    _fields_ = (
        ("abi", c_uint32),
        ("n_kernels", c_uint32),
        ("kernels", POINTER(KernelEntry)),
        ("target", c_char_p),
        ("n_images", c_uint32),
        ("reserved", c_uint32),
        ("images", POINTER(_Image)),
    )


class KernelTable:
    """The kernels of one library. `target` names the instruction set they were built for; `entries` are the library's own."""

    def __init__(self, path: Path, table: Any) -> None:
        self.path = path
        self.target: str = table.target.decode()
        self.images = [Image(image.name.decode(), image.data, image.nbytes) for image in table.images[: table.n_images]]
        self.entries: dict[str, Any] = {entry.name.decode(): entry for entry in table.kernels[: table.n_kernels]}
        self.signatures = {name: _signature(name, entry) for name, entry in self.entries.items()}
        # Layers differ only in their pointers, so a program asks the same question once a layer.
        self.extents = functools.lru_cache(maxsize=4096)(self._extents)
        self.geometry = functools.lru_cache(maxsize=4096)(self._geometry)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The table of the library at `path`; DeviceError when it is none, or one of another ABI."""
        try:
            get_table = ctypes.CDLL(str(path)).helios_kernel_library
        except (OSError, AttributeError) as error:
            raise DeviceError(f"kernel library {path} cannot be used: {error}") from error
        get_table.argtypes = ()
        get_table.restype = POINTER(_Library)
        table = get_table().contents
        if table.abi != KERNEL_ABI:
            raise DeviceError(f"kernel library {path} has ABI {table.abi}, this Helios needs {KERNEL_ABI}")
        return cls(path, table)

    def extent(self, name: str, arguments: bytes, field_index: int) -> int:
        """Bytes that kernel `name` may touch from that pointer on; EXTENT_REFUSED for arguments it does not accept."""
        self._check_size(name, arguments)
        return int(self.entries[name].extent(arguments, field_index))

    def _geometry(self, name: str, arguments: bytes) -> Geometry:
        """The launch of kernel `name` for arguments that it accepts: those whose extents are all there."""
        self._check_size(name, arguments)
        found = LaunchGeometry()
        self.entries[name].geometry(arguments, byref(found))
        return Geometry(found.n_blocks, found.n_threads, found.shared_nbytes)

    def _check_size(self, name: str, arguments: bytes) -> None:
        size_bytes = self.signatures[name].args_size_bytes
        if len(arguments) != size_bytes:
            raise DeviceError(f"kernel {name!r} takes {size_bytes} bytes, not {len(arguments)}")

    def _extents(self, name: str, arguments: bytes) -> tuple[int, ...]:
        fields = self.signatures[name].fields
        return tuple(self.extent(name, arguments, i) if field.kind.is_pointer else 0 for i, field in enumerate(fields))


def _signature(name: str, entry: Any) -> KernelSignature:
    fields = tuple(
        KernelField(f.name.decode(), f.offset, FieldKind(f.kind), f.alignment) for f in entry.fields[: entry.n_fields]
    )
    return KernelSignature(
        name,
        entry.args_nbytes,
        fields,
        pointers={field.offset: i for i, field in enumerate(fields) if field.kind.is_pointer},
        waits=bool(entry.flags & KERNEL_WAITS),
        image=(entry.image or b"").decode(),
        symbol=(entry.symbol or b"").decode(),
    )
