"""Memory of the host runtime: allocations below a huge page share slabs, and nobody can tell; what is sparse takes few pages."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from helios.device import heap
from helios.device.device import Device

MATRIX_BYTES = 1_000_000  # 33 of them fill a slab
N_MATRICES = 80


def mapped_bytes() -> int:
    """The address space of this process."""
    return _bytes_of("VmSize", Path("/proc/self/status"))


def resident_bytes() -> int:
    """Its memory but for files, counted page by page: the sum in `status` lags behind by what each processor has yet to add."""
    return _bytes_of("Anonymous", Path("/proc/self/smaps_rollup"))


def _bytes_of(name: str, book: Path) -> int:
    return int(book.read_text().split(f"{name}:")[1].split()[0]) * 1024


def test_memory_is_zero_whatever_was_there_before(device: Device) -> None:
    for _ in range(3):
        buffers = [device.allocate(MATRIX_BYTES) for _ in range(N_MATRICES)]
        for buffer in buffers:
            assert not device.download(buffer.address, buffer.size_bytes).any()
            device.upload(buffer.address, np.full(MATRIX_BYTES, 0xFF, np.uint8))
        for buffer in buffers:
            buffer.close()


def test_neighbours_in_a_slab_keep_their_contents(device: Device) -> None:
    sizes = [16 << 10, 100_001, MATRIX_BYTES, (2 << 20) - 1, 16_385] * 20
    buffers = [device.allocate(size) for size in sizes]
    for i, buffer in enumerate(buffers):
        device.upload(buffer.address, np.full(buffer.size_bytes, i, np.uint8))
    for buffer in buffers[::2]:
        buffer.close()
    for i, buffer in list(enumerate(buffers))[1::2]:
        assert (device.download(buffer.address, buffer.size_bytes) == i).all()


def test_a_slab_goes_with_its_last_allocation(device: Device) -> None:
    survivor = device.allocate(MATRIX_BYTES)
    before = mapped_bytes()
    for _ in range(20):
        for buffer in [device.allocate(MATRIX_BYTES) for _ in range(N_MATRICES)]:
            buffer.close()
    assert mapped_bytes() - before < 2 * N_MATRICES * MATRIX_BYTES
    device.upload(survivor.address, np.ones(MATRIX_BYTES, np.uint8))


def test_matrices_are_resident_and_little_else(device: Device) -> None:
    """Of the last huge page of a slab, less than a quarter is nobody's."""
    sizes = [1_105_920, 552_960, 345_600, 207_360] * 16
    before = resident_bytes()
    for size in sizes:
        ctypes.memset(device.allocate(size).address, 1, size)
    assert 0 <= resident_bytes() - before - sum(sizes) < 1 << 20


def test_what_is_touched_here_and_there_is_resident_there_alone(device: Device) -> None:
    """RT-7: room for the most that requests may ask for costs what they do ask for."""
    size_bytes, step_bytes = 64 << 20, 2 << 20
    for buffer in (device.pinned(size_bytes), device.allocate(size_bytes, is_sparse=True)):
        before = resident_bytes()
        view = buffer.host_view()
        view[::step_bytes] = bytes(range(1, 1 + size_bytes // step_bytes))
        assert resident_bytes() - before < 1 << 20
        assert not any(view[1:step_bytes])


def test_of_what_is_sparse_and_small_no_huge_page_is_resident(device: Device) -> None:
    before = resident_bytes()
    for _ in range(20):
        device.allocate(1_640_560, is_sparse=True).host_view()[0] = 1
    assert resident_bytes() - before < 1 << 20


def test_what_the_heap_holds_free_goes_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    blocks = [libc.malloc(60_000) for _ in range(1000)]
    for block in blocks:
        ctypes.memset(block, 1, 60_000)
    for block in blocks[:-1]:  # the last one keeps the heap's end where it is
        libc.free(block)
    held = resident_bytes()
    heap.trim()
    assert held - resident_bytes() > 50_000_000
    libc.free(blocks[-1])


def test_threads_share_one_arena_of_a_heap_that_is_kept_small(tmp_path: Path) -> None:
    """And what is large lies in no arena."""
    program = """
import ctypes, sys, threading
from helios.device import heap
heap.keep_small()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes, libc.fclose.argtypes = (ctypes.c_int, ctypes.c_void_p), (ctypes.c_void_p,)
libc.malloc.argtypes = (ctypes.c_size_t,)
libc.free.argtypes = (ctypes.c_void_p,)
libc.free(libc.malloc(4 * heap.LARGE_BYTES))  # what is mapped and freed once is no longer large to an ordinary heap
threads = [threading.Thread(target=libc.malloc, args=(size,)) for size in (1000, *[heap.LARGE_BYTES] * 9)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "heap.xml"], check=True)
    found = (tmp_path / "heap.xml").read_text()
    assert found.count("<heap nr=") == 1
    (n_mapped,) = re.findall(r'<total type="mmap" count="(\d+)"', found)
    assert int(n_mapped) >= 9
