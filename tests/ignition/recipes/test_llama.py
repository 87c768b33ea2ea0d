"""The dense recipe: which checkpoints it takes, how it declares them, and how it says no."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Q

from helios.contract.schema import execution_pb2 as pb
from helios.errors import CheckpointError
from helios.ignition.capture import Capture
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.contract import finish_manifest
from helios.ignition.preparation.geometry import ServingGeometry
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.recipes.hyperparameters import read_hyperparameters
from helios.ignition.recipes.table import recipe_for
from tests.ignition.kernel_header import host_target
from tests.ignition.tiny_model import TinyModel, write_tiny

LAYOUTS = {
    RowForm.Q8: {
        Q.F32: "f32.g8",
        Q.F16: "f16.g8",
        Q.BF16: "bf16.g8",
        Q.Q8_0: "q8_0.g8k4",
        Q.Q4_0: "q4_0.g8k4",
        Q.Q4_1: "q4_1.g8k4",
    },
    RowForm.Q12: {Q.Q4_0: "w12.g16", Q.Q4_1: "w12.g16", Q.F32: "f32.g8", Q.Q8_0: "q8_0.g8k4"},
    RowForm.BF16: {
        Q.F32: "f32.g8",
        Q.F16: "f16.g16k8",
        Q.BF16: "bf16.g16k8",
        Q.Q8_0: "q8_0.g16k8",
        Q.Q4_0: "q4_0.g16k8",
        Q.Q4_1: "q4_1.g16k8",
    },
}
NORMS = {"g8": "rms_norm.1", "g8k4": "rms_norm_q8.1", "g16": "rms_norm_q12.1", "g16k8": "rms_norm_bf16.1"}
CONVERSIONS = {"g8k4": "quantize_q8.1", "g16": "quantize_q12.1", "g16k8": "round_bf16.1"}


def capture_of(
    tmp_path: Path, model: TinyModel, form: RowForm = RowForm.Q8, kv_format: KvFormat = KvFormat.F16
) -> pb.ExecutionManifest:
    """The manifest of a tiny checkpoint, after every weight was produced in the size that its buffer has."""
    with open_gguf(write_tiny(tmp_path / "m.gguf", model)) as checkpoint:
        hyper = read_hyperparameters(checkpoint)
        capture = Capture(host_target(form))
        geometry = ServingGeometry(hyper.context_tokens, 4, 64, model.vocabulary)
        captured = recipe_for(hyper.architecture).capture(checkpoint, hyper, geometry, kv_format, capture)
        for weight in captured.weights:
            assert weight.produce().nbytes == weight.nbytes
        return finish_manifest(capture, captured.surface, "test")


def kernels_of(manifest: pb.ExecutionManifest, operation: pb.Operation) -> list[str]:
    program = next(program for program in manifest.programs if program.operation == operation)
    return [node.kernel.kernel for node in program.nodes]


def weights_of(manifest: pb.ExecutionManifest) -> list[str]:
    return [buffer.name for buffer in manifest.buffers if buffer.kind == pb.BUFFER_KIND_WEIGHT]


@pytest.mark.parametrize(("form", "type_"), [(form, type_) for form in LAYOUTS for type_ in LAYOUTS[form]])
def test_each_type_runs_in_its_own_layout(tmp_path: Path, type_: Q, form: RowForm) -> None:
    kernels = kernels_of(capture_of(tmp_path, TinyModel(type=type_, tied=False, n_ff=128), form), pb.OPERATION_DECODE)
    layout = LAYOUTS[form][type_]
    grouping = layout.split(".")[1]
    assert kernels.count(f"linear.{layout}.1") == 3  # qkv twice, the head
    assert kernels.count(f"linear_silu_gate.{layout}.1") == 2
    assert kernels.count(NORMS[grouping]) == 5
    conversions = {kernel: kernels.count(kernel) for kernel in CONVERSIONS.values() if kernel in kernels}
    assert conversions == ({CONVERSIONS[grouping]: 4} if grouping in CONVERSIONS else {})


def test_decoding_splits_attention_and_prefilling_does_not(tmp_path: Path) -> None:
    manifest = capture_of(tmp_path, TinyModel())
    decode, prefill = kernels_of(manifest, pb.OPERATION_DECODE), kernels_of(manifest, pb.OPERATION_PREFILL)
    assert "attention.1" not in decode
    assert "attention.1" in prefill
    rest = ("attention.1", "attention_split.1", "attention_merge.1")
    assert [k for k in decode if k not in rest] == [k for k in prefill if k not in rest]


def test_a_scored_prefill_is_a_prefill_with_logits_of_every_row(tmp_path: Path) -> None:
    manifest = capture_of(tmp_path, TinyModel())
    scored, prefill = (
        kernels_of(manifest, operation) for operation in (pb.OPERATION_SCORED_PREFILL, pb.OPERATION_PREFILL)
    )
    assert scored == [*prefill, "rms_norm.1", "linear.f32.g8.1", "score.1", "distribution.1"]
    layout = manifest.completion
    assert (layout.score_nbytes, layout.scores_capacity) == (176, 64)
    lanes_nbytes = layout.header_nbytes + layout.lanes_capacity * layout.lane_nbytes
    n_distributions = layout.distributions_capacity + layout.prompt_distributions_capacity
    assert layout.prompt_distributions_capacity == 16
    distributions_nbytes = n_distributions * layout.distribution_nbytes
    assert manifest.buffers[layout.buffer].nbytes == lanes_nbytes + 64 * 176 + distributions_nbytes


def test_programs_of_one_operation_differ_in_capacities_only(tmp_path: Path) -> None:
    manifest = capture_of(tmp_path, TinyModel())
    decodes = [program for program in manifest.programs if program.operation == pb.OPERATION_DECODE]
    assert [program.batch_capacity for program in decodes] == [1, 2, 4]
    assert len({tuple(node.kernel.kernel for node in program.nodes) for program in decodes}) == 1


def test_mixed_types_are_separate_maps_into_one_row(tmp_path: Path) -> None:
    model = TinyModel(type=Q.Q4_0, types={"attn_v.weight": Q.F16, "ffn_up.weight": Q.Q8_0}, n_layers=1)
    manifest = capture_of(tmp_path, model)
    kernels = kernels_of(manifest, pb.OPERATION_DECODE)
    assert {"layer.0.q", "layer.0.k", "layer.0.v", "layer.0.gate", "layer.0.up"} <= set(weights_of(manifest))
    assert kernels.count("linear.f16.g8.1") == 1
    assert "rms_norm.1" in kernels
    assert "silu_gate.1" in kernels


def test_a_tied_head_has_no_weight_of_its_own(tmp_path: Path) -> None:
    assert "head" not in weights_of(capture_of(tmp_path, TinyModel()))
    assert "head" in weights_of(capture_of(tmp_path, TinyModel(tied=False)))


def test_biases_follow_the_maps_that_have_them(tmp_path: Path) -> None:
    model = TinyModel(biases=("attn_q", "attn_output", "ffn_gate", "ffn_down"), n_layers=1)
    manifest = capture_of(tmp_path, model)
    assert kernels_of(manifest, pb.OPERATION_DECODE).count("add_bias.1") == 4
    assert {"layer.0.qkv_bias", "layer.0.out_bias", "layer.0.gate_bias"} <= set(weights_of(manifest))


def test_qwen2_rotates_halves(tmp_path: Path) -> None:
    model = TinyModel(architecture="qwen2", biases=("attn_q", "attn_k", "attn_v"))
    assert "rope_kv.half.1" in kernels_of(capture_of(tmp_path, model), pb.OPERATION_DECODE)
    assert "rope_kv.interleaved.1" in kernels_of(capture_of(tmp_path, TinyModel()), pb.OPERATION_DECODE)


@pytest.mark.parametrize(("kv_format", "part"), [(KvFormat.BF16, "bf16."), (KvFormat.Q8, "q8.")])
def test_every_kernel_over_pages_is_the_one_of_their_format(tmp_path: Path, kv_format: KvFormat, part: str) -> None:
    manifest = capture_of(tmp_path, TinyModel(), kv_format=kv_format)
    used = {node.kernel.kernel for program in manifest.programs for node in program.nodes}
    over_pages = {f"rope_kv.interleaved.{part}1", f"attention.{part}1", f"attention_split.{part}1", "attention_merge.1"}
    assert {name for name in used if name.startswith(("rope_kv", "attention"))} == over_pages


def test_the_page_count_is_left_to_the_loader(tmp_path: Path) -> None:
    manifest = capture_of(tmp_path, TinyModel())
    for program in manifest.programs:
        for node in program.nodes:
            has_pages = node.kernel.kernel.startswith(("rope_kv", "attention.", "attention_split", "page_"))
            has_pages &= not node.kernel.kernel.startswith("page_table")
            assert len(node.kernel.page_count_offsets) == has_pages


def test_each_layer_has_its_part_of_a_page(tmp_path: Path) -> None:
    manifest = capture_of(tmp_path, TinyModel(n_layers=3))
    plane = next(buffer for buffer in manifest.buffers if buffer.kind == pb.BUFFER_KIND_CACHE_PLANE)
    layer_nbytes = 2 * 16 * 2 * 16 * 2  # keys and values, positions, heads, dimensions, fp16
    assert plane.page_nbytes == 3 * layer_nbytes
    program = next(program for program in manifest.programs if program.operation == pb.OPERATION_PREFILL)
    offsets = {r.offset for node in program.nodes for r in node.kernel.relocations if r.buffer == plane.id}
    assert offsets == {0, layer_nbytes, 2 * layer_nbytes}


def test_snapshots_copy_whole_pages_to_rows_and_back(tmp_path: Path) -> None:
    """CACHE-5, CON-11: behind the slots' own rows of a page's bytes stand those of snapshots."""
    manifest = capture_of(tmp_path, TinyModel())
    assert kernels_of(manifest, pb.OPERATION_RESTORE) == ["page_table_update.1", "page_restore.1"]
    assert kernels_of(manifest, pb.OPERATION_SNAPSHOT) == ["page_save.1"]
    by_name = {buffer.name: buffer for buffer in manifest.buffers}
    assert by_name["continuation"].nbytes == (4 + 16) * by_name["kv"].page_nbytes
    restore = next(program for program in manifest.programs if program.operation == pb.OPERATION_RESTORE)
    assert list(restore.nodes[1].depends_on) == [0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TinyModel(architecture="mamba"), "architecture 'mamba' is not one .* it prepares llama, qwen2"),
        (
            TinyModel(shapes={"blk.1.ffn_down.weight": (64, 100)}),
            r"'blk.1.ffn_down.weight' has shape \[64, 100\], the model needs \[64, 96\]",
        ),
        (
            TinyModel(shapes={"blk.0.attn_k.weight": (64, 64)}),
            r"'blk.0.attn_k.weight' has shape \[64, 64\], the model needs \[32, 64\]",
        ),
        (TinyModel(shapes={"output_norm.weight": (63,)}), r"'output_norm.weight' has shape \[63\]"),
        (TinyModel(metadata={"llama.attention.head_count_kv": 3}), "4 query heads do not divide over 3"),
        (TinyModel(metadata={"llama.block_count": 3}), "no tensor 'blk.2.attn_q.weight'"),
        (TinyModel(metadata={"llama.block_count": 1}), "tensor 'blk.1.attn_k.weight' and 8 more are not part"),
        (TinyModel(metadata={"llama.block_count": 0}), "'llama.block_count' is 0, it must be 1 to"),
        (TinyModel(metadata={"llama.block_count": 1 << 31}), "'llama.block_count' is 2,147,483,648"),
        (TinyModel(metadata={"llama.context_length": None}), "no metadata 'llama.context_length'"),
        (TinyModel(metadata={"llama.rope.dimension_count": 18}), "18 rotated dimensions"),
        (TinyModel(metadata={"llama.rope.dimension_count": 7}), "7 rotated dimensions"),
        (TinyModel(metadata={"llama.attention.value_length": 8}), "values of 8 dimensions and keys of 16"),
        (TinyModel(metadata={"llama.rope.scaling.type": "yarn"}), "rope scaling 'yarn' is not one"),
        (TinyModel(metadata={"llama.expert_count": 8}), "the model has experts"),
        (TinyModel(metadata={"llama.rope.freq_base": float("nan")}), "'llama.rope.freq_base' is nan"),
        (TinyModel(extra_tensors=("blk.0.attn_q_norm.weight",)), "tensor 'blk.0.attn_q_norm.weight' and 0 more"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(tmp_path: Path, model: TinyModel, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        capture_of(tmp_path, model)
