"""What the kernels may touch is what the recipe said: otherwise dependencies and the sharing of scratch would be wrong."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Q

from helios.device.device import Device
from helios.ignition.capture import Capture
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.geometry import ServingGeometry
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.recipes.hyperparameters import read_hyperparameters
from helios.ignition.recipes.table import recipe_for
from helios.ignition.signatures import host_target
from tests.ignition.kernel_header import host_target as header_target
from tests.ignition.tiny_model import TinyModel, write_tiny

BIASES = ("attn_q", "attn_output", "ffn_gate", "ffn_down")


def test_the_library_has_the_structs_of_the_header() -> None:
    assert replace(host_target(), row_form=RowForm.Q8) == header_target()


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
    capture = Capture(replace(host_target(), row_form=row_form))
    with open_gguf(write_tiny(tmp_path / "m.gguf", model)) as checkpoint:
        hyper = read_hyperparameters(checkpoint)
        geometry = ServingGeometry(hyper.context_tokens, 3, 64, model.vocabulary)
        recipe_for(hyper.architecture).capture(checkpoint, hyper, geometry, kv_format, capture)
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
