"""How much of a prompt the prefix tree has: whole pages, then a snapshot's tail, then what others have promised.

It knows tokens and where contents are; it changes nothing. A part of a page is of use only when a snapshot holds it, and where
histories are not truncatable, only a snapshot's exact endpoint is of use at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.cache.holding import NO_MATCH, Match
from helios.cache.prefix import PrefixNode, PrefixTree, Snapshot
from helios.cache.resident import NOWHERE, Resident


class PrefixLookup:
    """One lookup: at most `n_most` of `tokens`, from host memory too where `uses_host`."""

    def __init__(self, tree: PrefixTree, tokens: Sequence[int], n_most: int, *, is_truncatable: bool, uses_host: bool):
        self._tree = tree
        self._page_tokens = tree.page_tokens
        self._tokens = tokens
        self._n_most = min(n_most, len(tokens))
        self._is_truncatable = is_truncatable
        self._uses_host = uses_host

    def find(self, key: bytes) -> Match:
        """The longest match under `key`."""
        root = self._tree.find_root(key)
        if root is None:
            return NO_MATCH
        path, awaited = self._walk(root)
        if not self._is_truncatable:
            awaited = None  # a page alone is no endpoint
        n_nodes, n_tail, snapshot = self._best_endpoint(root, path)
        nodes = tuple(path[:n_nodes])
        n_tokens = n_nodes * self._page_tokens + n_tail
        n_promised = awaited.depth * self._page_tokens if awaited is not None else 0
        n_host_pages = sum(1 for node in nodes if node.device_id == NOWHERE)
        n_host_rows = int(snapshot is not None and snapshot.device_id == NOWHERE)
        return Match(n_tokens, n_host_pages, n_host_rows, max(n_promised, n_tokens), nodes, snapshot, awaited)

    def _is_here(self, resident: Resident) -> bool:
        return resident.device_id != NOWHERE or (self._uses_host and resident.host_id != NOWHERE)

    def _walk(self, root: PrefixNode) -> tuple[list[PrefixNode], PrefixNode | None]:
        """The nodes whose pages are here, and the last of the promised ones that follow them."""
        size, tokens = self._page_tokens, self._tokens
        path: list[PrefixNode] = []
        awaited: PrefixNode | None = None
        node: PrefixNode | None = root
        for start in range(0, self._n_most // size * size, size):
            node = node.children.get(tuple(tokens[start : start + size])) if node is not None else None
            if node is None:
                break
            if self._is_here(node):
                path.append(node)
            elif node.n_promises:
                awaited = node
            else:
                break
        return path, awaited

    def _best_endpoint(self, root: PrefixNode, path: list[PrefixNode]) -> tuple[int, int, Snapshot | None]:
        """Whole pages, tokens of the tail, snapshot behind the pages."""
        for n_nodes in range(len(path), -1, -1):
            n_tail, snapshot = self._best_snapshot(path[n_nodes - 1] if n_nodes else root, n_nodes)
            if self._is_truncatable or snapshot is not None:
                return n_nodes, n_tail, snapshot
        return 0, 0, None

    def _best_snapshot(self, node: PrefixNode, n_nodes: int) -> tuple[int, Snapshot | None]:
        """The longest usable one; of equals, one on the device."""
        start = n_nodes * self._page_tokens
        rest = tuple(self._tokens[start : min(start + self._page_tokens, self._n_most)])
        best: tuple[int, bool] = (0, False)
        found: Snapshot | None = None
        for snapshot in node.snapshots:
            n_tail = snapshot.n_tail(rest)
            is_usable = n_tail > 0 if self._is_truncatable else n_tail == len(snapshot.tail)
            rank = (n_tail, snapshot.device_id != NOWHERE)
            if is_usable and self._is_here(snapshot) and (found is None or rank > best):
                best, found = rank, snapshot
        return best[0], found
