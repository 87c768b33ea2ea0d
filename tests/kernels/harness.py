"""Calls kernels straight through the library's table, with memory that catches every byte touched outside an extent.

It knows argument structs, not what a kernel computes. Each pointer argument is copied into pages of its own, of exactly the
extent that the kernel asks for and ending at an unmapped page; what stands before it is checked afterwards, and what is only
read must come back unchanged.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helios.device import cudart as abi
from helios.device import libraries
from helios.device.cudart import Cudart
from helios.device.device import why_no_cuda
from helios.device.kernel_table import EXTENT_REFUSED, FieldKind, KernelField, KernelTable, LaunchGeometry
from helios.errors import DeviceError
from tests.kernels import on_gpu

REFUSED = EXTENT_REFUSED
CUDA_TARGET = "cuda"
PAGE = mmap.PAGESIZE
CHUNK = 16  # bytes, the most that a kernel for a GPU loads or stores at once
CANARY = 0xA5

# What a processor must report to run a kernel library.
NEEDS = {
    "x86-64": {"sse2"},
    "x86-64-v3": {"avx2", "fma", "f16c"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
    "x86-64-v4-amx": {
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512dq",
        "avx512_vnni",
        "avx512_bf16",
        "amx_tile",
        "amx_bf16",
        "amx_int8",
    },
    "aarch64": {"asimd"},
    "simt": set(),
}
SCALAR_DTYPES = {FieldKind.I32: np.int32, FieldKind.I64: np.int64, FieldKind.U32: np.uint32, FieldKind.F32: np.float32}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mprotect.restype = ctypes.c_int


class GuardedBytes:
    """`nbytes` of memory before an unmapped page, with canary bytes on both sides: as near to it as an address lets it that is
    `off` bytes from a multiple of `alignment`."""

    def __init__(self, nbytes: int, alignment: int = 1, off: int = 0) -> None:
        n_pages = max(1, -(-(nbytes + off) // PAGE))
        self._map = mmap.mmap(-1, (n_pages + 1) * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        base = whole.ctypes.data
        end = n_pages * PAGE
        begin = (end - nbytes - off) // alignment * alignment + off
        self.bytes = whole[begin : begin + nbytes]
        self._before, self._after = whole[:begin], whole[begin + nbytes : end]
        self._before[:] = self._after[:] = CANARY
        self.address = base + begin
        assert _libc.mprotect(base + end, PAGE, 0) == 0  # PROT_NONE

    def is_intact(self) -> bool:
        return bool((self._before == CANARY).all() and (self._after == CANARY).all())


@dataclass(frozen=True)
class Kernel:
    """One kernel of a library."""

    name: str
    entry: Any
    fields: tuple[tuple[str, int, FieldKind], ...]  # name, offset, kind
    launched: set[str]  # the library's
    places: Mapping[str, tuple[int, int]]  # how far from a multiple of what a pointer's memory stands: (alignment, off)

    def pack(self, **scalars: float) -> bytearray:
        """The argument struct with these scalars; pointers are zero."""
        args = bytearray(self.entry.args_nbytes)
        for name, offset, kind in self.fields:
            if not kind.is_pointer:
                value = np.array([scalars[name]]).astype(SCALAR_DTYPES[kind]).tobytes()
                args[offset : offset + len(value)] = value
        return args

    def extents(self, **scalars: float) -> dict[str, int]:
        """Bytes behind each pointer for these scalars, REFUSED when they are not acceptable."""
        args = (ctypes.c_char * self.entry.args_nbytes).from_buffer(self.pack(**scalars))
        return {
            name: self.entry.extent(ctypes.addressof(args), i)
            for i, (name, _, kind) in enumerate(self.fields)
            if kind.is_pointer
        }

    def launch(
        self,
        *,
        n_threads: int = 1,
        order: str = "serial",
        seed: int = 0,
        aliases: dict[str, str] | None = None,
        **given: Any,
    ) -> int:
        """Run on copies of the given arrays, then write back what the kernel may write. Returns the number of tasks.

        `order` is serial, shuffled or threads. `aliases` says which pointer shares another one's memory.
        """
        self.launched.add(self.name)
        scalars = {name: value for name, value in given.items() if not isinstance(value, np.ndarray)}
        expected = {name for name, _, _ in self.fields}
        assert set(given) | set(aliases or {}) == expected, f"{self.name}: {set(given) ^ expected}"
        args = self.pack(**scalars)
        extents = self.extents(**scalars)
        memory: dict[str, GuardedBytes] = {}
        for name, nbytes in extents.items():
            assert nbytes != REFUSED, f"{self.name} refuses {scalars}"
            if name in (aliases or {}):
                continue
            raw = given[name].reshape(-1).view(np.uint8)
            assert raw.size >= nbytes, f"{self.name}: {name} has {raw.size} bytes, the extent is {nbytes}"
            memory[name] = GuardedBytes(nbytes, *self.places[name])
            memory[name].bytes[:] = raw[:nbytes]
        for name, other in (aliases or {}).items():
            memory[name] = memory[other]
        for name, offset, kind in self.fields:
            if kind.is_pointer:
                args[offset : offset + 8] = memory[name].address.to_bytes(8, "little")
        if self.entry.image:
            pointer_offsets = [offset for _, offset, kind in self.fields if kind.is_pointer]
            n_tasks = on_gpu.run(self.name, args, pointer_offsets, memory.values())
        else:
            n_tasks = self._run(args, n_threads, order, seed)
        for name, _, kind in self.fields:
            if not kind.is_pointer or name in (aliases or {}):
                continue
            assert memory[name].is_intact(), f"{self.name} wrote around {name}"
            raw = given[name].reshape(-1).view(np.uint8)
            if kind == FieldKind.READ and name not in (aliases or {}).values():
                assert (raw[: extents[name]] == memory[name].bytes).all(), f"{self.name} wrote into {name}"
            else:
                raw[: extents[name]] = memory[name].bytes
        return n_tasks

    def _run(self, args: bytearray, n_threads: int, order: str, seed: int) -> int:
        buffer = (ctypes.c_char * len(args)).from_buffer(args)
        address = ctypes.addressof(buffer)
        geometry = LaunchGeometry()
        self.entry.geometry(address, ctypes.byref(geometry))
        is_emulated = bool(self.entry.run_block)
        n_tasks = int(geometry.n_blocks if is_emulated else self.entry.n_tasks(address, n_threads))
        tasks = list(range(n_tasks))
        if order == "shuffled":
            random.Random(seed).shuffle(tasks)

        def run(task: int) -> None:
            if is_emulated:
                self.entry.run_block(address, ctypes.byref(geometry), task)
            else:
                self.entry.run(address, task, n_tasks)

        if order == "threads":
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(run, tasks))
        else:
            for task in tasks:
                run(task)
        return n_tasks


@dataclass(frozen=True)
class Library:
    """A kernel library and its kernels by name; `launched` of them were since it was loaded."""

    target: str
    kernels: dict[str, Kernel]
    launched: set[str]

    @property
    def is_cuda(self) -> bool:
        """Whether these are the kernels of a GPU, emulated or not."""
        return self.target in _OF_A_GPU

    @property
    def counts_tasks(self) -> bool:
        """Whether the number of tasks follows the live counts. That of thread blocks follows the capacities."""
        return not self.is_cuda

    def __getitem__(self, name: str) -> Kernel:
        return self.kernels[name]


def _library_path(target: str) -> Path:
    if target == CUDA_TARGET:
        return libraries.cuda_kernel_library()
    return libraries.runtime_library().with_name(f"libhelios_kernels.{target}.so")


@functools.cache
def load(target: str, *, is_barely_aligned: bool = False, misplaced: str | None = None) -> Library:
    """The library for a target, once.

    Memory stands as near to its end as the table's alignments let it; for a host library, which asks for none, at its end. With
    `is_barely_aligned` it is never better aligned than the table says; with `misplaced`, pointers of that name stand 4 bytes off.
    """
    table = KernelTable.load(_library_path(target))
    launched: set[str] = set()

    def place(field: KernelField, is_host: bool) -> tuple[int, int]:
        if field.name == misplaced:
            return CHUNK, 4
        if is_barely_aligned:
            return CHUNK, field.alignment % CHUNK
        return (1 if is_host else field.alignment), 0

    def kernel(name: str, entry: Any) -> Kernel:
        fields = table.signatures[name].fields
        places = {field.name: place(field, bool(entry.run)) for field in fields if field.kind.is_pointer}
        return Kernel(name, entry, tuple((f.name, f.offset, f.kind) for f in fields), launched, places)

    return Library(table.target, {name: kernel(name, entry) for name, entry in table.entries.items()}, launched)


def _processor_flags() -> set[str]:
    text = Path("/proc/cpuinfo").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("flags", "Features"))]
    return set(lines[0].split(":", 1)[1].split()) if lines else set()


def runnable_targets() -> list[str]:
    """Targets that are built and that this processor can run."""
    with contextlib.suppress(DeviceError):
        Cudart(libraries.runtime_library()).integer(
            "cudaDeviceGetAttribute", abi.ATTRIBUTE_CAPABILITY_MAJOR, 0
        )  # asks for AMX
    flags = _processor_flags()
    host = [target for target, needs in NEEDS.items() if needs <= flags and _library_path(target).is_file()]
    return host if why_no_cuda() else [*host, CUDA_TARGET]


def _on(*targets: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("library", [pytest.param(load(target), id=target) for target in targets])


_RUNNABLE = runnable_targets()
_OF_A_GPU = (libraries.SIMT_TARGET, CUDA_TARGET)
on_every_target = _on(*_RUNNABLE)
on_every_gpu_target = _on(*(target for target in _RUNNABLE if target in _OF_A_GPU))
on_every_host_target = _on(
    *(target for target in _RUNNABLE if target not in _OF_A_GPU)
)  # it would take seconds emulated


def int32(*values: int) -> np.ndarray:
    """An int32 array of these."""
    return np.array(values, np.int32)


def counts(n_rows: int, n_lanes: int = 0, n_samples: int = 0) -> np.ndarray:
    """The `counts` words of kernels.h."""
    return int32(n_rows, n_lanes, n_samples, 0)
