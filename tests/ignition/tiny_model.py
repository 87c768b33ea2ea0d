"""Tiny GGUF checkpoints with random weights, written by the `gguf` package: the shapes that recipes have to cope with.

Every weight follows from the seed. Tensor types, heads, biases, the head and the vocabulary are free, so that a test says
only what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

BYTE_TOKENS = [chr(0x100 + byte) if byte < 33 or 127 <= byte < 161 or byte == 173 else chr(byte) for byte in range(256)]


@dataclass(frozen=True)
class TinyModel:
    """Hyperparameters and storage of one tiny checkpoint."""

    architecture: str = "llama"
    n_layers: int = 2
    hidden: int = 64
    n_ff: int = 96
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    n_rot: int = 16
    n_bytes: int = 256  # vocabulary: the first bytes, 2 control tokens, one merge, the extra ones
    n_extra_tokens: int = 5
    tied: bool = True
    type: Q = Q.F32
    embedding_type: Q | None = None
    types: dict[str, Q] = field(default_factory=dict)  # by the name after "blk.N."
    biases: tuple[str, ...] = ()
    rope_freqs: bool = False
    metadata: dict[str, object] = field(default_factory=dict)  # replaces; None removes
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # replaces, by full name
    extra_tensors: tuple[str, ...] = ()
    seed: int = 0

    @property
    def vocabulary(self) -> int:
        return self.n_bytes + 3 + self.n_extra_tokens

    def but(self, **changes: object) -> TinyModel:
        return replace(self, **changes)  # type: ignore[arg-type]


def write_tiny(path: Path, model: TinyModel) -> Path:
    """The checkpoint at `path`."""
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in _metadata(model).items():
        _add(writer, key, value)
    _add_tokenizer(writer, model)
    random = np.random.default_rng(model.seed)
    for name, shape, quantization in _tensors(model):
        drawn = random.standard_normal(shape).astype(np.float32)
        values = 1 + drawn / 10 if name.endswith(("norm.weight", "freqs.weight")) else drawn / np.sqrt(shape[-1])
        stored = gguf.quants.quantize(values.astype(np.float32), quantization)
        writer.add_tensor(name, stored, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(model: TinyModel) -> dict[str, object]:
    arch = model.architecture
    values: dict[str, object] = {
        "general.name": "Tiny Test 1M",
        f"{arch}.block_count": model.n_layers,
        f"{arch}.context_length": 512,
        f"{arch}.embedding_length": model.hidden,
        f"{arch}.feed_forward_length": model.n_ff,
        f"{arch}.attention.head_count": model.n_heads,
        f"{arch}.attention.head_count_kv": model.n_kv_heads,
        f"{arch}.attention.key_length": model.head_dim,
        f"{arch}.attention.value_length": model.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 10000.0,
        f"{arch}.rope.dimension_count": model.n_rot,
        **model.metadata,
    }
    return {key: value for key, value in values.items() if value is not None}


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add[type(value)](key, value)  # type: ignore[operator]


def _add_tokenizer(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    tokens = [
        *BYTE_TOKENS[: model.n_bytes],
        "<s>",
        "</s>",
        "th",
        *(f"<extra_{i}>" for i in range(model.n_extra_tokens)),
    ]
    kinds = [1] * model.n_bytes + [3, 3, 1] + [3] * model.n_extra_tokens
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(model.n_bytes)
    writer.add_eos_token_id(model.n_bytes + 1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def _tensors(model: TinyModel) -> list[tuple[str, tuple[int, ...], Q]]:
    q_width, kv_width = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    block: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (model.hidden,),
        "attn_q.weight": (q_width, model.hidden),
        "attn_k.weight": (kv_width, model.hidden),
        "attn_v.weight": (kv_width, model.hidden),
        "attn_output.weight": (model.hidden, q_width),
        "ffn_norm.weight": (model.hidden,),
        "ffn_gate.weight": (model.n_ff, model.hidden),
        "ffn_up.weight": (model.n_ff, model.hidden),
        "ffn_down.weight": (model.hidden, model.n_ff),
    }
    widths = {name.removesuffix(".weight"): shape[0] for name, shape in block.items()}
    block |= {f"{name}.bias": (widths[name],) for name in model.biases}
    embedding_type = model.embedding_type or model.type
    found: list[tuple[str, tuple[int, ...], Q]] = [
        ("token_embd.weight", (model.vocabulary, model.hidden), embedding_type)
    ]
    for layer in range(model.n_layers):
        for name, shape in block.items():
            quantization = model.types.get(name, model.type if len(shape) == 2 else Q.F32)
            found.append((f"blk.{layer}.{name}", shape, quantization))
    found.append(("output_norm.weight", (model.hidden,), Q.F32))
    if not model.tied:
        found.append(("output.weight", (model.vocabulary, model.hidden), model.type))
    if model.rope_freqs:
        found.append(("rope_freqs.weight", (model.n_rot // 2,), Q.F32))
    found += [(name, (8,), Q.F32) for name in model.extra_tensors]
    return [(name, model.shapes.get(name, shape), quantization) for name, shape, quantization in found]
