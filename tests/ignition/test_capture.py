"""Capture: launches become nodes with encoded arguments, relocations, shared scratch and true dependencies."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract.schema import execution_pb2 as pb
from helios.device.kernel_table import FieldKind, KernelField
from helios.errors import InternalError
from helios.ignition.capture import PAGE_COUNT, Capture, ProgramCapture, Tensor
from helios.ignition.signatures import KernelSignature, Target

SIGNATURES = {
    "mix.1": KernelSignature(
        "mix.1",
        40,
        (
            KernelField("source", 0, FieldKind.READ, 4),
            KernelField("target", 8, FieldKind.WRITE, 4),
            KernelField("n_pages", 16, FieldKind.I32, 0),
            KernelField("stride", 24, FieldKind.I64, 0),
            KernelField("scale", 32, FieldKind.F32, 0),
        ),
    ),
    "add.1": KernelSignature(
        "add.1", 16, (KernelField("source", 0, FieldKind.READ, 4), KernelField("target", 8, FieldKind.READ_WRITE, 4))
    ),
}


def new_program(name: str = "p") -> tuple[Capture, ProgramCapture]:
    capture = Capture(Target("host", SIGNATURES))
    return capture, capture.program(name, pb.OPERATION_DECODE, 1, 1, 1)


def mix(program: ProgramCapture, source: Tensor, target: Tensor) -> None:
    program.launch("mix.1", source=source, target=target, n_pages=PAGE_COUNT, stride=1 << 40, scale=0.5)


def test_arguments_lie_where_the_signature_says() -> None:
    capture, program = new_program()
    source = capture.buffer("source", pb.BUFFER_KIND_STATE, 64)
    target = capture.buffer("target", pb.BUFFER_KIND_STATE, 64)
    mix(program, source.at(16, 8), target.at(32))
    node = capture.manifest().programs[0].nodes[0].kernel
    assert node.kernel == "mix.1"
    assert node.arguments == struct.pack("<QQi4xqf4x", 0, 0, 0, 1 << 40, 0.5)
    assert [(r.argument_offset, r.buffer, r.offset) for r in node.relocations] == [(0, 0, 16), (8, 1, 32)]
    assert list(node.page_count_offsets) == [16]


def test_one_scratch_buffer_as_large_as_the_largest_program_serves_all() -> None:
    capture = Capture(Target("host", SIGNATURES))
    source = capture.buffer("source", pb.BUFFER_KIND_STATE, 64)
    for name, nbytes in (("small", 100), ("large", 5000)):
        program = capture.program(name, pb.OPERATION_DECODE, 1, 1, 1)
        value = program.scratch(nbytes)
        mix(program, source, value)
        mix(program, value, source)
    scratch = [buffer for buffer in capture.manifest().buffers if buffer.kind == pb.BUFFER_KIND_SCRATCH]
    assert [(buffer.id, buffer.nbytes) for buffer in scratch] == [(1, 5120)]


def test_layers_of_a_cache_plane_do_not_depend_on_each_other() -> None:
    capture, program = new_program()
    plane = capture.buffer("kv", pb.BUFFER_KIND_CACHE_PLANE, 0, page_nbytes=256)
    source = capture.buffer("source", pb.BUFFER_KIND_STATE, 64)
    mix(program, source, plane.at(0, 128))
    mix(program, source, plane.at(128, 128))
    assert [list(node.depends_on) for node in capture.manifest().programs[0].nodes] == [[], []]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 400)), min_size=1, max_size=30))
def test_any_order_that_keeps_the_edges_computes_the_same(steps: list[tuple[int, int, int]]) -> None:
    """Interprets the encoded nodes, in order and with every node as late as its edges allow: all final bytes agree."""
    capture = random_program(steps)
    manifest = capture.manifest()
    nodes = manifest.programs[0].nodes
    sizes = [tensor.nbytes for launch in capture.programs[0].launches for _, _, tensor in launch.pointers()]
    in_order = interpret(manifest, list(range(len(nodes))), sizes)
    late = sorted(range(len(nodes)), key=lambda i: (depth(nodes, i), -i))
    assert interpret(manifest, late, sizes) == in_order
    assert manifest.SerializeToString(deterministic=True) == random_program(steps).manifest().SerializeToString(
        deterministic=True
    )


def random_program(steps: list[tuple[int, int, int]]) -> Capture:
    """Values that are made from earlier ones, added to others, and all summed into a state buffer at the end."""
    capture, program = new_program()
    state = capture.buffer("state", pb.BUFFER_KIND_STATE, 64)
    values = [state]
    for source, target, nbytes in steps:
        if target < len(values) and target != source:
            program.launch("add.1", source=values[source % len(values)], target=values[target])
        else:
            values.append(program.scratch(nbytes))
            mix(program, values[source % (len(values) - 1)], values[-1])
    for value in values[1:]:
        program.launch("add.1", source=value, target=state)
    return capture


def depth(nodes: list[pb.Node], index: int) -> int:
    return 1 + max((depth(nodes, earlier) for earlier in nodes[index].depends_on), default=0)


def interpret(manifest: pb.ExecutionManifest, order: list[int], sizes: list[int]) -> bytes:
    """mix: target bytes become a digest of source; add: target bytes change by it. Returns the state buffer."""
    memory = [bytearray(buffer.nbytes) for buffer in manifest.buffers]
    memory[0][:] = range(64)
    for index in order:
        node = manifest.programs[0].nodes[index].kernel
        source, target = node.relocations
        n_source, n_target = sizes[2 * index], sizes[2 * index + 1]
        digest = 1 + 31 * sum(memory[source.buffer][source.offset : source.offset + n_source])
        for i in range(n_target):
            old = memory[target.buffer][target.offset + i] if node.kernel == "add.1" else 0
            memory[target.buffer][target.offset + i] = (old * 7 + digest + i) & 255
    return bytes(memory[0])


def test_a_temporary_is_written_before_it_is_read() -> None:
    capture, program = new_program()
    mix(program, program.scratch(8), capture.buffer("target", pb.BUFFER_KIND_STATE, 64))
    with pytest.raises(InternalError, match="reads a temporary that nothing wrote"):
        capture.manifest()


def test_a_weight_is_never_written() -> None:
    capture, program = new_program()
    weight = capture.buffer("w", pb.BUFFER_KIND_WEIGHT, 64, resource="w")
    with pytest.raises(InternalError, match="writes to the weight w"):
        mix(program, weight, weight)


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        ("none.1", {}, "no kernel none.1"),
        ("add.1", {"source": 1}, r"\['target'\] are missing or unknown"),
        ("add.1", {"source": 1, "target": 1}, "int for a field of kind READ"),
    ],
)
def test_a_launch_that_does_not_fit_its_signature_is_refused(
    kernel: str, arguments: dict[str, int], message: str
) -> None:
    _, program = new_program()
    with pytest.raises(InternalError, match=message):
        program.launch(kernel, **arguments)


def test_a_scalar_that_does_not_fit_its_field_is_refused() -> None:
    capture, program = new_program()
    buffer = capture.buffer("b", pb.BUFFER_KIND_STATE, 64)
    program.launch("mix.1", source=buffer, target=buffer, n_pages=1 << 31, stride=0, scale=1.0)
    with pytest.raises(InternalError, match="does not fit a field of kind I32"):
        capture.manifest()
