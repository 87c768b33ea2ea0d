"""A captured program becomes an executable graph, after every node of it was checked against the kernel table.

It knows layouts and addresses, not models: all that it believes about a program it proves from the program's bytes and the
library's own table. Whatever passes here touches only its own buffers, writes only what its kind allows, and has no cycles.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from helios.contract.accesses import Pointer, Pointers
from helios.contract.schema import execution_pb2 as schema
from helios.device.device import Device
from helios.device.graph import Graph, GraphExec
from helios.device.kernel_table import EXTENT_REFUSED, FieldKind, Geometry, KernelField, KernelSignature
from helios.errors import ContractError

READABLE_KINDS = frozenset(
    {
        schema.BUFFER_KIND_WEIGHT,
        schema.BUFFER_KIND_STATE,
        schema.BUFFER_KIND_CACHE_PLANE,
        schema.BUFFER_KIND_SCRATCH,
        schema.BUFFER_KIND_INPUT,
        schema.BUFFER_KIND_MAPPED,
    }
)
WRITABLE_KINDS = frozenset(
    {
        schema.BUFFER_KIND_STATE,
        schema.BUFFER_KIND_CACHE_PLANE,
        schema.BUFFER_KIND_SCRATCH,
        schema.BUFFER_KIND_COMPLETION,
    }
)
_POINTER = struct.Struct("<Q")
_NO_POINTER = bytes(_POINTER.size)
MAX_BLOCKS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BoundBuffer:
    """A manifest buffer with its memory. `size_bytes` is what was really allocated, for a cache plane too."""

    name: str
    kind: int  # schema.BufferKind
    address: int
    size_bytes: int


def instantiate(device: Device, program: schema.Program, buffers: Sequence[BoundBuffer], n_pages: int) -> GraphExec:
    """Check every node of `program`, patch addresses and page counts, and make it executable on `device`.

    `buffers` is indexed by Buffer.id. ContractError names the program, the node, the kernel and the field that is wrong.
    """
    if not program.nodes:
        raise ContractError(f"program {program.name!r} has no nodes")
    with Graph(device.cudart) as graph:
        for index, node in enumerate(program.nodes):
            _NodeLoader(device, program.name, index, buffers, n_pages).add(graph, node)
        return graph.instantiate(device.stream)


def kernel_pointers(device: Device, n_pages: int) -> Pointers:
    """What the kernel library lets each pointer of a node touch; only for nodes of programs that `instantiate` accepted."""

    @functools.cache  # the layers of a program ask the same; the cache goes with the check
    def pointers(kernel: str, scalars: bytes, page_count_offsets: tuple[int, ...]) -> list[Pointer]:
        signature = device.kernels.table.signatures[kernel]
        arguments = bytearray(scalars)
        for offset in page_count_offsets:
            struct.pack_into("<i", arguments, offset, n_pages)
        extents = device.kernels.table.extents(kernel, bytes(arguments))
        fields = signature.fields
        return [
            Pointer(offset, extents[index], fields[index].kind.reads, fields[index].kind.writes)
            for offset, index in signature.pointers.items()
        ]

    return lambda node: pointers(node.kernel, node.arguments, tuple(node.page_count_offsets))


@dataclass(frozen=True, slots=True)
class _NodeLoader:
    """Checks and adds one node; the fields are what its messages and checks need."""

    device: Device
    program_name: str
    index: int
    buffers: Sequence[BoundBuffer]
    n_pages: int

    def add(self, graph: Graph, node: schema.Node) -> None:
        depends_on = list(node.depends_on)
        for dependency in depends_on:
            if dependency >= self.index:
                self._refuse(f"depends on node {dependency}, which is not earlier")
        if len(set(depends_on)) != len(depends_on):
            self._refuse("names a dependency twice")
        match node.WhichOneof("work"):
            case "kernel":
                self._add_kernel(graph, node.kernel, depends_on)
            case "copy":
                self._add_copy(graph, node.copy, depends_on)
            case "fill":
                self._add_fill(graph, node.fill, depends_on)
            case "collective":
                self._refuse("is a collective, which a single device does not run")
            case _:
                self._refuse("has no work that this Helios knows")

    def _add_kernel(self, graph: Graph, node: schema.KernelNode, depends_on: list[int]) -> None:
        table = self.device.kernels.table
        signature = table.signatures.get(node.kernel)
        if signature is None:
            self._refuse(f"the kernel library has no kernel {node.kernel[:200]!r}")
        if len(node.arguments) != signature.args_size_bytes:
            self._refuse(
                f"has {len(node.arguments)} argument bytes, the kernel takes {signature.args_size_bytes}", node.kernel
            )
        arguments = bytearray(node.arguments)
        self._patch_page_counts(signature, node.page_count_offsets, arguments)
        extents = table.extents(node.kernel, bytes(arguments))
        self._patch_pointers(signature, node.relocations, extents, arguments)
        geometry = self._geometry(node)
        handle = self.device.kernels.handles[node.kernel]
        starts_early = signature.waits and self.device.starts_kernels_early
        graph.add_kernel(handle, geometry, arguments, depends_on, starts_early=starts_early)

    def _geometry(self, node: schema.KernelNode) -> Geometry:
        """The library's launch for the node's arguments, which the node's own has to be. The arguments' extents were accepted."""
        asked = self.device.kernels.table.geometry(node.kernel, node.arguments)
        grid = (node.grid_x, node.grid_y, node.grid_z)
        block = (node.block_x, node.block_y, node.block_z)
        if (grid, block) != ((asked.n_blocks, 1, 1), (asked.n_threads, 1, 1)):
            wanted = f"{asked.n_blocks:,} blocks of {asked.n_threads:,} threads"
            self._refuse(f"has grid {grid} and block {block}, the kernel asks for {wanted}", node.kernel)
        if asked.n_blocks > MAX_BLOCKS:
            self._refuse(f"has {asked.n_blocks:,} blocks, a launch has at most {MAX_BLOCKS:,}", node.kernel)
        shared_bytes, limit_bytes = node.dynamic_shared_nbytes, self.device.max_dynamic_shared_bytes
        if shared_bytes != asked.shared_bytes:
            wanted = f"the kernel asks for {asked.shared_bytes:,}"
            self._refuse(f"has {shared_bytes:,} bytes of shared memory, {wanted}", node.kernel)
        if shared_bytes > limit_bytes:
            self._refuse(
                f"asks for {shared_bytes:,} bytes of shared memory, the device has {limit_bytes:,}", node.kernel
            )
        return asked

    def _patch_page_counts(self, signature: KernelSignature, offsets: Sequence[int], arguments: bytearray) -> None:
        if not offsets:
            return
        i32_fields = {field.offset: field for field in signature.fields if field.kind is FieldKind.I32}
        for offset in offsets:
            field = i32_fields.get(offset)
            if field is None:
                self._refuse(f"sets a page count at byte {offset}, where no int32 field is", signature.name)
            if any(arguments[offset : offset + 4]):
                self._refuse("sets the page count twice", signature.name, field)
            struct.pack_into("<i", arguments, offset, self.n_pages)

    def _patch_pointers(
        self,
        signature: KernelSignature,
        relocations: Iterable[schema.Relocation],
        extents: tuple[int, ...],
        arguments: bytearray,
    ) -> None:
        missing = dict(signature.pointers)
        for relocation in relocations:
            offset = relocation.argument_offset
            field_index = signature.pointers.get(offset)
            if field_index is None:
                self._refuse(f"relocates byte {offset}, where no pointer field is", signature.name)
            field = signature.fields[field_index]
            if missing.pop(offset, None) is None:
                self._refuse("is relocated twice", signature.name, field)
            if arguments[offset : offset + 8] != _NO_POINTER:
                self._refuse("is not zero before relocation", signature.name, field)
            address = self._pointer(signature.name, field, relocation, extents[field_index])
            _POINTER.pack_into(arguments, offset, address)
        for field_index in missing.values():
            self._refuse("is not relocated", signature.name, signature.fields[field_index])

    def _pointer(self, kernel: str, field: KernelField, relocation: schema.Relocation, extent: int) -> int:
        if extent == EXTENT_REFUSED:
            self._refuse("has no valid extent: the kernel does not accept its scalar arguments", kernel, field)
        start = relocation.offset
        if start % field.alignment:  # a buffer itself stands at a multiple of whatever a kernel asks for
            self._refuse(f"has offset {start}, not a multiple of {field.alignment}", kernel, field)
        reads, writes = field.kind.reads, field.kind.writes
        return self._range(relocation.buffer, start, extent, reads=reads, writes=writes, kernel=kernel, field=field)

    def _add_copy(self, graph: Graph, node: schema.CopyNode, depends_on: list[int]) -> None:
        if node.nbytes == 0:
            self._refuse("copies nothing")
        source = self._range(node.source, node.source_offset, node.nbytes, reads=True)
        destination = self._range(node.destination, node.destination_offset, node.nbytes, writes=True)
        if abs(source - destination) < node.nbytes:
            self._refuse("copies a range onto itself")
        graph.add_copy(destination, source, node.nbytes, depends_on)

    def _add_fill(self, graph: Graph, node: schema.FillNode, depends_on: list[int]) -> None:
        if node.nbytes == 0:
            self._refuse("fills nothing")
        if node.value > 255:
            self._refuse(f"fills with {node.value}, which is not a byte")
        destination = self._range(node.destination, node.destination_offset, node.nbytes, writes=True)
        graph.add_fill(destination, node.value, node.nbytes, depends_on)

    def _range(
        self,
        buffer_id: int,
        offset: int,
        size_bytes: int,
        *,
        reads: bool = False,
        writes: bool = False,
        kernel: str | None = None,
        field: KernelField | None = None,
    ) -> int:
        """The address of `size_bytes` at `offset` of a buffer, if such an access to it is allowed."""
        if buffer_id >= len(self.buffers):
            self._refuse(f"names buffer {buffer_id}, there are {len(self.buffers)}", kernel, field)
        buffer = self.buffers[buffer_id]
        if writes and buffer.kind not in WRITABLE_KINDS:
            self._refuse(f"writes to buffer {buffer.name!r} of kind {_kind_name(buffer.kind)}", kernel, field)
        if reads and buffer.kind not in READABLE_KINDS:
            self._refuse(f"reads buffer {buffer.name!r} of kind {_kind_name(buffer.kind)}", kernel, field)
        if offset + size_bytes > buffer.size_bytes:
            span = f"bytes {offset:,} to {offset + size_bytes:,}"
            self._refuse(f"uses {span} of buffer {buffer.name!r}, which has {buffer.size_bytes:,}", kernel, field)
        return buffer.address + offset

    def _refuse(self, reason: str, kernel: str | None = None, field: KernelField | None = None) -> NoReturn:
        where = f"program {self.program_name!r}, node {self.index}"
        if kernel is not None:
            where += f", kernel {kernel!r}"
        if field is not None:
            where += f", field {field.name!r}"
        raise ContractError(f"{where}: {reason}")


def _kind_name(kind: int) -> str:
    value = schema.BufferKind.DESCRIPTOR.values_by_number.get(kind)
    return value.name.removeprefix("BUFFER_KIND_").lower() if value else str(kind)
