"""Times launches on a device by the host's clock: many in one graph, waited for, the best of some runs.

It knows kernels by name and arguments, not what they compute. A time is a node's share of a graph of dependent nodes, so it
contains what it costs to start one; weights go round, so that a GPU's cache does not hold them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from helios.device.device import Device
from helios.device.graph import Graph, GraphExec
from helios.device.memory import DeviceBuffer
from helios.owner import Owner
from scripts.gpu_checking.cases import ANYTHING, Case

Chain = Callable[[int], GraphExec]  # a graph of so many launches, one after the other
ALIGNMENT = 256  # of every piece of the weights that go round


@dataclass(frozen=True)
class Effort:
    """How much is done for one time: at most so many nodes in a graph, about so many seconds of them, runs, and bytes of weights
    to go round in."""

    n_nodes: int
    run_s: float
    n_runs: int
    weights_nbytes: int


GPU = Effort(64, 0.01, 4, 1 << 30)
TINY = Effort(2, 0.0, 1, 1 << 20)


class Stopwatch(Owner):
    """Times cases on `device`; owner closes."""

    def __init__(self, device: Device, effort: Effort) -> None:
        self._device = device
        self._effort = effort
        self._weights = device.allocate(effort.weights_nbytes)
        fill(device, self._weights)

    def copy_bytes_per_s(self) -> float:
        """Bytes that copies within the device's memory read and write a second."""
        half = self._effort.weights_nbytes // 2
        begin = self._weights.address

        def graph(n_nodes: int) -> GraphExec:
            with Graph(self._device.cudart) as graph:
                for node in range(n_nodes):
                    graph.add_copy(begin + half, begin, half, [node - 1] if node else [])
                return graph.instantiate(self._device.stream)

        return 2 * half / self._node_s(graph)

    def time_s(self, case: Case) -> float:
        """Of one launch."""
        with self._chains(case) as chain:
            return self._node_s(chain)

    def launch_costs_us(self, case: Case) -> tuple[float, float, float]:
        """Microseconds of a node, of a graph of one, launched and waited for, and of queueing that; `case` does next to nothing."""
        stream, n_times = self._device.stream, self._effort.n_nodes
        with self._chains(case) as chain:
            node_s = self._node_s(chain)
            round_trip_s = self._graph_s(chain(1), n_times)
            executable = chain(1)
            begin_s = time.perf_counter()
            for _ in range(n_times):
                executable.launch(stream)
            queue_s = (time.perf_counter() - begin_s) / n_times
            stream.synchronize()
            executable.close()
        return node_s * 1e6, round_trip_s * 1e6, queue_s * 1e6

    @contextmanager
    def _chains(self, case: Case) -> Iterator[Chain]:
        """Memory for the arguments, and what makes a graph of n launches in a row."""
        args, extents = case.arguments(self._device.kernels.table)
        with ExitStack() as buffers:
            addresses = {}
            for name, extent in extents.items():
                if name == "weight":
                    addresses[name] = self._pieces(extent)
                else:
                    buffer = buffers.enter_context(self._device.allocate(extent))
                    _give(self._device, buffer, case.given[name])
                    addresses[name] = [buffer.address]
            yield partial(self._chain, case.name, args, addresses)

    def _pieces(self, size_bytes: int) -> list[int]:
        stride = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        n_pieces = self._effort.weights_nbytes // stride
        assert n_pieces, f"{size_bytes:,} bytes of weights are more than there are to go round in"
        return [self._weights.address + piece * stride for piece in range(n_pieces)]

    def _chain(self, name: str, args: bytearray, addresses: Mapping[str, list[int]], n_nodes: int) -> GraphExec:
        device = self._device
        signature = device.kernels.table.signatures[name]
        geometry = device.kernels.table.geometry(name, bytes(args))
        starts_early = signature.waits and device.starts_kernels_early
        with Graph(device.cudart) as graph:
            for node in range(n_nodes):
                for field in signature.fields:
                    if field.kind.is_pointer:
                        places = addresses[field.name]
                        struct.pack_into("<Q", args, field.offset, places[node % len(places)])
                before = [node - 1] if node else []
                graph.add_kernel(device.kernels.handles[name], geometry, args, before, starts_early=starts_early)
            return graph.instantiate(device.stream)

    def _node_s(self, make: Chain) -> float:
        """A node's share of a graph of as many as take about the time of a run."""
        alone_s = self._graph_s(make(1), 1)
        n_nodes = max(2, min(self._effort.n_nodes, int(self._effort.run_s / alone_s)))
        return self._graph_s(make(n_nodes), self._effort.n_runs) / n_nodes

    def _graph_s(self, executable: GraphExec, n_runs: int) -> float:
        """How long a graph takes, waiting included; it is closed."""

        def run() -> None:
            executable.launch(self._device.stream)
            self._device.stream.synchronize()

        elapsed_s = best_s(run, n_runs)
        executable.close()
        return elapsed_s

    def close(self) -> None:
        self._weights.close()


def best_s(call: Callable[[], None], n_runs: int) -> float:
    """The shortest of some runs, after one that does not count."""
    call()
    times_s = []
    for _ in range(n_runs):
        begin_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - begin_s)
    return min(times_s)


def fill(device: Device, buffer: DeviceBuffer) -> None:
    """Random numbers of about 1, the same as float, as bf16 and, for their size, as bytes."""
    drawn = np.random.default_rng(1).standard_normal(1 << 19, np.float32)
    pattern = (drawn.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    for begin in range(0, buffer.size_bytes, pattern.size):
        device.upload(buffer.address + begin, pattern[: buffer.size_bytes - begin])


def _give(device: Device, buffer: DeviceBuffer, content: Any) -> None:
    """A device's memory begins as zeros."""
    if content is ANYTHING:
        fill(device, buffer)
    elif isinstance(content, np.ndarray):
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        assert raw.size >= buffer.size_bytes
        device.upload(buffer.address, raw[: buffer.size_bytes])
