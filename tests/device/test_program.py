"""Loading programs: what a good one does, and that every lie in a bad one is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from helios.contract.schema import execution_pb2 as schema
from helios.device.device import Device
from helios.device.program import BoundBuffer, instantiate
from helios.errors import ContractError
from tests.device.launching import kernel_node, program

WEIGHT, STATE, PLANE, INPUT, COMPLETION, MAPPED = range(6)
SIZE_BYTES = 256
PAGE_BYTES, N_PAGES = 64, 3
KINDS = (
    schema.BUFFER_KIND_WEIGHT,
    schema.BUFFER_KIND_STATE,
    schema.BUFFER_KIND_CACHE_PLANE,
    schema.BUFFER_KIND_INPUT,
    schema.BUFFER_KIND_COMPLETION,
    schema.BUFFER_KIND_MAPPED,
)


@pytest.fixture
def buffers(device: Device) -> list[BoundBuffer]:
    sizes = [PAGE_BYTES * N_PAGES if kind == schema.BUFFER_KIND_CACHE_PLANE else SIZE_BYTES for kind in KINDS]
    return [
        BoundBuffer(schema.BufferKind.Name(kind).lower(), kind, device.allocate(size).address, size)
        for kind, size in zip(KINDS, sizes, strict=True)
    ]


def test_a_program_runs_its_kernels_copies_and_fills_in_order(device: Device, buffers: list[BoundBuffer]) -> None:
    device.upload(buffers[INPUT].address, np.arange(8, dtype=np.int32).view(np.uint8))
    nodes = [
        schema.Node(fill=schema.FillNode(destination=STATE, value=7, nbytes=64)),
        kernel_node(device.kernels, "increment.1", {"x": (INPUT, 0), "y": (STATE, 32)}, [0], n=8),
        schema.Node(
            copy=schema.CopyNode(destination=COMPLETION, source=STATE, source_offset=32, nbytes=32), depends_on=[1]
        ),
    ]
    graph = instantiate(device, program(*nodes), buffers, N_PAGES)
    graph.launch(device.stream)
    device.stream.synchronize()
    assert device.download(buffers[COMPLETION].address, 32).view(np.int32).tolist() == list(range(1, 9))
    assert device.download(buffers[STATE].address, 32).tolist() == [7] * 32
    graph.close()


def test_page_counts_are_set_to_what_was_allocated(device: Device, buffers: list[BoundBuffer]) -> None:
    pages = np.zeros((N_PAGES, PAGE_BYTES // 4), np.int32)
    pages[:, 0] = [1, 10, 100]
    device.upload(buffers[PLANE].address, pages.view(np.uint8).ravel())
    node = sum_pages(device)
    graph = instantiate(device, program(node), buffers, N_PAGES)
    graph.launch(device.stream)
    device.stream.synchronize()
    assert device.download(buffers[STATE].address, 4).view(np.int32).tolist() == [111]
    graph.close()


def test_a_weight_page_and_a_mapped_buffer_can_be_read(device: Device, buffers: list[BoundBuffer]) -> None:
    nodes = [increment(device, source=source) for source in (WEIGHT, MAPPED, PLANE, INPUT)]
    nodes.append(in_chunks(device, offset=16))
    instantiate(device, program(*nodes), buffers, N_PAGES).close()


def test_a_range_may_end_where_its_buffer_ends(device: Device, buffers: list[BoundBuffer]) -> None:
    """RT-7: what is refused is one byte more; ranges that only touch do not overlap."""
    copy, fill, half = schema.CopyNode, schema.FillNode, SIZE_BYTES // 2
    nodes = [
        increment(device, n=SIZE_BYTES // 4),
        schema.Node(copy=copy(destination=STATE, source=INPUT, nbytes=SIZE_BYTES)),
        schema.Node(copy=copy(destination=STATE, destination_offset=half, source=STATE, nbytes=half)),
        schema.Node(copy=copy(destination=STATE, source=STATE, source_offset=half, nbytes=half)),
        schema.Node(fill=fill(destination=STATE, value=255, nbytes=SIZE_BYTES)),
    ]
    instantiate(device, program(*nodes), buffers, N_PAGES).close()


def increment(
    device: Device, source: int = INPUT, destination: int = STATE, offset: int = 0, n: int = 8
) -> schema.Node:
    return kernel_node(device.kernels, "increment.1", {"x": (source, 0), "y": (destination, offset)}, n=n)


def in_chunks(device: Device, offset: int) -> schema.Node:
    return kernel_node(device.kernels, "increment_chunks.1", {"x": (INPUT, offset), "y": (STATE, 4)}, n=4)


def sum_pages(device: Device, page_counts: tuple[str, ...] = ("n_pages",), **scalars: int) -> schema.Node:
    pointers = {"plane": (PLANE, 0), "total": (STATE, 0)}
    return kernel_node(
        device.kernels, "sum_pages.1", pointers, page_counts=page_counts, page_stride=PAGE_BYTES, **scalars
    )


def altered(node: schema.Node, **changes: object) -> schema.Node:
    """`node` with fields of its kernel changed."""
    copy = schema.Node()
    copy.CopyFrom(node)
    for name, value in changes.items():
        setattr(copy.kernel, name, value)
    return copy


def with_relocations(node: schema.Node, *relocations: schema.Relocation) -> schema.Node:
    copy = schema.Node()
    copy.CopyFrom(node)
    del copy.kernel.relocations[:]
    copy.kernel.relocations.extend(relocations)
    return copy


def hostile_nodes(device: Device) -> dict[str, schema.Node]:
    """A wrong node for each thing that can be wrong, by what the refusal has to say."""
    good = increment(device)
    x, y = good.kernel.relocations
    pages = sum_pages(device)
    twice = sum_pages(device)
    twice.kernel.page_count_offsets.append(twice.kernel.page_count_offsets[0])
    not_int32 = sum_pages(device)
    not_int32.kernel.page_count_offsets[:] = [24]
    counted = sum_pages(device, page_counts=(), n_pages=2)
    counted.kernel.page_count_offsets.extend(pages.kernel.page_count_offsets)
    not_zero = b"\1" + good.kernel.arguments[1:]
    copy, fill = schema.CopyNode, schema.FillNode
    return {
        "depends on node 0, which is not earlier": schema.Node(kernel=good.kernel, depends_on=[0]),
        "depends on node 4294967295": schema.Node(kernel=good.kernel, depends_on=[2**32 - 1]),
        "has no work": schema.Node(),
        "is a collective": schema.Node(collective=schema.CollectiveNode(buffer=STATE)),
        "no kernel 'nothing.1'": altered(good, kernel="nothing.1"),
        "has 23 argument bytes, the kernel takes 24": altered(good, arguments=good.kernel.arguments[:-1]),
        "has 0 argument bytes": altered(good, arguments=b""),
        "has grid (0, 1, 1) and block (1, 1, 1), the kernel asks for 1 blocks of 1 threads": altered(good, grid_x=0),
        "has grid (1, 2, 1)": altered(good, grid_y=2),
        "has grid (1, 1, 0)": altered(good, grid_z=0),
        "and block (32, 1, 1)": altered(good, block_x=32),
        "and block (1, 0, 1)": altered(good, block_y=0),
        "has 16 bytes of shared memory, the kernel asks for 0": altered(good, dynamic_shared_nbytes=16),
        "field 'y': is not relocated": with_relocations(good, x),
        "field 'x': is relocated twice": with_relocations(good, x, y, x),
        "relocates byte 16, where no pointer field is": with_relocations(
            good, x, y, schema.Relocation(argument_offset=16, buffer=STATE)
        ),
        "relocates byte 4294967295": with_relocations(good, x, y, schema.Relocation(argument_offset=2**32 - 1)),
        "field 'x': is not zero before relocation": altered(good, arguments=not_zero),
        "field 'x': names buffer 6, there are 6": increment(device, source=6),
        "writes to buffer 'buffer_kind_weight' of kind weight": increment(device, destination=WEIGHT),
        "writes to buffer 'buffer_kind_input' of kind input": increment(device, destination=INPUT),
        "writes to buffer 'buffer_kind_mapped' of kind mapped": increment(device, destination=MAPPED),
        "reads buffer 'buffer_kind_completion'": increment(device, source=COMPLETION),
        "uses bytes 228 to 260 of buffer 'buffer_kind_state', which has 256": increment(device, offset=228),
        "uses bytes 18,446,744,073,709,551,612 to": increment(device, offset=2**64 - 4),
        "uses bytes 0 to 260": increment(device, n=65),
        "field 'y': has offset 2, not a multiple of 4": increment(device, offset=2),
        "field 'x': has offset 4, not a multiple of 16": in_chunks(device, offset=4),
        "field 'x': has offset 8, not a multiple of 16": in_chunks(device, offset=8),
        "field 'x': has no valid extent": increment(device, n=-1),
        "sets the page count twice": twice,
        "field 'n_pages': sets the page count twice": counted,
        "sets a page count at byte 24, where no int32 field is": not_int32,
        "uses bytes 0 to 196 of buffer 'buffer_kind_cache_plane'": sum_pages(device, page_counts=(), n_pages=4),
        "copies nothing": schema.Node(copy=copy(destination=STATE, source=INPUT)),
        "copies a range onto itself": schema.Node(
            copy=copy(destination=STATE, source=STATE, source_offset=4, nbytes=8)
        ),
        "node 0: reads buffer 'buffer_kind_completion'": schema.Node(
            copy=copy(destination=STATE, source=COMPLETION, nbytes=4)
        ),
        "node 0: writes to buffer 'buffer_kind_weight'": schema.Node(
            copy=copy(destination=WEIGHT, source=STATE, nbytes=4)
        ),
        "uses bytes 250 to 258": schema.Node(copy=copy(destination=STATE, source=INPUT, source_offset=250, nbytes=8)),
        "uses bytes 9 to 257": schema.Node(
            copy=copy(destination=STATE, destination_offset=9, source=INPUT, nbytes=248)
        ),
        "fills nothing": schema.Node(fill=fill(destination=STATE)),
        "node 0: writes to buffer 'buffer_kind_input'": schema.Node(fill=fill(destination=INPUT, nbytes=4)),
        "fills with 256": schema.Node(fill=fill(destination=STATE, value=256, nbytes=1)),
        "uses bytes 0 to 18,446,744,073,709,551,615": schema.Node(fill=fill(destination=STATE, nbytes=2**64 - 1)),
        "node 0: names buffer 99": schema.Node(fill=fill(destination=99, nbytes=1)),
    }


def test_every_lie_in_a_program_is_refused_by_name(device: Device, buffers: list[BoundBuffer]) -> None:
    """RT-7: an inconsistent program fails start-up with a message that names it."""
    for reason, node in hostile_nodes(device).items():
        with pytest.raises(ContractError) as refused:
            instantiate(device, program(node), buffers, N_PAGES)
        assert str(refused.value).startswith("program 'test', node 0"), reason
        assert reason in str(refused.value)


def test_a_refusal_names_the_kernel_and_the_field(device: Device, buffers: list[BoundBuffer]) -> None:
    with pytest.raises(ContractError, match=r"^program 'test', node 1, kernel 'increment.1', field 'y': writes"):
        instantiate(device, program(increment(device), increment(device, destination=WEIGHT)), buffers, N_PAGES)


def test_a_dependency_named_twice_and_an_empty_program_are_refused(device: Device, buffers: list[BoundBuffer]) -> None:
    doubled = schema.Node(kernel=increment(device).kernel, depends_on=[0, 0])
    with pytest.raises(ContractError, match="names a dependency twice"):
        instantiate(device, program(increment(device), doubled), buffers, N_PAGES)
    with pytest.raises(ContractError, match="program 'test' has no nodes"):
        instantiate(device, program(), buffers, N_PAGES)


def test_no_byte_of_a_program_can_be_changed_into_a_bad_launch(device: Device, buffers: list[BoundBuffer]) -> None:
    """Flip every bit of a serialised program: it is refused, or does not parse, or still keeps to its buffers."""
    copy = schema.Node(copy=schema.CopyNode(destination=COMPLETION, source=STATE, nbytes=32), depends_on=[0])
    data = program(increment(device), copy).SerializeToString()
    n_accepted = 0
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            graph = instantiate(device, schema.Program.FromString(bytes(changed)), buffers, N_PAGES)
        except (ContractError, DecodeError):
            continue
        n_accepted += 1  # the host library checked each address against live memory once more
        graph.close()
    assert 0 < n_accepted < len(data) * 8
