"""The snapshots at the nodes of the prefix tree: which are worth keeping, and where their rows are.

It knows tails and rows, not what a row contains. A node has at most `SNAPSHOTS_PER_NODE`, none of which another one makes useless
(unless a holding needs it still), and a snapshot never outlives the contents of its node.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.cache.prefix import PrefixNode, Snapshot, Tokens
from helios.cache.residence import Residence
from helios.cache.resident import NOWHERE
from helios.cache.transfer import Store

SNAPSHOTS_PER_NODE = 4  # so many different tails may follow one page; then the least recently used one is replaced


class SnapshotStore:
    """Owns the rows. `is_truncatable`: a snapshot serves every endpoint inside its tail. `lost` hears of nodes that lost one,
    `forget` of snapshots that are no more."""

    def __init__(
        self,
        n_rows: int,
        n_host_rows: int,
        *,
        is_truncatable: bool,
        lost: Callable[[PrefixNode], None],
        forget: Callable[[Snapshot], None],
    ) -> None:
        self.rows: Residence[Snapshot] = Residence(Store.ROW, n_rows, n_host_rows, self._lose, forget)
        self.n_published = 0
        self._is_truncatable = is_truncatable
        self._lost = lost

    def put(self, node: PrefixNode, tail: Tokens, row: int, now: int) -> bool:
        """Hang a snapshot in `row` at `node`; False when it would be of no use, or no other makes way for it."""
        if self._is_truncatable and not tail:
            return False  # the pages say it all
        existing = next((snapshot for snapshot in node.snapshots if self._serves(snapshot, tail)), None)
        if existing is not None:
            return self._refresh(existing, tail, row, now)
        if not self._make_way(node, tail):
            return False
        snapshot = Snapshot(node, tail, now)
        node.snapshots.append(snapshot)
        self.rows.settle(snapshot, row)
        self.n_published += 1
        return True

    def forget(self, snapshot: Snapshot) -> None:
        """Nobody will ask for it again, or its node has lost its contents."""
        snapshot.node.snapshots.remove(snapshot)
        self.rows.discard(snapshot)

    def _serves(self, snapshot: Snapshot, tail: Tokens) -> bool:
        return snapshot.tail == tail or (self._is_truncatable and snapshot.n_tail(tail) == len(tail))

    def _refresh(self, snapshot: Snapshot, tail: Tokens, row: int, now: int) -> bool:
        """Use `row` for a snapshot that is there already, when it is in host memory only."""
        if snapshot.tail == tail and snapshot.device_id == NOWHERE:
            self.rows.settle(snapshot, row)
            return True
        self.rows.touch(snapshot, now)
        return False

    def _make_way(self, node: PrefixNode, tail: Tokens) -> bool:
        idle = [snapshot for snapshot in node.snapshots if snapshot.is_idle]
        if self._is_truncatable:
            for snapshot in [s for s in idle if tail[: len(s.tail)] == s.tail]:  # the new one serves what they serve
                self.forget(snapshot)
                idle.remove(snapshot)
        if len(node.snapshots) < SNAPSHOTS_PER_NODE:
            return True
        if idle:
            self.forget(min(idle, key=lambda snapshot: snapshot.worth))
        return bool(idle)

    def _lose(self, snapshot: Snapshot) -> None:
        snapshot.node.snapshots.remove(snapshot)
        self._lost(snapshot.node)
