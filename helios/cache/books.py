"""The books of the prefix cache: whose page is it, what does it hold, which may go.

They know token ids and numbers of pages and rows, no device and no clock. A lookup finds only pages whose tokens, under the same
key, were verified to be exactly the asked ones; and every page and row is in exactly one hand, which `check` proves.

A sequence's life in the order of the calls: `lookup`, `open`, `reload` until the holding `is_ready`, `extend` (over the restored
tail too), `attach`, `restore`; then `extend` before and `publish` after each verified round; `release` at the final fence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from helios.cache.holding import NO_MATCH, Holding, Match
from helios.cache.journal import Journal
from helios.cache.lookup import PrefixLookup
from helios.cache.prefix import PrefixNode, PrefixTree, Snapshot, Tokens
from helios.cache.residence import Residence
from helios.cache.resident import NOWHERE, Resident
from helios.cache.retention import KEPT_SHARE, Retention
from helios.cache.snapshots import SnapshotStore
from helios.cache.transfer import Store, Transfer
from helios.errors import InternalError

_NEVER = sys.maxsize


def prefix_key(cache_identity: bytes, salt: str, adapter: str, media: Sequence[bytes]) -> bytes:
    """The key of a prefix tree: everything besides the tokens that a page's contents depend on, or that must keep callers apart.
    Every part is length-prefixed, so two different sets of parts never have the same key."""
    parts = [cache_identity, salt.encode("utf-8", "surrogatepass"), adapter.encode("utf-8", "surrogatepass"), *media]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Sizes of the stores. `n_rows` counts snapshot rows (0: the core cannot save or restore them); host stores may be 0.

    `is_truncatable`: histories live in paged regions only, so a snapshot serves every endpoint inside its tail; otherwise a
    sequence can go on only at a snapshot's exact endpoint, because recurrent state has no past.
    """

    page_tokens: int
    n_pages: int
    n_rows: int = 0
    n_host_pages: int = 0
    n_host_rows: int = 0
    is_truncatable: bool = True


class CacheBooks:
    """The only class of the cache that the scheduler calls. Every call is synchronous and leaves the books balanced. A `journal`
    is told of every page that begins or ceases to be reusable."""

    def __init__(self, shape: CacheShape, journal: Journal | None = None) -> None:
        self.shape = shape
        self._journal = journal
        self._tree = PrefixTree(shape.page_tokens)
        self._retention = Retention(shape.n_pages // KEPT_SHARE, self._mark)
        self._pages: Residence[PrefixNode] = Residence(
            Store.PAGE, shape.n_pages, shape.n_host_pages, self._lose_page, self._retention.forget
        )
        self._snapshots = SnapshotStore(
            shape.n_rows,
            shape.n_host_rows,
            is_truncatable=shape.is_truncatable,
            lost=self._tree.prune,
            forget=self._retention.forget,
        )
        self._rows = self._snapshots.rows
        self._holdings: set[Holding] = set()
        self._now = 0  # a logical clock: counts openings, publications and releases
        self._n_pages_published = 0
        self._n_duplicates = 0
        self._n_reused_tokens = 0

    # -- beginning

    def lookup(self, key: bytes, tokens: Sequence[int], n_most: int, *, uses_host: bool = True) -> Match:
        """What can be reused of `tokens`, at most `n_most` of them. Without `uses_host`, only what is on the device (recomputing
        instead of reloading). Pins nothing and changes nothing."""
        is_truncatable = self.shape.is_truncatable
        return PrefixLookup(self._tree, tokens, n_most, is_truncatable=is_truncatable, uses_host=uses_host).find(key)

    def open(self, key: bytes, tokens: Sequence[int], match: Match | None, *, is_private: bool = False) -> Holding:
        """Begin a sequence: pin what `match` found (of the same plan call; None: nothing is reused) and promise the other complete
        pages of `tokens` to later lookups. `is_private`: promises nothing and never publishes. Takes no pages; cannot fail."""
        match = match or NO_MATCH
        _check_fresh(self._tree.find_root(key), match)
        now = self._tick()
        root = self._tree.root(key, now)
        holding = Holding(root, match, is_private=is_private)
        self._holdings.add(holding)
        self._pages.pin(root, now)
        for node in match.nodes:
            self._pages.pin(node, now)
        if match.snapshot is not None:
            self._rows.pin(match.snapshot, now)
        if not is_private:
            self._promise(holding, tokens)
        self._schedule_publication(holding)
        return holding

    def reload(self, holding: Holding) -> list[Transfer] | None:
        """Take pages and rows for the parts of the match that are in host memory: the copies to start now, [] when there are none.
        None, and nothing taken, when pages or rows are short even after eviction. The sequence may start when `is_ready`."""
        if holding.is_reloaded:
            return []
        snapshot = holding.snapshot
        nodes = [node for node in holding.nodes if node.device_id == NOWHERE]
        is_row_missing = snapshot is not None and snapshot.device_id == NOWHERE
        if not self._pages.make_room(len(nodes)) or not self._rows.make_room(int(is_row_missing)):
            return None
        transfers = [self._pages.load(node) for node in nodes]
        if snapshot is not None and is_row_missing:
            transfers.append(self._rows.load(snapshot))
        _wait_for_loads(holding)
        holding.is_reloaded = True
        self._n_reused_tokens += holding.n_reused
        return transfers

    def attach(self, holding: Holding) -> list[tuple[int, int]]:
        """(page index, page id) of the shared pages that the sequence starts with, for its slot's page table."""
        return [(node.depth - 1, node.device_id) for node in holding.nodes[: holding.n_matched_nodes]]

    def restore(self, holding: Holding) -> tuple[int, int, int] | None:
        """(row, page index, page id): the reused tail is copied from this row to this private page before the first round; None
        when there is no tail. The page is one that `extend` returned: call it first, beyond `n_reused`. The row stays pinned
        until the first `publish` beyond `n_reused`."""
        if holding.snapshot is None:
            return None
        page_index = holding.n_matched_nodes
        if not holding.is_ready or page_index not in holding.private:
            raise InternalError(
                f"a tail up to {holding.n_reused} tokens was restored before page {page_index} was there"
            )
        return holding.snapshot.device_id, page_index, holding.private[page_index]

    # -- running

    def extend(self, holding: Holding, n_positions: int) -> list[tuple[int, int]] | None:
        """Take private pages, evicting as needed, until `n_positions` positions have one: the new (page index, page id). None, and
        nothing taken, when pages are short even after eviction."""
        n_more = -(-n_positions // self.shape.page_tokens) - holding.n_pages
        if n_more <= 0:
            return []
        if holding.is_released:
            raise InternalError("a holding was extended after its release")
        if not self._pages.make_room(n_more):
            return None
        entries = [(holding.n_pages + i, self._pages.device.take()) for i in range(n_more)]
        holding.private.update(entries)
        holding.n_pages += n_more
        return entries

    def publish(self, holding: Holding, tokens: Sequence[int], n_committed: int) -> None:
        """After a verified round: complete pages of the first `n_committed` tokens become shared and immutable. `tokens` are the
        sequence's own so far (prompt and output), at least `n_committed` of them. Cheap when no page was completed."""
        if n_committed < holding.next_publication:
            return
        size = self.shape.page_tokens
        if holding.is_released or not holding.is_ready or n_committed > min(len(tokens), holding.n_pages * size):
            raise InternalError(f"{n_committed} of {len(tokens)} tokens were committed in {holding.n_pages} pages")
        if holding.snapshot is not None:  # a round beyond it is verified
            self._rows.unpin(holding.snapshot, self._tick())
            holding.snapshot = None
        if not holding.is_private:
            for start in range(len(holding.nodes) * size, n_committed // size * size, size):
                self._publish_page(holding, tuple(tokens[start : start + size]))
        self._schedule_publication(holding)

    def reserve_row(self, holding: Holding) -> int | None:
        """A row for a snapshot that the next round will write, evicting as needed; None when there is none, and for a private
        holding. The holding's own until it is published or dropped."""
        if holding.is_private or holding.is_released or not self._rows.make_room(1):
            return None
        row = self._rows.device.take()
        holding.rows.add(row)
        return row

    def publish_snapshot(self, holding: Holding, tokens: Sequence[int], endpoint: int, row: int) -> None:
        """The round that wrote `row` is verified: it holds the state after the first `endpoint` tokens. Publishes the complete
        pages before it too. The row may turn out to be of no use (a duplicate), and is free then."""
        self.publish(holding, tokens, endpoint)
        n_nodes = endpoint // self.shape.page_tokens
        if row not in holding.rows or n_nodes != len(holding.nodes) or not 0 < endpoint <= len(tokens):
            raise InternalError(f"row {row} was published at {endpoint} tokens behind {len(holding.nodes)} pages")
        holding.rows.remove(row)
        tail = tuple(tokens[n_nodes * self.shape.page_tokens : endpoint])
        if not self._snapshots.put(holding.node, tail, row, self._tick()):
            self._rows.device.release(row)

    def drop_row(self, holding: Holding, row: int) -> None:
        """A reserved row that will not be published; its round, if there was one, is complete."""
        if row not in holding.rows:
            raise InternalError(f"row {row} was dropped and is not reserved for this sequence")
        holding.rows.remove(row)
        self._rows.device.release(row)

    def release(self, holding: Holding) -> None:
        """The sequence is over or preempted, and no round in flight touches its pages or rows: unpins, frees what is private, drops
        its promises and reserved rows. While a reload is in flight, what it writes stays taken until the transfer finishes."""
        if holding.is_released:
            raise InternalError("a holding was released twice")
        holding.is_released = True
        for row in list(holding.rows):
            self.drop_row(holding, row)
        for node in holding.nodes:
            if node.depth - 1 in holding.private:
                node.duplicates.remove(holding)
        for page_id in holding.private.values():
            self._pages.device.release(page_id)
        holding.private.clear()
        for node in holding.promised:
            node.n_promises -= 1
            self._tree.prune(node)
        holding.promised.clear()
        if not holding.n_pending:
            self._unpin_all(holding)

    # -- keeping

    def retain(self, holding: Holding, key: str, n_most_tokens: int | None, expires_s: float) -> None:
        """Keep what this sequence has published, up to `n_most_tokens` (None: all, with the snapshot behind it), ahead of others
        until `expires_s`; in the place of what was kept for `key`. Call it before `release`."""
        if holding.is_released:
            raise InternalError("a holding was to be kept after its release")
        n_nodes = len(holding.nodes) if n_most_tokens is None else -(-n_most_tokens // self.shape.page_tokens)
        path = holding.nodes[:n_nodes]
        snapshots = path[-1].snapshots if path and len(path) == len(holding.nodes) else []
        last = max(snapshots, key=lambda snapshot: snapshot.last_use, default=None)
        self._retention.keep(key, path, last, expires_s)

    def expire(self, now_s: float) -> None:
        """What was to be kept until now goes like everything else."""
        self._retention.expire(now_s)

    # -- host memory

    def offload(self, n_most: int) -> list[Transfer]:
        """Copies to start in the background, at most `n_most`: least recently used pages and rows that host memory does not have
        yet, when room on the device is low. [] mostly."""
        transfers: list[Transfer] = []
        for snapshot in self._rows.worth_saving(n_most):
            transfer = self._rows.save(snapshot)
            if transfer is not None:
                self._pages.hold(snapshot.node)
                transfers.append(transfer)
        for leaf in self._pages.worth_saving(n_most):
            for node in _unsaved_path(leaf):
                transfer = self._pages.save(node) if len(transfers) < n_most else None
                if transfer is None:
                    break
                transfers.append(transfer)
        return transfers

    def finish_transfer(self, transfer: Transfer) -> None:
        """The copy is complete, whatever became of the holding that wanted it."""
        resident: Resident
        if transfer.store is Store.PAGE:
            resident = node = self._pages.finish(transfer)
        else:
            resident = snapshot = self._rows.finish(transfer)
            node = snapshot.node
            if transfer.is_offload:
                self._pages.unhold(node)
        self._resolve_duplicate(node)
        waiters, resident.waiters = resident.waiters, []
        for holding in waiters:
            holding.n_pending -= 1
            if holding.is_released and not holding.n_pending:
                self._unpin_all(holding)

    # -- counts

    @property
    def n_free_pages(self) -> int:
        """Pages in nobody's hand."""
        return self._pages.device.n_free

    @property
    def n_evictable_pages(self) -> int:
        """Cached pages that no sequence uses: `extend` can have them too."""
        return self._pages.n_idle

    def statistics(self) -> dict[str, int]:
        """Name to number, for /metrics; names of counters end in _total."""
        pages, rows = self._pages, self._rows
        return {
            "cache_pages": pages.device.n_ids,
            "cache_pages_free": pages.device.n_free,
            "cache_pages_cached": pages.n_idle,
            "cache_pages_held": pages.device.n_ids - pages.device.n_free - pages.n_idle,
            "cache_rows": rows.device.n_ids,
            "cache_rows_free": rows.device.n_free,
            "cache_pages_retained": self._retention.n_pages,
            "cache_host_pages": pages.host.n_ids,
            "cache_host_pages_free": pages.host.n_free,
            "cache_host_rows": rows.host.n_ids,
            "cache_host_rows_free": rows.host.n_free,
            "cache_reused_tokens_total": self._n_reused_tokens,
            "cache_pages_published_total": self._n_pages_published,
            "cache_duplicate_pages_total": self._n_duplicates,
            "cache_pages_evicted_total": pages.n_evicted,
            "cache_pages_offloaded_total": pages.n_saved,
            "cache_pages_reloaded_total": pages.n_loaded,
            "cache_snapshots_published_total": self._snapshots.n_published,
            "cache_snapshots_evicted_total": rows.n_evicted,
            "cache_snapshots_offloaded_total": rows.n_saved,
            "cache_snapshots_reloaded_total": rows.n_loaded,
        }

    def check(self) -> None:
        """Raise InternalError unless every page and row is in exactly one hand, every pin and promise is someone's, and every node
        is reachable. Walks everything: for tests."""
        from helios.cache.audit import Audit

        Audit(
            self._tree,
            self._pages,
            self._rows,
            self._holdings,
            self._retention,
            self._journal,
            is_truncatable=self.shape.is_truncatable,
        ).check()

    # -- parts of the above

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _promise(self, holding: Holding, tokens: Sequence[int]) -> None:
        size = self.shape.page_tokens
        node = holding.node
        for start in range(len(holding.nodes) * size, len(tokens) - size + 1, size):
            node = self._tree.child(node, tuple(tokens[start : start + size]), self._now)
            node.n_promises += 1
            holding.promised.append(node)
        holding.promised.reverse()

    def _schedule_publication(self, holding: Holding) -> None:
        next_page = _NEVER if holding.is_private else (len(holding.nodes) + 1) * self.shape.page_tokens
        holding.next_publication = next_page if holding.snapshot is None else min(next_page, holding.n_reused + 1)

    def _publish_page(self, holding: Holding, tokens: Tokens) -> None:
        now = self._tick()
        if holding.promised:
            node = holding.promised[-1]
            if node.tokens != tokens:
                raise InternalError(f"page {node.depth - 1} of a sequence has other tokens than it was opened with")
            holding.promised.pop()
            node.n_promises -= 1
        else:
            node = self._tree.child(holding.node, tokens, now)
        self._pages.pin(node, now)
        holding.nodes.append(node)
        if node.device_id == NOWHERE:
            is_new = not node.is_somewhere
            self._pages.settle(node, holding.private.pop(node.depth - 1))
            self._n_pages_published += 1
            if is_new and self._journal is not None and self._tree.key_of(holding.root) == self._journal.key:
                self._journal.store(node)
        else:
            node.duplicates.append(holding)
            self._n_duplicates += 1
            self._resolve_duplicate(node)

    def _resolve_duplicate(self, node: PrefixNode) -> None:
        """When nobody reads a node's page any more but there are duplicates of it, one of them takes its place: otherwise a
        sequence could keep twice its pages, and wait for itself."""
        if node.duplicates and node.n_users == len(node.duplicates) and not node.n_copies:
            holding = node.duplicates.pop()
            self._pages.device.release(node.device_id)
            node.device_id = holding.private.pop(node.depth - 1)

    def _unpin_all(self, holding: Holding) -> None:
        now = self._tick()
        if holding.snapshot is not None:
            self._rows.unpin(holding.snapshot, now)
        for node in reversed(holding.nodes):
            self._pages.unpin(node, now)
            self._resolve_duplicate(node)
        self._pages.unpin(holding.root, now)
        self._tree.prune(holding.node)
        self._holdings.remove(holding)

    def _mark(self, resident: Resident, is_kept: bool) -> None:
        if isinstance(resident, PrefixNode):
            self._pages.mark(resident, is_kept)
        elif isinstance(resident, Snapshot):
            self._rows.mark(resident, is_kept)

    def _lose_page(self, node: PrefixNode) -> None:
        if self._journal is not None:
            self._journal.remove(node)
        for snapshot in list(node.snapshots):
            self._snapshots.forget(snapshot)
        self._tree.prune(node)


def _check_fresh(root: PrefixNode | None, match: Match) -> None:
    node = root
    for child in match.nodes:
        if child.parent is not node or not child.is_somewhere:
            raise InternalError("a match was opened after its pages had gone, or under another key")
        node = child
    if match.snapshot is not None and (node is None or match.snapshot not in node.snapshots):
        raise InternalError("a match was opened after its snapshot had gone, or under another key")


def _wait_for_loads(holding: Holding) -> None:
    residents: list[Resident] = [*holding.nodes]
    if holding.snapshot is not None:
        residents.append(holding.snapshot)
    for resident in residents:
        if resident.is_loading:
            resident.waiters.append(holding)
            holding.n_pending += 1


def _unsaved_path(node: PrefixNode) -> list[PrefixNode]:
    """The nodes down to `node` that host memory does not have: it gets a page only after those above."""
    path = [node]
    while node.parent is not None and node.parent.depth and node.parent.host_id == NOWHERE:
        node = node.parent
        path.append(node)
    path.reverse()
    return path
