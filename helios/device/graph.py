"""Graphs built node by node, and their executables.

It knows addresses and handles; which of them a program may use is decided in `program.py`. A graph is only a means to make an
executable and is closed right after; an executable is launched with one C call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any

from helios.device.cudart import (
    COPY_BY_ADDRESS,
    EDGE_PROGRAMMATIC,
    FUNCTION_MAX_DYNAMIC_SHARED,
    NODE_KERNEL,
    PORT_PROGRAMMATIC,
    Cudart,
    Dim3,
    EdgeData,
    GraphNodeParams,
    KernelNodeParams,
    MemsetParams,
)
from helios.device.kernel_table import Geometry
from helios.device.stream import Stream
from helios.errors import DeviceError
from helios.owner import Owner

DEFAULT_DYNAMIC_SHARED_BYTES = 48 << 10  # beyond it a kernel has to be told


class GraphExec(Owner):
    """An executable graph."""

    __slots__ = ("_cudart", "_handle", "_launch", "is_open", "n_nodes")

    def __init__(self, cudart: Cudart, handle: c_void_p, n_nodes: int) -> None:
        self._cudart = cudart
        self._handle = handle
        self._launch = cudart.function("cudaGraphLaunch")
        self.n_nodes = n_nodes
        self.is_open = True

    def launch(self, stream: Stream) -> None:
        """Submit one run. Launches of the same executable never overlap."""
        code = self._launch(self._handle, stream.handle)
        if code:
            self._cudart.fail("cudaGraphLaunch", code)

    def close(self) -> None:
        """Destroy the executable; a run under way ends undisturbed. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._cudart.release("cudaGraphExecDestroy", self._handle)


class Graph(Owner):
    """A graph under construction. Dependencies are indices of nodes added before; a node's index is its position."""

    def __init__(self, cudart: Cudart) -> None:
        self._cudart = cudart
        self._nodes: list[c_void_p] = []
        self._kernels: set[int] = set()
        self._handle = cudart.create("cudaGraphCreate", 0)
        self._is_open = True

    def add_kernel(
        self,
        kernel: c_void_p,
        geometry: Geometry,
        arguments: bytearray,
        depends_on: Sequence[int],
        *,
        starts_early: bool = False,
    ) -> None:
        """Add a launch of `kernel` with one argument struct, which is copied here. One that `starts_early` waits itself for what
        it depends on, so that it is set up while that ends (where it is one kernel: edges of two kinds are not mixed)."""
        shared_bytes = geometry.shared_bytes
        if shared_bytes > DEFAULT_DYNAMIC_SHARED_BYTES:
            self._cudart.call("cudaFuncSetAttribute", kernel, FUNCTION_MAX_DYNAMIC_SHARED, shared_bytes)
        struct = (ctypes.c_char * len(arguments)).from_buffer(arguments)
        params = (c_void_p * 1)(ctypes.addressof(struct))
        grid, block = Dim3(geometry.n_blocks, 1, 1), Dim3(geometry.n_threads, 1, 1)
        node = KernelNodeParams(kernel.value, grid, block, shared_bytes, params)
        if starts_early and len(depends_on) == 1 and depends_on[0] in self._kernels:
            edge = EdgeData(PORT_PROGRAMMATIC, 0, EDGE_PROGRAMMATIC)
            before = (c_void_p * 1)(self._nodes[depends_on[0]].value)
            whole = GraphNodeParams(type=NODE_KERNEL, kernel=node)
            added = self._cudart.create("cudaGraphAddNode", self._handle, before, byref(edge), 1, byref(whole))
            self._nodes.append(added)
        else:
            self._add("cudaGraphAddKernelNode", depends_on, byref(node))
        self._kernels.add(len(self._nodes) - 1)

    def add_copy(self, destination: int, source: int, size_bytes: int, depends_on: Sequence[int]) -> None:
        """Add a copy between two addresses."""
        self._add("cudaGraphAddMemcpyNode1D", depends_on, destination, source, size_bytes, COPY_BY_ADDRESS)

    def add_fill(self, destination: int, value: int, size_bytes: int, depends_on: Sequence[int]) -> None:
        """Add a fill with one byte value."""
        self._add("cudaGraphAddMemsetNode", depends_on, byref(MemsetParams(destination, 0, value, 1, size_bytes, 1)))

    def instantiate(self, stream: Stream) -> GraphExec:
        """Make the executable and put it on the device."""
        handle = self._cudart.create("cudaGraphInstantiate", self._handle, 0)
        exec_ = GraphExec(self._cudart, handle, len(self._nodes))
        try:
            self._cudart.call("cudaGraphUpload", handle, stream.handle)
        except DeviceError:
            exec_.close()
            raise
        return exec_

    def close(self) -> None:
        """Destroy the graph; executables made from it stay."""
        if self._is_open:
            self._is_open = False
            self._cudart.release("cudaGraphDestroy", self._handle)

    def _add(self, call: str, depends_on: Sequence[int], *arguments: Any) -> None:
        dependencies = (c_void_p * len(depends_on))(*(self._nodes[index].value for index in depends_on))
        self._nodes.append(self._cudart.create(call, self._handle, dependencies, len(depends_on), *arguments))
