"""A paged KV cache of one layer as kernels.h lays it out, with pages in random order and a gap after each."""

from __future__ import annotations

import numpy as np

PAGE_TOKENS = 16
FORMATS = ("f16", "bf16", "q8")


def quantised(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The whole numbers of f32 [head_dim], and their scale."""
    most = np.abs(x).max()
    if not np.isfinite(most):
        return np.zeros(len(x), np.int8), np.float32(np.nan)
    inverse = np.float32(127) / most if most > 1e-30 else np.float32(0)
    return np.rint(x * inverse).astype(np.int8), most / np.float32(127)


def rounded_bits(x: np.ndarray) -> np.ndarray:
    """f32 as bf16, to nearest even; a NaN stays one."""
    bits = x.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), bits >> np.uint32(16) | np.uint32(0x40), nearest).astype(np.uint16)


class Cache:
    """`plane` is what the kernels get; `write` and `read` go by slot and position."""

    def __init__(
        self,
        n_slots: int,
        pages_per_slot: int,
        n_kv_heads: int,
        head_dim: int,
        rng: np.random.Generator,
        kv: str = "f16",
        gap_nbytes: int = 96,
    ) -> None:
        self.n_slots, self.pages_per_slot = n_slots, pages_per_slot
        self.n_kv_heads, self.head_dim, self.kv = n_kv_heads, head_dim, kv
        self.n_pages = n_slots * pages_per_slot + 2
        self.head_nbytes = PAGE_TOKENS * (2 * head_dim + 8 if kv == "q8" else 4 * head_dim)
        self.part_nbytes = n_kv_heads * self.head_nbytes  # the layer's part of a page
        self.page_nbytes = self.part_nbytes + gap_nbytes
        self.page_table = (
            rng.permutation(self.n_pages)[: n_slots * pages_per_slot].astype(np.int32).reshape(n_slots, pages_per_slot)
        )
        self._keys_at, self._values_at = self._places()
        self.plane = np.zeros((self.n_pages, self.page_nbytes), np.uint8)
        for page in range(self.n_pages):
            for offset in range(PAGE_TOKENS):
                k, v = rng.standard_normal((2, n_kv_heads, head_dim)).astype(np.float32)
                self._write(page, offset, k, v)

    def kernel(self, name: str) -> str:
        """The name of a kernel over this format: `name` is without its version."""
        return f"{name}.1" if self.kv == "f16" else f"{name}.{self.kv}.1"

    def arguments(self) -> dict[str, object]:
        """The kernel arguments that describe the cache."""
        return {
            "page_table": self.page_table,
            "kv": self.plane,
            "n_slots": self.n_slots,
            "pages_per_slot": self.pages_per_slot,
            "n_pages": self.n_pages,
            "page_stride": self.page_nbytes,
            "n_kv_heads": self.n_kv_heads,
            "head_dim": self.head_dim,
        }

    def write(self, slot: int, position: int, k: np.ndarray, v: np.ndarray) -> None:
        """k and v are float [n_kv_heads, head_dim]."""
        self._write(self.page_table[slot, position // PAGE_TOKENS], position % PAGE_TOKENS, k, v)

    def read(self, slot: int, position: int) -> tuple[np.ndarray, np.ndarray]:
        """k and v, f32 [n_kv_heads, head_dim]."""
        page, offset = self.page_table[slot, position // PAGE_TOKENS], position % PAGE_TOKENS
        k, v = np.empty((2, self.n_kv_heads, self.head_dim), np.float32)
        for h in range(self.n_kv_heads):
            elements, scales = self._head(page, h)
            k[h] = self._floats(elements[self._keys_at[:, offset]])
            v[h] = self._floats(elements[self._values_at[offset]])
            if self.kv == "q8":
                k[h] *= scales[0, offset]
                v[h] *= scales[1, offset]
        return k, v

    def _write(self, page: int, offset: int, k: np.ndarray, v: np.ndarray) -> None:
        for h in range(self.n_kv_heads):
            elements, scales = self._head(page, h)
            for part, given, at in ((0, k, self._keys_at[:, offset]), (1, v, self._values_at[offset])):
                x = given[h].astype(np.float32)
                if self.kv == "q8":
                    elements[at], scales[part, offset] = quantised(x)
                else:
                    elements[at] = x.astype(np.float16) if self.kv == "f16" else rounded_bits(x)

    def _floats(self, elements: np.ndarray) -> np.ndarray:
        if self.kv == "bf16":
            return (elements.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return elements.astype(np.float32)

    def _head(self, page: int, head: int) -> tuple[np.ndarray, np.ndarray]:
        """Of one KV head of a page, to write to: the elements, and the scales [2, 16], of which only q8 has any."""
        part = self.plane[page, head * self.head_nbytes : (head + 1) * self.head_nbytes]
        dtype = {"f16": np.float16, "bf16": np.uint16, "q8": np.int8}[self.kv]
        end = 2 * self.head_dim * PAGE_TOKENS * np.dtype(dtype).itemsize
        return part[:end].view(dtype), part[end:].view(np.float32).reshape(2, -1)

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Which element is the key of [dimension, position], and the value of [position, dimension]."""
        d, p = np.arange(self.head_dim)[:, None], np.arange(PAGE_TOKENS)[None]
        by_dim, n = p.T * self.head_dim + d.T, self.head_dim * PAGE_TOKENS
        if self.kv == "f16":
            return d * PAGE_TOKENS + p, n + by_dim
        if self.kv == "bf16":
            chunked = (d // 8 * PAGE_TOKENS + p) * 8 + d % 8
            return chunked, n + chunked.T
        return (d // 4 * PAGE_TOKENS + p) * 4 + d % 4, n + (p.T // 4 * self.head_dim + d.T) * 4 + p.T % 4
