"""The prefix tree: runs of exact tokens, one node a complete page, and the snapshots that hang at them.

It knows tokens and keys, not who uses a node or where its contents are. A node is found by its own tokens under its parent,
compared one by one: a dict's hash is never trusted alone, and different keys have different roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from helios.cache.resident import Resident

if TYPE_CHECKING:
    from helios.cache.holding import Holding

Tokens = tuple[int, ...]


class PrefixNode(Resident):
    """The page of `tokens` behind the pages of its ancestors; a root has no page and no tokens. `n_promises` holdings have promised
    to compute it. `duplicates` are users of it that read their own private page, which has the same contents."""

    __slots__ = ("children", "depth", "duplicates", "n_promises", "snapshots", "tokens")

    def __init__(self, parent: PrefixNode | None, tokens: Tokens, last_use: int) -> None:
        super().__init__(parent, last_use)
        self.tokens = tokens
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[Tokens, PrefixNode] = {}
        self.snapshots: list[Snapshot] = []
        self.n_promises = 0
        self.duplicates: list[Holding] = []

    @property
    def is_needed(self) -> bool:
        """It has to stay in the tree."""
        return bool(self.is_somewhere or self.n_users or self.n_promises or self.children or self.snapshots)


class Snapshot(Resident):
    """Committed state behind `node` and the `tail` tokens, which are fewer than a page."""

    __slots__ = ("node", "tail")

    def __init__(self, node: PrefixNode, tail: Tokens, last_use: int) -> None:
        super().__init__(None, last_use)
        self.node = node
        self.tail = tail

    def n_tail(self, tokens: Tokens) -> int:
        """How many of `tokens`, from the first on, are those of the tail."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.tail, tokens, strict=False)))


class PrefixTree:
    """A forest: one root a key, `page_tokens` tokens a node. Nodes that nothing needs are pruned at once."""

    def __init__(self, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self._roots: dict[bytes, PrefixNode] = {}
        self._keys: dict[PrefixNode, bytes] = {}

    def find_root(self, key: bytes) -> PrefixNode | None:
        return self._roots.get(key)

    def root(self, key: bytes, now: int) -> PrefixNode:
        """The key's root, which is there from now on until it is pruned."""
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = PrefixNode(None, (), now)
            self._keys[root] = key
        return root

    def key_of(self, root: PrefixNode) -> bytes | None:
        """None when it is not, or no longer, a root of this tree."""
        return self._keys.get(root)

    def child(self, parent: PrefixNode, tokens: Tokens, now: int) -> PrefixNode:
        """The node of `tokens` under `parent`."""
        node = parent.children.get(tokens)
        if node is None:
            node = parent.children[tokens] = PrefixNode(parent, tokens, now)
        return node

    def prune(self, node: PrefixNode) -> None:
        """Remove the node, and then its ancestors, as far as nothing needs them."""
        while not node.is_needed:
            if node.parent is None:
                key = self._keys.pop(node, None)
                if key is not None:
                    del self._roots[key]
                return
            node.parent.children.pop(node.tokens, None)
            node = node.parent

    def walk(self) -> Iterator[PrefixNode]:
        """Every node, parents before children."""
        pending = list(self._roots.values())
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())
