"""An independent float32 forward pass of a Llama-family GGUF in plain numpy: the outside witness for logits.

It shares no code with Helios: the file is read and dequantised by the `gguf` package, and every step is written as in the
papers, one sequence at a time, with no cache. Slow and simple on purpose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


class LlamaReference:
    """Weights as float32 matrices. `logits` gives one row for each position of a sequence."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._fields = {name: field.contents() for name, field in reader.fields.items()}
        self._weights = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            for tensor in reader.tensors
        }
        self.architecture = self._fields["general.architecture"]
        self.n_heads = self._number("attention.head_count")
        self.n_kv_heads = self._number("attention.head_count_kv", self.n_heads)
        self.head_dim = self._number("attention.key_length", self._number("embedding_length") // self.n_heads)
        self.n_rot = self._number("rope.dimension_count", self.head_dim)
        self.epsilon = np.float32(self._number("attention.layer_norm_rms_epsilon"))

    def logits(self, tokens: list[int]) -> Array:
        """float32[len(tokens)][vocabulary]."""
        x = self._weights["token_embd.weight"][tokens]
        for layer in range(self._number("block_count")):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm"))
            h = self._norm(x, f"blk.{layer}.ffn_norm")
            gate, up = self._map(h, f"blk.{layer}.ffn_gate"), self._map(h, f"blk.{layer}.ffn_up")
            x = x + self._map(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")
        head = self._weights.get("output.weight", self._weights["token_embd.weight"])
        logits: Array = self._norm(x, "output_norm") @ head.T
        return logits

    def logprobs(self, tokens: list[int]) -> Array:
        """Natural logarithms of the next-token probabilities at each position."""
        logits = self.logits(tokens)
        top = logits.max(axis=-1, keepdims=True)
        logprobs: Array = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
        return logprobs

    def _number(self, key: str, default: float | None = None) -> Any:
        value = self._fields.get(f"{self.architecture}.{key}", default)
        assert value is not None, key
        return value

    def _norm(self, x: Array, name: str) -> Array:
        scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        normed: Array = x * scale * self._weights[f"{name}.weight"]
        return normed

    def _map(self, x: Array, name: str) -> Array:
        y = x @ self._weights[f"{name}.weight"].T
        bias = self._weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def _attention(self, layer: int, x: Array) -> Array:
        n_tokens = len(x)
        q = self._rotate(self._map(x, f"blk.{layer}.attn_q").reshape(n_tokens, self.n_heads, self.head_dim))
        k = self._rotate(self._map(x, f"blk.{layer}.attn_k").reshape(n_tokens, self.n_kv_heads, self.head_dim))
        v = self._map(x, f"blk.{layer}.attn_v").reshape(n_tokens, self.n_kv_heads, self.head_dim)
        future = np.triu(np.ones((n_tokens, n_tokens), bool), 1)
        out = np.empty((n_tokens, self.n_heads, self.head_dim), np.float32)
        for head in range(self.n_heads):
            shared = head // (self.n_heads // self.n_kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(np.float32(self.head_dim))
            scores[future] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, shared]
        return self._map(out.reshape(n_tokens, -1), f"blk.{layer}.attn_output")

    def _rotate(self, x: Array) -> Array:
        """Llama's files pair dimensions (2i, 2i+1), Qwen2's (i, i + n/2)."""
        half = self.n_rot // 2
        base = self._number("rope.freq_base", 10000.0)
        frequencies = float(base) ** (-np.arange(half) / half) / self._number("rope.scaling.factor", 1.0)
        if "rope_freqs.weight" in self._weights:
            frequencies = frequencies / self._weights["rope_freqs.weight"]
        angles = np.arange(len(x))[:, None, None] * frequencies
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        interleaved = self.architecture == "llama"
        first = np.arange(half) * 2 if interleaved else np.arange(half)
        second = first + 1 if interleaved else first + half
        rotated = x.copy()
        rotated[..., first] = x[..., first] * cos - x[..., second] * sin
        rotated[..., second] = x[..., first] * sin + x[..., second] * cos
        return rotated
