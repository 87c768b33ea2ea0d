"""Loading programs: what a good one does, and that every lie in a bad one is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

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
