"""A paged KV cache of one layer as kernels.h lays it out, with pages in random order and a gap after each."""

from __future__ import annotations

import numpy as np

PAGE_TOKENS = 16


class Cache:
    """`plane` is what the kernels get; `write` and `read` go by slot and position."""

    def __init__(
        self, n_slots: int, pages_per_slot: int, n_kv_heads: int, head_dim: int, rng: np.random.Generator
    ) -> None:
        self.n_slots, self.pages_per_slot = n_slots, pages_per_slot
        self.n_kv_heads, self.head_dim = n_kv_heads, head_dim
        self.n_pages = n_slots * pages_per_slot + 2
        self.part = n_kv_heads * head_dim * PAGE_TOKENS * 2  # elements of the layer's part of a page
        self.page_elements = self.part + 48
        self.page_table = (
            rng.permutation(self.n_pages)[: n_slots * pages_per_slot].astype(np.int32).reshape(n_slots, pages_per_slot)
        )
        self.plane = rng.standard_normal((self.n_pages, self.page_elements)).astype(np.float16)

    def arguments(self) -> dict[str, object]:
        """The kernel arguments that describe the cache."""
        return {
            "page_table": self.page_table,
            "kv": self.plane,
            "n_slots": self.n_slots,
            "pages_per_slot": self.pages_per_slot,
            "n_pages": self.n_pages,
            "page_stride": self.page_elements * 2,
            "n_kv_heads": self.n_kv_heads,
            "head_dim": self.head_dim,
        }

    def _heads(self, slot: int, position: int) -> np.ndarray:
        page = self.page_table[slot, position // PAGE_TOKENS]
        return self.plane[page, : self.part].reshape(self.n_kv_heads, 2, -1)

    def write(self, slot: int, position: int, k: np.ndarray, v: np.ndarray) -> None:
        """k and v are float16 [n_kv_heads, head_dim]."""
        heads, offset = self._heads(slot, position), position % PAGE_TOKENS
        for h in range(self.n_kv_heads):
            heads[h, 0].reshape(self.head_dim, PAGE_TOKENS)[:, offset] = k[h]
            heads[h, 1].reshape(PAGE_TOKENS, self.head_dim)[offset] = v[h]

    def read(self, slot: int, position: int) -> tuple[np.ndarray, np.ndarray]:
        """k and v, float16 [n_kv_heads, head_dim]."""
        heads, offset = self._heads(slot, position), position % PAGE_TOKENS
        k = heads[:, 0].reshape(self.n_kv_heads, self.head_dim, PAGE_TOKENS)[:, :, offset]
        v = heads[:, 1].reshape(self.n_kv_heads, PAGE_TOKENS, self.head_dim)[:, offset]
        return k, v
