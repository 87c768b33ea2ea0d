"""Builds manifest nodes for the tests' kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from helios.contract.schema import execution_pb2 as schema
from helios.device.kernel_table import FieldKind
from helios.device.kernels import KernelLibrary

FORMATS = {FieldKind.I32: "<i", FieldKind.I64: "<q", FieldKind.U32: "<I", FieldKind.F32: "<f"}


def kernel_node(
    library: KernelLibrary,
    kernel: str,
    pointers: dict[str, tuple[int, int]],
    depends_on: Sequence[int] = (),
    page_counts: Sequence[str] = (),
    **scalars: int,
) -> schema.Node:
    """A launch of `kernel`: `pointers` maps field names to (buffer id, offset), `scalars` gives the other fields."""
    signature = library.table.signatures[kernel]
    arguments = bytearray(signature.args_size_bytes)
    node = schema.KernelNode(kernel=kernel, grid_y=1, grid_z=1, block_y=1, block_z=1)
    for field in signature.fields:
        if field.name in pointers:
            buffer, offset = pointers[field.name]
            node.relocations.add(argument_offset=field.offset, buffer=buffer, offset=offset)
        elif field.name in page_counts:
            node.page_count_offsets.append(field.offset)
        elif not field.kind.is_pointer:
            struct.pack_into(FORMATS[field.kind], arguments, field.offset, scalars[field.name])
    node.arguments = bytes(arguments)
    geometry = library.table.geometry(kernel, node.arguments)
    node.grid_x, node.block_x, node.dynamic_shared_nbytes = geometry.n_blocks, geometry.n_threads, geometry.shared_bytes
    return schema.Node(kernel=node, depends_on=depends_on)


def program(*nodes: schema.Node) -> schema.Program:
    return schema.Program(name="test", operation=schema.OPERATION_DECODE, nodes=nodes)
