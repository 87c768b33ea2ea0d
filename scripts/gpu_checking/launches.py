"""Times launches on a device by the host's clock: many in one graph, waited for, the best of some runs.

It knows kernels by name and arguments, not what they compute. A time is a node's share of a graph of dependent nodes, so it
contains what it costs to start one; weights go round, so that a GPU's cache does not hold them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from helios.device.device import Device
from helios.device.graph import Graph, GraphExec
from helios.device.kernel_table import EXTENT_REFUSED, Geometry
from helios.device.memory import DeviceBuffer


@dataclass(frozen=True)
class Effort:
    """How much is done for one time: nodes in a graph, runs of it, bytes of weights to go round in."""

    n_nodes: int
    n_runs: int
    weights_nbytes: int


def best_s(call: Callable[[], None], n_runs: int) -> float:
    """The shortest of some runs, after one that does not count."""
    call()
    times_s = []
    for _ in range(n_runs):
        begin_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - begin_s)
    return min(times_s)


def graph_s(device: Device, executable: GraphExec, n_runs: int) -> float:
    """How long a graph takes, waiting included."""

    def run() -> None:
        executable.launch(device.stream)
        device.stream.synchronize()

    return best_s(run, n_runs)


def copy_bytes_per_s(device: Device, size_bytes: int, effort: Effort) -> float:
    """Bytes that copies within the device's memory read and write a second."""
    with device.allocate(size_bytes) as source, device.allocate(size_bytes) as target, Graph(device.cudart) as graph:
        for node in range(effort.n_nodes):
            graph.add_copy(target.address, source.address, size_bytes, [node - 1] if node else [])
        executable = graph.instantiate(device.stream)
        elapsed_s = graph_s(device, executable, effort.n_runs)
        executable.close()
    return 2 * size_bytes * effort.n_nodes / elapsed_s


def node_s(device: Device, name: str, given: Mapping[str, Any], effort: Effort) -> float:
    """Seconds of one launch of kernel `name`. Arrays of `given` are copied to the device, an int for a pointer is bytes of zeros,
    and of `weight` there are as many copies as fill the bytes to go round in."""
    signature = device.kernels.table.signatures[name]
    args = bytearray(signature.args_size_bytes)
    for field in signature.fields:
        if not field.kind.is_pointer:
            struct.pack_into(field.kind.struct_format, args, field.offset, given[field.name])
    extents = device.kernels.table.extents(name, bytes(args))
    if EXTENT_REFUSED in extents:
        raise SystemExit(f"kernel {name} refuses the shapes that gpu_check gives it")
    buffers: dict[str, list[DeviceBuffer]] = {}
    for field, extent in zip(signature.fields, extents, strict=True):
        if field.kind.is_pointer:
            n_copies = max(1, effort.weights_nbytes // extent) if field.name == "weight" else 1
            buffers[field.name] = [
                _filled(device, given[field.name], extent) for _ in range(min(n_copies, effort.n_nodes))
            ]
    geometry = device.kernels.table.geometry(name, bytes(args))
    executable = _repeated(device, name, geometry, args, buffers, effort.n_nodes)
    elapsed_s = graph_s(device, executable, effort.n_runs)
    executable.close()
    for buffer in (each for copies in buffers.values() for each in copies):
        buffer.close()
    return elapsed_s / effort.n_nodes


def _filled(device: Device, content: Any, size_bytes: int) -> DeviceBuffer:
    buffer = device.allocate(size_bytes)
    if isinstance(content, np.ndarray):
        device.upload(buffer.address, np.ascontiguousarray(content).reshape(-1).view(np.uint8)[:size_bytes])
    return buffer


def _repeated(
    device: Device,
    name: str,
    geometry: Geometry,
    args: bytearray,
    buffers: Mapping[str, list[DeviceBuffer]],
    n_nodes: int,
) -> GraphExec:
    signature = device.kernels.table.signatures[name]
    starts_early = signature.waits and device.starts_kernels_early
    with Graph(device.cudart) as graph:
        for node in range(n_nodes):
            for field in signature.fields:
                if field.kind.is_pointer:
                    copies = buffers[field.name]
                    struct.pack_into("<Q", args, field.offset, copies[node % len(copies)].address)
            before = [node - 1] if node else []
            graph.add_kernel(device.kernels.handles[name], geometry, args, before, starts_early=starts_early)
        return graph.instantiate(device.stream)


def launch_costs_us(device: Device, effort: Effort) -> tuple[float, float, float]:
    """Microseconds: of a node that does next to nothing; of a graph of one, launched and waited for; of queueing it."""
    kernel = "round_bf16.1"
    given = {"n_rows": np.ones(4, np.int32), "x": 0, "y": 0, "rows_capacity": 1, "width": 32}
    per_node_s = node_s(device, kernel, given, effort)
    round_trip_s = node_s(device, kernel, given, Effort(1, effort.n_runs, 0))
    with device.allocate(64) as buffer, Graph(device.cudart) as graph:
        graph.add_fill(buffer.address, 0, 64, [])
        executable = graph.instantiate(device.stream)
        begin_s = time.perf_counter()
        for _ in range(effort.n_nodes):
            executable.launch(device.stream)
        queue_s = (time.perf_counter() - begin_s) / effort.n_nodes
        device.stream.synchronize()
        executable.close()
    return per_node_s * 1e6, round_trip_s * 1e6, queue_s * 1e6
