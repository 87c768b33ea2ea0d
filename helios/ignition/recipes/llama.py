"""The dense decoder family of Llama: pre-norm, rotary positions, grouped-query attention, a SiLU-gated feed-forward layer.

It knows tensor names and the order of operations, nothing of scheduling or devices. Every generating program is the same
list of launches at other capacities, so a token's numbers cannot depend on which program computed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from helios.contract.schema import execution_pb2 as pb
from helios.errors import CheckpointError
from helios.ignition import operations as ops
from helios.ignition.capture import Capture, ProgramCapture, Tensor
from helios.ignition.checkpoints.gguf import Gguf
from helios.ignition.operands import Activation, AttentionShape, Rows, RowTable, Weight, floats
from helios.ignition.preparation.contract import Surface, declare_surface
from helios.ignition.preparation.geometry import ServingGeometry, program_shapes
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.preparation.state_programs import STATE_PROGRAMS
from helios.ignition.recipes.hyperparameters import DenseHyperparameters
from helios.ignition.recipes.weights import WeightBook, WeightResource

Feed = Callable[[Weight], Activation]  # the activation in the form that a weight reads


@dataclass(frozen=True, slots=True)
class Layer:
    """One block's weights. `qkv` and `gate_up` are one fused map, or the separate ones where their types differ."""

    attention_norm: Tensor
    qkv: tuple[Weight, ...]
    qkv_bias: Tensor | None
    out: Weight
    out_bias: Tensor | None
    feed_forward_norm: Tensor
    gate_up: tuple[Weight, ...]
    gate_bias: Tensor | None
    up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class DenseDecoder:
    """Everything that a program of this family is built from. `pairs` is the rope layout of its queries and keys."""

    hyper: DenseHyperparameters
    surface: Surface
    pairs: str
    kv_format: KvFormat
    embedding: Weight
    layers: tuple[Layer, ...]
    final_norm: Tensor
    head: Weight
    rope: Tensor


@dataclass(frozen=True, slots=True)
class CapturedModel:
    """What a recipe hands to preparation."""

    surface: Surface
    weights: list[WeightResource]


def capture_dense(
    checkpoint: Gguf,
    hyper: DenseHyperparameters,
    geometry: ServingGeometry,
    kv_format: KvFormat,
    capture: Capture,
    *,
    pairs: str,
) -> CapturedModel:
    """Captures all programs. Raises CheckpointError where tensors do not fit the hyperparameters."""
    book = WeightBook(checkpoint, capture)
    surface = declare_surface(capture, geometry, hyper.n_layers * _layer_nbytes(hyper, kv_format))
    decoder = _declare(book, hyper, surface, kv_format, pairs)
    book.check_all_taken()
    for shape in program_shapes(geometry):
        program = capture.program(shape.name, shape.operation, shape.batch, shape.tokens, shape.packed_tokens)
        if shape.operation in STATE_PROGRAMS:
            STATE_PROGRAMS[shape.operation](program, decoder.surface)
        else:
            _generate(program, decoder)
    return CapturedModel(decoder.surface, book.resources)


# Weights --------------------------------------------------------------------------------------------------------------


def _declare(
    book: WeightBook, hyper: DenseHyperparameters, surface: Surface, kv_format: KvFormat, pairs: str
) -> DenseDecoder:
    vocabulary, n_rows = surface.geometry.vocabulary, book.n_rows("token_embd.weight")
    if vocabulary > n_rows:
        raise CheckpointError(
            f"the vocabulary has {vocabulary:,} tokens, tensor 'token_embd.weight' has {n_rows:,} rows"
        )

    def vocabulary_matrix(role: str, name: str, *, is_embedding: bool = False) -> Weight:
        return book.matrix(role, [(name, n_rows)], hyper.hidden, n_used=vocabulary, is_embedding=is_embedding)

    embedding = vocabulary_matrix("embedding", "token_embd.weight", is_embedding=True)
    layers = tuple(_declare_layer(book, hyper, index) for index in range(hyper.n_layers))
    return DenseDecoder(
        hyper=hyper,
        surface=surface,
        pairs=pairs,
        kv_format=kv_format,
        embedding=embedding,
        layers=layers,
        final_norm=book.vector("final_norm", [("output_norm.weight", hyper.hidden)]),
        head=vocabulary_matrix("head", "output.weight") if "output.weight" in book else embedding,
        rope=_declare_rope(book, hyper, surface.geometry.context_tokens),
    )


def _declare_layer(book: WeightBook, hyper: DenseHyperparameters, index: int) -> Layer:
    def name(part: str) -> str:
        return f"blk.{index}.{part}"

    def role(part: str) -> str:
        return f"layer.{index}.{part}"

    def bias(part: str, *sources: tuple[str, int]) -> Tensor | None:
        parts = [(name(f"{source}.bias"), length) for source, length in sources]
        return book.vector(role(f"{part}_bias"), parts) if any(n in book for n, _ in parts) else None

    heads = [("attn_q", hyper.q_width), ("attn_k", hyper.kv_width), ("attn_v", hyper.kv_width)]
    return Layer(
        attention_norm=book.vector(role("attention_norm"), [(name("attn_norm.weight"), hyper.hidden)]),
        qkv=_declare_qkv(book, role, [(name(f"{head}.weight"), width) for head, width in heads], hyper.hidden),
        qkv_bias=bias("qkv", *heads),
        out=book.matrix(role("out"), [(name("attn_output.weight"), hyper.hidden)], hyper.q_width),
        out_bias=bias("out", ("attn_output", hyper.hidden)),
        feed_forward_norm=book.vector(role("feed_forward_norm"), [(name("ffn_norm.weight"), hyper.hidden)]),
        gate_up=_declare_gate_up(book, role, name, hyper),
        gate_bias=bias("gate", ("ffn_gate", hyper.n_ff)),
        up_bias=bias("up", ("ffn_up", hyper.n_ff)),
        down=book.matrix(role("down"), [(name("ffn_down.weight"), hyper.hidden)], hyper.n_ff),
        down_bias=bias("down", ("ffn_down", hyper.hidden)),
    )


def _declare_qkv(
    book: WeightBook, role: Callable[[str], str], parts: list[tuple[str, int]], n_in: int
) -> tuple[Weight, ...]:
    if book.share_type(*(name for name, _ in parts)):
        return (book.matrix(role("qkv"), parts, n_in),)
    return tuple(book.matrix(role(head), [part], n_in) for head, part in zip(("q", "k", "v"), parts, strict=True))


def _declare_gate_up(
    book: WeightBook, role: Callable[[str], str], name: Callable[[str], str], hyper: DenseHyperparameters
) -> tuple[Weight, ...]:
    gate, up = name("ffn_gate.weight"), name("ffn_up.weight")
    has_bias = name("ffn_gate.bias") in book or name("ffn_up.bias") in book
    if not has_bias and book.can_interleave(gate, up, hyper.n_ff, hyper.hidden):
        return (book.interleaved(role("gate_up"), gate, up, hyper.n_ff, hyper.hidden),)
    return tuple(
        book.matrix(role(part), [(tensor, hyper.n_ff)], hyper.hidden) for part, tensor in (("gate", gate), ("up", up))
    )


def _declare_rope(book: WeightBook, hyper: DenseHyperparameters, n_positions: int) -> Tensor:
    n_pairs = hyper.n_rot // 2
    # Llama 3 stretches each frequency by a factor of its own, stored with the weights.
    factors = book.values("rope_freqs.weight", n_pairs) if "rope_freqs.weight" in book else np.ones(n_pairs, np.float32)
    return book.table("rope", n_positions * hyper.n_rot, lambda: _rope_table(hyper, factors, n_positions))


def _rope_table(
    hyper: DenseHyperparameters, factors: npt.NDArray[np.float32], n_positions: int
) -> npt.NDArray[np.float32]:
    """[positions][pairs][cos, sin], computed in double precision."""
    exponents = np.arange(hyper.n_rot // 2, dtype=np.float64) * (-2.0 / hyper.n_rot)
    frequencies = hyper.rope_base**exponents / factors / hyper.rope_factor
    angles = np.arange(n_positions, dtype=np.float64)[:, None] * frequencies
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def _layer_nbytes(hyper: DenseHyperparameters, kv_format: KvFormat) -> int:
    """Keys and values of one page in one layer."""
    return kv_format.page_nbytes(hyper.n_kv_heads, hyper.head_dim)


# Programs -------------------------------------------------------------------------------------------------------------


def _generate(program: ProgramCapture, decoder: DenseDecoder) -> None:
    """One round: place new pages, expand lanes to rows, run the layers, sample the rows that ask for it, commit."""
    surface, geometry = decoder.surface, decoder.surface.geometry
    inputs, state = surface.inputs, surface.state
    ops.page_table_update(program, inputs["page_updates"], inputs["n_page_updates"], state.page_table, geometry)
    table = ops.row_table(program, inputs, state.requests, geometry)
    x = ops.embed(program, table, decoder.embedding)
    for index, layer in enumerate(decoder.layers):
        _attention_block(program, decoder, layer, index, table, x)
        _feed_forward_block(program, decoder, layer, table, x)
    logits = _logits(program, decoder, table.samples, table.sample_row, x)
    samples = ops.sample(program, inputs, table, logits, state, geometry)
    ops.commit(program, inputs, table, samples, state, surface.completion, geometry)
    ops.distribution(program, table, logits, state, surface.distributions, geometry)
    if program.operation == pb.OPERATION_SCORED_PREFILL:
        every = _logits(program, decoder, table.rows, table.identity, x)
        ops.score(program, inputs, table, every, surface.scores)
        ops.prompt_distribution(program, table, every, state, surface.prompt_distributions, geometry)


def _logits(program: ProgramCapture, decoder: DenseDecoder, rows: Rows, gather: Tensor, x: Activation) -> Activation:
    """The head over row gather[i] of x."""
    last = _normed(program, rows, gather, x, decoder.final_norm, decoder.hyper.epsilon)
    logits = floats(program, rows, decoder.surface.geometry.vocabulary)
    ops.linear(program, rows, last(decoder.head), decoder.head, logits)
    return logits


def _attention_block(
    program: ProgramCapture, decoder: DenseDecoder, layer: Layer, index: int, table: RowTable, x: Activation
) -> None:
    hyper, surface, rows = decoder.hyper, decoder.surface, table.rows
    shape = AttentionShape(
        hyper.n_heads, hyper.n_kv_heads, hyper.head_dim, decoder.kv_format, page_nbytes=surface.cache.nbytes
    )
    layer_nbytes = _layer_nbytes(hyper, decoder.kv_format)
    kv = surface.cache.at(index * layer_nbytes, layer_nbytes)
    page_table, geometry = surface.state.page_table, surface.geometry

    normed = _normed(program, rows, table.identity, x, layer.attention_norm, hyper.epsilon)
    qkv = floats(program, rows, hyper.qkv_width)
    column = 0
    for weight in layer.qkv:
        ops.linear(program, rows, normed(weight), weight, qkv, column=column)
        column += weight.n_out
    if layer.qkv_bias is not None:
        ops.add_bias(program, rows, layer.qkv_bias, qkv)
    ops.rope_kv(
        program, table, qkv, kv, page_table, decoder.rope, shape, geometry, pairs=decoder.pairs, n_rot=hyper.n_rot
    )
    split = program.operation == pb.OPERATION_DECODE
    heads = ops.attention(program, table, qkv, kv, page_table, shape, geometry, split=split)
    ops.linear_add(program, rows, _as_read_by(program, rows, heads, layer.out), layer.out, x)
    if layer.out_bias is not None:
        ops.add_bias(program, rows, layer.out_bias, x)


def _feed_forward_block(
    program: ProgramCapture, decoder: DenseDecoder, layer: Layer, table: RowTable, x: Activation
) -> None:
    hyper, rows = decoder.hyper, table.rows
    normed = _normed(program, rows, table.identity, x, layer.feed_forward_norm, hyper.epsilon)
    gate = floats(program, rows, hyper.n_ff)
    if len(layer.gate_up) == 1:
        ops.linear_silu_gate(program, rows, normed(layer.gate_up[0]), layer.gate_up[0], gate)
    else:
        up = floats(program, rows, hyper.n_ff)
        biases = (layer.gate_bias, layer.up_bias)
        for weight, bias, y in zip(layer.gate_up, biases, (gate, up), strict=True):
            ops.linear(program, rows, normed(weight), weight, y)
            if bias is not None:
                ops.add_bias(program, rows, bias, y)
        ops.silu_gate(program, rows, gate, up)
    ops.linear_add(program, rows, _as_read_by(program, rows, gate, layer.down), layer.down, x)
    if layer.down_bias is not None:
        ops.add_bias(program, rows, layer.down_bias, x)


def _normed(program: ProgramCapture, rows: Rows, gather: Tensor, x: Activation, weight: Tensor, epsilon: float) -> Feed:
    """The norm of x, computed once for each form that a weight asks for."""
    forms: dict[RowForm, Activation] = {}

    def feed(reader: Weight) -> Activation:
        form = reader.layout.reads
        if form not in forms:
            forms[form] = ops.rms_norm(program, rows, gather, x, weight, epsilon, form)
        return forms[form]

    return feed


def _as_read_by(program: ProgramCapture, rows: Rows, x: Activation, reader: Weight) -> Activation:
    return ops.convert(program, rows, x, reader.layout.reads)
