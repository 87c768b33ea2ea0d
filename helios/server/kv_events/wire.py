"""The journal's changes as batches of KV events in msgpack, in the form that vLLM's routers read.

It knows names of blocks and fields, no sockets. A block's hash is chained over the tokens before it, so that it is the same in
every process; blocks of one event follow one another, and events stand in the order in which their changes happened.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from helios.cache.journal import Change, PageRemoved, PageStored

_MEDIUM = "GPU"  # the protocol's word for a worker's own memory; a block that only host memory has is still held
_RANK = 0
_BEFORE_THE_FIRST = bytes(8)


def block_hash(parent: int | None, tokens: tuple[int, ...]) -> int:
    """64 bits that name the block of `tokens` behind the block `parent`."""
    before = _BEFORE_THE_FIRST if parent is None else parent.to_bytes(8, "big")
    content = before + struct.pack(f">{len(tokens)}I", *tokens)
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


class EventWriter:
    """Writes batch after batch; between them it remembers the hashes of what is stored, by the journal's numbers."""

    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self._events: list[dict[str, Any]] = []
        self._last_page: int | None = None  # the one that the last event stored last

    def batch(self, changes: Iterable[Change], time_s: float) -> bytes:
        """The changes as one batch, of `time_s` in Unix seconds."""
        self._events, self._last_page = [], None
        for change in changes:
            if isinstance(change, PageStored):
                self._store(change)
            elif isinstance(change, PageRemoved):
                self._remove(change)
            else:
                self._hashes.clear()
                self._events.append({"type": "AllBlocksCleared"})
                self._last_page = None
        return msgspec.msgpack.encode([time_s, self._events, _RANK])

    def _store(self, change: PageStored) -> None:
        parent = None if change.parent is None else self._hashes[change.parent]
        own = self._hashes[change.page] = block_hash(parent, change.tokens)
        if change.parent is not None and change.parent == self._last_page:
            self._events[-1]["block_hashes"].append(own)
            self._events[-1]["token_ids"].extend(change.tokens)
        else:
            self._events.append(_stored(parent, own, change.tokens))
        self._last_page = change.page

    def _remove(self, change: PageRemoved) -> None:
        own = self._hashes.pop(change.page)
        self._last_page = None
        if self._events and self._events[-1]["type"] == "BlockRemoved":
            self._events[-1]["block_hashes"].append(own)
        else:
            self._events.append({"type": "BlockRemoved", "block_hashes": [own], "medium": _MEDIUM})


def _stored(parent: int | None, own: int, tokens: tuple[int, ...]) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [own],
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": len(tokens),
        "lora_id": None,
        "medium": _MEDIUM,
        "lora_name": None,
    }
