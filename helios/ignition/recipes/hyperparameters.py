"""The numbers that define a dense decoder, read from GGUF metadata and checked against sane bounds.

It knows metadata keys, no tensors. What is returned is consistent: heads divide, the rotated part fits the head, and
nothing that this family cannot compute (experts, other rope scalings) is silently dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import CheckpointError
from helios.ignition.checkpoints.gguf import Gguf

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 18
MAX_HEADS = 1024
MAX_HEAD_DIM = 256
MAX_CONTEXT_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True)
class DenseHyperparameters:
    """A pre-norm decoder with grouped-query attention and a gated feed-forward layer."""

    architecture: str
    n_layers: int
    hidden: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_rot: int
    rope_base: float
    rope_factor: float  # positions are divided by it
    epsilon: float
    context_tokens: int

    @property
    def q_width(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.n_kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        return self.q_width + 2 * self.kv_width


def read_hyperparameters(checkpoint: Gguf) -> DenseHyperparameters:
    """Raises CheckpointError that names the key."""
    architecture = checkpoint.text("general.architecture")

    def integer(key: str, maximum: int, default: int | None = None) -> int:
        return checkpoint.integer(f"{architecture}.{key}", default, minimum=1, maximum=maximum)

    if checkpoint.integer(f"{architecture}.expert_count", 0):
        raise CheckpointError(f"the model has experts, which the {architecture} recipe does not compute")
    hidden = integer("embedding_length", MAX_WIDTH)
    n_heads = integer("attention.head_count", MAX_HEADS)
    head_dim = integer("attention.key_length", MAX_HEAD_DIM, max(1, hidden // n_heads))
    found = DenseHyperparameters(
        architecture=architecture,
        n_layers=integer("block_count", MAX_LAYERS),
        hidden=hidden,
        n_ff=integer("feed_forward_length", MAX_WIDTH),
        n_heads=n_heads,
        n_kv_heads=integer("attention.head_count_kv", MAX_HEADS, n_heads),
        head_dim=head_dim,
        n_rot=integer("rope.dimension_count", MAX_HEAD_DIM, head_dim),
        rope_base=checkpoint.number(f"{architecture}.rope.freq_base", 10000.0, minimum=1.0, maximum=1e12),
        rope_factor=_rope_factor(checkpoint, architecture),
        epsilon=checkpoint.number(f"{architecture}.attention.layer_norm_rms_epsilon", minimum=0.0, maximum=1.0),
        context_tokens=integer("context_length", MAX_CONTEXT_TOKENS),
    )
    _check(found, integer("attention.value_length", MAX_HEAD_DIM, head_dim))
    return found


def _check(found: DenseHyperparameters, value_length: int) -> None:
    if found.n_heads % found.n_kv_heads:
        raise CheckpointError(f"{found.n_heads} query heads do not divide over {found.n_kv_heads} key-value heads")
    if found.n_rot > found.head_dim or found.n_rot % 2:
        raise CheckpointError(f"{found.n_rot} rotated dimensions must be even and at most the head's {found.head_dim}")
    if value_length != found.head_dim:
        raise CheckpointError(f"values of {value_length} dimensions and keys of {found.head_dim} do not share a cache")


def _rope_factor(checkpoint: Gguf, architecture: str) -> float:
    kind = checkpoint.text(f"{architecture}.rope.scaling.type", "linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise CheckpointError(f"rope scaling {kind!r} is not one that the {architecture} recipe computes")
    older = checkpoint.number(f"{architecture}.rope.scale_linear", 1.0, minimum=1e-6, maximum=1e6)
    return checkpoint.number(f"{architecture}.rope.scaling.factor", older, minimum=1e-6, maximum=1e6)
