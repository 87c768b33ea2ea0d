"""What the kernels may touch is what the recipe said: otherwise dependencies and the sharing of scratch would be wrong. And where
it is has the alignment that a kernel asks for, or the program is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Q

from helios.contract.schema import execution_pb2 as pb
from helios.device.device import Device
from helios.device.program import BoundBuffer, instantiate
from helios.errors import ContractError
from helios.ignition.capture import Capture
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.geometry import ServingGeometry
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.recipes.hyperparameters import read_hyperparameters
from helios.ignition.recipes.table import recipe_for
from helios.ignition.signatures import Target, host_target, target_of
from tests.ignition.kernel_header import host_target as header_target
from tests.ignition.tiny_model import TinyModel, write_tiny

BIASES = ("attn_q", "attn_output", "ffn_gate", "ffn_down")


def test_the_library_has_the_structs_of_the_header() -> None:
    assert replace(host_target(), row_form=RowForm.Q8) == header_target()


def captured(directory: Path, model: TinyModel, target: Target, kv_format: KvFormat) -> Capture:
    capture = Capture(target)
    with open_gguf(write_tiny(directory / "m.gguf", model)) as checkpoint:
        hyper = read_hyperparameters(checkpoint)
        geometry = ServingGeometry(hyper.context_tokens, 3, 64, model.vocabulary)
        recipe_for(hyper.architecture).capture(checkpoint, hyper, geometry, kv_format, capture)
    return capture


@pytest.mark.parametrize("kv_format", KvFormat)
@pytest.mark.parametrize("row_form", [RowForm.Q8, RowForm.Q12, RowForm.BF16])
@pytest.mark.parametrize(
    "model",
    [
        TinyModel(type=Q.Q4_1, embedding_type=Q.Q8_0, n_extra_tokens=4),
        TinyModel(type=Q.Q4_0, types={"attn_v.weight": Q.F16}, biases=BIASES, tied=False),
        TinyModel(n_ff=100, n_heads=6),
    ],
    ids=["fused", "separate", "floats"],
)
def test_no_kernel_reaches_past_the_tensors_that_it_was_given(
    tmp_path: Path, model: TinyModel, row_form: RowForm, kv_format: KvFormat
) -> None:
    capture = captured(tmp_path, model, replace(host_target(), row_form=row_form), kv_format)
    manifest = capture.manifest()
    with Device.open("cpu", n_threads=1) as device:
        for program, encoded in zip(capture.programs, manifest.programs, strict=True):
            for launch, node in zip(program.launches, encoded.nodes, strict=True):
                arguments = bytearray(node.kernel.arguments)
                for offset in node.kernel.page_count_offsets:
                    struct.pack_into("<i", arguments, offset, 1)  # the tensor of a cache plane is its part of one page
                extents = device.kernels.table.extents(node.kernel.kernel, bytes(arguments))
                for field, extent in zip(launch.signature.fields, extents, strict=True):
                    if field.kind.is_pointer:
                        tensor = launch.arguments[field.name]
                        assert extent <= tensor.nbytes, f"{program.name}: {node.kernel.kernel}.{field.name}"


N_PAGES = 4
IN_CHUNKS = {  # some of what stands at a multiple of 16 bytes
    "cpu": {("attention.1", "kv"), ("embed.q8_0.g8k4.1", "weight"), ("linear.q4_1.g8k4.1", "x")},
    "simt": {("attention.1", "kv"), ("embed.q8_0.g16k8.1", "weight"), ("linear.q4_1.g16k8.1", "x")},
}


def with_moved_pointer(program: pb.Program, node: int, argument_offset: int) -> pb.Program:
    moved = pb.Program()
    moved.CopyFrom(program)
    for relocation in moved.nodes[node].kernel.relocations:
        if relocation.argument_offset == argument_offset:
            relocation.offset += 4
    return moved


@pytest.mark.parametrize("device_name", ["cpu", "simt"])
def test_a_pointer_off_its_alignment_is_refused_by_name(tmp_path: Path, device_name: str) -> None:
    """RT-7: no kernel loads 16 bytes where a GPU would stop for it. Every such field of every kernel that the programs have."""
    model = TinyModel(type=Q.Q4_1, embedding_type=Q.Q8_0)
    manifest = captured(tmp_path, model, target_of(device_name), KvFormat.F16).manifest()
    refused = set()
    with Device.open(device_name, n_threads=1) as device:
        sizes = [buffer.nbytes or buffer.page_nbytes * N_PAGES for buffer in manifest.buffers]
        buffers = [
            BoundBuffer(buffer.name, buffer.kind, device.allocate(size).address, size)
            for buffer, size in zip(manifest.buffers, sizes, strict=True)
        ]
        for program in manifest.programs:
            instantiate(device, program, buffers, N_PAGES).close()
            for index, node in enumerate(program.nodes):
                kernel = node.kernel.kernel
                for field in device.kernels.table.signatures[kernel].fields:
                    if field.alignment < 16 or (kernel, field.name) in refused:
                        continue
                    says = (
                        rf"node {index}, kernel {kernel!r}, field {field.name!r}: has offset \d+, not a multiple of 16"
                    )
                    moved = with_moved_pointer(program, index, field.offset)
                    with pytest.raises(ContractError, match=says):
                        instantiate(device, moved, buffers, N_PAGES)
                    refused.add((kernel, field.name))
    assert refused >= IN_CHUNKS[device_name]
