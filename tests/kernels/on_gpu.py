"""Runs a kernel of the harness on a GPU: its guarded memory is copied there, canaries on both sides, and back after the launch.

It knows launches, not what a kernel computes. Every launch is a graph of one node, as in serving, and is waited for.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from helios.device.device import Device
from helios.device.graph import Graph

MARGIN_NBYTES = 256  # before and behind; keeps the alignment that every allocation has
CANARY = 0xA5


class HostMemory(Protocol):
    """What the harness keeps behind a pointer."""

    address: int
    bytes: np.ndarray


@functools.cache
def device() -> Device:
    """The first GPU, once."""
    return Device.open("cuda")


@dataclass(frozen=True)
class _Mirror:
    """A piece of host memory on the GPU."""

    host: HostMemory
    address: int

    def take_back(self) -> None:
        n = self.host.bytes.size
        whole = device().download(self.address - MARGIN_NBYTES, n + 2 * MARGIN_NBYTES)
        margins = np.concatenate([whole[:MARGIN_NBYTES], whole[MARGIN_NBYTES + n :]])
        assert (margins == CANARY).all(), "a kernel wrote outside an extent"
        self.host.bytes[:] = whole[MARGIN_NBYTES : MARGIN_NBYTES + n]


def run(name: str, args: bytearray, pointer_offsets: Iterable[int], memory: Iterable[HostMemory]) -> int:
    """Launch kernel `name` on copies of the memory that `args` points to. Returns the number of thread blocks."""
    gpu = device()
    geometry = gpu.kernels.table.geometry(name, bytes(args))
    buffers, mirrors = [], {}
    for host in {each.address: each for each in memory}.values():
        margin = np.full(MARGIN_NBYTES, CANARY, np.uint8)
        buffer = gpu.allocate(host.bytes.size + 2 * MARGIN_NBYTES)
        gpu.upload(buffer.address, np.concatenate([margin, host.bytes, margin]))
        buffers.append(buffer)
        mirrors[host.address] = _Mirror(host, buffer.address + MARGIN_NBYTES)
    for offset in pointer_offsets:
        (host_address,) = struct.unpack_from("<Q", args, offset)
        struct.pack_into("<Q", args, offset, mirrors[host_address].address)
    with Graph(gpu.cudart) as graph:
        graph.add_kernel(gpu.kernels.handles[name], geometry, args, [])
        executable = graph.instantiate(gpu.stream)
    executable.launch(gpu.stream)
    gpu.stream.synchronize()
    executable.close()
    for mirror in mirrors.values():
        mirror.take_back()
    for buffer in buffers:
        buffer.close()
    return geometry.n_blocks
