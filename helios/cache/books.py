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
from typing import Any

from helios.cache.audit import check_books
from helios.cache.holding import NO_MATCH, Holding, Match
from helios.cache.prefix import PrefixNode, PrefixTree, Snapshot, Tokens, n_common
from helios.cache.residence import Residence
from helios.cache.resident import NOWHERE, Resident
from helios.cache.transfer import Store, Transfer
from helios.errors import InternalError

SNAPSHOTS_PER_NODE = 4  # so many different tails may follow one page; then the least recently used one is replaced
LOW_ROOM_SHARE = 4  # less than a quarter of a store free: start to save what may have to go
NEVER = sys.maxsize


def prefix_key(cache_identity: bytes, salt: str, adapter: str, media: Sequence[bytes]) -> bytes:
    """The key of a prefix tree: everything besides the tokens that a page's contents depend on, or that must keep callers apart.
    Every part is length-prefixed, so two different sets of parts never have the same key."""
    parts = [cache_identity, salt.encode("utf-8", "surrogatepass"), adapter.encode("utf-8", "surrogatepass"), *media]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Sizes of the stores. `n_rows` counts snapshot rows (0: the core cannot save or restore them); host stores may be 0.

    `is_truncatable`: histories live in paged regions only, so a snapshot serves every endpoint inside its tail; otherwise a sequence
    can go on only at a snapshot's exact endpoint, because recurrent state has no past.
    """

    page_tokens: int
    n_pages: int
    n_rows: int = 0
    n_host_pages: int = 0
    n_host_rows: int = 0
    is_truncatable: bool = True


class CacheBooks:
    """The only class of the cache that the scheduler calls. Every call is synchronous and leaves the books balanced."""

    def __init__(self, shape: CacheShape) -> None:
        self.shape = shape
        self.tree = PrefixTree()
        self.pages: Residence[PrefixNode] = Residence(Store.PAGE, shape.n_pages, shape.n_host_pages, self._lose_page)
        self.rows: Residence[Snapshot] = Residence(Store.ROW, shape.n_rows, shape.n_host_rows, self._lose_row)
        self.holdings: set[Holding] = set()
        self._now = 0  # a logical clock: counts opens, publications and releases
        self._n_pages_published = 0
        self._n_snapshots_published = 0
        self._n_duplicates = 0
        self._n_reused_tokens = 0

    # -- beginning

    def lookup(self, key: bytes, tokens: Sequence[int], n_most: int, *, uses_host: bool = True) -> Match:
        """What can be reused of `tokens`, at most `n_most` of them. Without `uses_host`, only what is on the device (recomputing
        instead of reloading). Pins nothing and changes nothing."""
        root = self.tree.find_root(key)
        if root is None:
            return NO_MATCH
        size = self.shape.page_tokens
        n_whole = min(n_most, len(tokens)) // size
        nodes: list[PrefixNode] = []
        node = root
        n_promised_pages = 0
        for i in range(n_whole):
            child = node.children.get(tuple(tokens[i * size : (i + 1) * size]))
            if child is None:
                break
            is_found = child.device_id != NOWHERE or (uses_host and child.host_id != NOWHERE)
            if is_found and not n_promised_pages:
                nodes.append(child)
            elif child.n_promises:
                n_promised_pages = i + 1
            else:
                break
            node = child
        nodes, snapshot, n_tail = self._best_endpoint(root, nodes, tokens, n_most, uses_host)
        n_tokens = len(nodes) * size + n_tail
        n_promised = max(n_tokens, n_promised_pages * size) if self.shape.is_truncatable else n_tokens
        n_host_pages = sum(1 for found in nodes if found.device_id == NOWHERE)
        n_host_rows = 1 if snapshot is not None and snapshot.device_id == NOWHERE else 0
        return Match(n_tokens, n_host_pages, n_host_rows, n_promised, tuple(nodes), snapshot)

    def open(self, key: bytes, tokens: Sequence[int], match: Match | None, *, is_private: bool = False) -> Holding:
        """Begin a sequence: pin what `match` found (of the same plan call; None: nothing is reused) and promise the other complete
        pages of `tokens` to later lookups. `is_private`: promises nothing and never publishes. Takes no pages; cannot fail."""
        match = match or NO_MATCH
        root = self.tree.root(key, self._tick())
        self._check_fresh(root, match)
        holding = Holding(root, match, is_private=is_private)
        self.holdings.add(holding)
        self.pages.pin(root, self._now)
        for node in match.nodes:
            self.pages.pin(node, self._now)
        if match.snapshot is not None:
            self.rows.pin(match.snapshot, self._now)
        self._wait_for_loads(holding)
        if not is_private:
            self._promise(holding, tokens)
        self._n_reused_tokens += match.n_tokens
        self._schedule_publication(holding)
        return holding

    def reload(self, holding: Holding) -> list[Transfer] | None:
        """Take pages and rows for the parts of the match that are in host memory: the copies to start now, [] when there are none.
        None, and nothing taken, when pages or rows are short even after eviction. The sequence may start when `is_ready`."""
        snapshot = holding.snapshot
        nodes = [node for node in holding.nodes if node.device_id == NOWHERE]
        is_row_missing = snapshot is not None and snapshot.device_id == NOWHERE
        if not self.pages.make_room(len(nodes)) or not self.rows.make_room(int(is_row_missing)):
            return None
        transfers = [self.pages.load(node) for node in nodes]
        if snapshot is not None and is_row_missing:
            transfers.append(self.rows.load(snapshot))
        self._wait_for_loads(holding)
        return transfers

    def attach(self, holding: Holding) -> list[tuple[int, int]]:
        """(page index, page id) of the shared pages that the sequence starts with, for its slot's page table."""
        return [(node.depth - 1, node.device_id) for node in holding.nodes[: holding.n_matched_nodes]]

    def restore(self, holding: Holding) -> tuple[int, int, int] | None:
        """(row, page index, page id): the reused tail is copied from this row to this private page before the first round; None when
        there is no tail. The page is one that `extend` returned: call it first, beyond `n_reused`. The row stays pinned until the
        first `publish` beyond it."""
        if holding.snapshot is None:
            return None
        page_index = holding.n_matched_nodes
        if page_index not in holding.private:
            raise InternalError(f"a tail of {holding.n_reused} tokens was restored before page {page_index} was taken")
        return holding.snapshot.device_id, page_index, holding.private[page_index]

    # -- running

    def extend(self, holding: Holding, n_positions: int) -> list[tuple[int, int]] | None:
        """Take private pages, evicting as needed, until `n_positions` positions have one: the new (page index, page id). None, and
        nothing taken, when pages are short even after eviction."""
        n_more = -(-n_positions // self.shape.page_tokens) - holding.n_pages
        if n_more <= 0:
            return []
        if not self.pages.make_room(n_more):
            return None
        entries = [(holding.n_pages + i, self.pages.device.take()) for i in range(n_more)]
        holding.private.update(entries)
        holding.n_pages += n_more
        return entries

    def publish(self, holding: Holding, tokens: Sequence[int], n_committed: int) -> None:
        """After a verified round: complete pages of the first `n_committed` tokens become shared and immutable. `tokens` are the
        sequence's own so far (prompt and output), at least `n_committed` of them. Cheap when no page was completed."""
        if n_committed < holding.next_publication:
            return
        if holding.snapshot is not None and n_committed > holding.n_reused:
            self.rows.unpin(holding.snapshot, self._tick())
            holding.snapshot = None
        if not holding.is_private:
            size = self.shape.page_tokens
            if not n_committed <= min(len(tokens), holding.n_pages * size):
                raise InternalError(f"{n_committed} of {len(tokens)} tokens are committed in {holding.n_pages} pages")
            while (len(holding.nodes) + 1) * size <= n_committed:
                start = len(holding.nodes) * size
                self._publish_page(holding, tuple(tokens[start : start + size]))
        self._schedule_publication(holding)

    def reserve_row(self, holding: Holding) -> int | None:
        """A row for a snapshot that the next round will write, evicting as needed; None when there is none. Private to the holding
        until it is published or dropped."""
        if not self.rows.make_room(1):
            return None
        row = self.rows.device.take()
        holding.rows.add(row)
        return row

    def publish_snapshot(self, holding: Holding, tokens: Sequence[int], endpoint: int, row: int) -> None:
        """The round that wrote `row` is verified: it holds the state after the first `endpoint` tokens. Publishes the complete pages
        before it too. The row may turn out to be of no use (a duplicate) and is free then."""
        self.publish(holding, tokens, endpoint)
        size = self.shape.page_tokens
        tail = tuple(tokens[endpoint // size * size : endpoint])
        if holding.is_private or (self.shape.is_truncatable and not tail) or not self._has_space(holding.node, tail):
            self.drop_row(holding, row)
            return
        if len(holding.nodes) != endpoint // size:
            raise InternalError(f"a snapshot at {endpoint} tokens behind {len(holding.nodes)} pages")
        self._take_back(holding, row)
        snapshot = Snapshot(holding.node, tail, self._tick())
        holding.node.snapshots.append(snapshot)
        self.rows.settle(snapshot, row)
        self._n_snapshots_published += 1

    def drop_row(self, holding: Holding, row: int) -> None:
        """A reserved row that will not be published; its round, if there was one, is complete."""
        self._take_back(holding, row)
        self.rows.device.release(row)

    def release(self, holding: Holding) -> None:
        """The sequence is over or preempted, and no round in flight touches its pages or rows: unpins, frees what is private, drops
        its promises and reserved rows. While a reload is in flight, what it writes stays taken until the transfer finishes."""
        if holding.is_released:
            raise InternalError("a holding was released twice")
        holding.is_released = True
        for row in list(holding.rows):
            self.drop_row(holding, row)
        for node in reversed(holding.nodes):
            if node.depth - 1 in holding.private:
                node.duplicates.remove(holding)
        for page_id in holding.private.values():
            self.pages.device.release(page_id)
        holding.private.clear()
        for node in holding.promised:  # the deepest first
            node.n_promises -= 1
            self.tree.prune(node)
        holding.promised.clear()
        if not holding.n_pending:
            self._unpin_all(holding)

    # -- host memory

    def offload(self, n_most: int) -> list[Transfer]:
        """Copies to start in the background, at most `n_most`: least recently used pages and rows that host memory does not have yet,
        when room on the device is low. [] mostly."""
        transfers = self._save_rows(n_most)
        skipped: list[PrefixNode] = []
        while len(transfers) < n_most > len(skipped) and self._is_low(self.pages):
            leaf = self.pages.unsaved.oldest()
            if leaf is None:
                break
            transfer = self.pages.save(_highest_unsaved(leaf))
            if transfer is not None:
                transfers.append(transfer)
            else:  # everything in host memory was used later than this
                self.pages.unsaved.place(leaf, False)
                skipped.append(leaf)
        for leaf in skipped:
            self.pages.unsaved.place(leaf, True)
        return transfers

    def finish_transfer(self, transfer: Transfer) -> None:
        """The copy is complete, whatever became of the holding that wanted it."""
        resident: Resident
        if transfer.store is Store.PAGE:
            resident = node = self.pages.finish(transfer)
            self._resolve_duplicate(node)
        else:
            resident = snapshot = self.rows.finish(transfer)
            if transfer.is_offload:
                self.pages.unhold(snapshot.node)
        if not transfer.is_offload:
            waiters, resident.waiters = resident.waiters, []
            for holding in waiters:
                holding.n_pending -= 1
                if holding.is_released and not holding.n_pending:
                    self._unpin_all(holding)

    # -- counts

    @property
    def n_free_pages(self) -> int:
        """Pages in nobody's hand."""
        return self.pages.device.n_free

    @property
    def n_evictable_pages(self) -> int:
        """Cached pages that no sequence uses: `extend` can have them too."""
        return self.pages.n_idle

    def statistics(self) -> dict[str, int]:
        """Name to number, for /metrics; names of counters end in _total."""
        pages, rows = self.pages, self.rows
        return {
            "cache_pages": self.shape.n_pages,
            "cache_pages_free": pages.device.n_free,
            "cache_pages_cached": pages.n_idle,
            "cache_pages_held": self.shape.n_pages - pages.device.n_free - pages.n_idle,
            "cache_rows": self.shape.n_rows,
            "cache_rows_free": rows.device.n_free,
            "cache_host_pages": self.shape.n_host_pages,
            "cache_host_pages_free": pages.host.n_free,
            "cache_host_rows": self.shape.n_host_rows,
            "cache_host_rows_free": rows.host.n_free,
            "cache_reused_tokens_total": self._n_reused_tokens,
            "cache_pages_published_total": self._n_pages_published,
            "cache_page_duplicates_total": self._n_duplicates,
            "cache_pages_evicted_total": pages.n_evicted,
            "cache_pages_lost_total": pages.n_lost,
            "cache_pages_offloaded_total": pages.n_saves,
            "cache_pages_reloaded_total": pages.n_loads,
            "cache_snapshots_published_total": self._n_snapshots_published,
            "cache_snapshots_evicted_total": rows.n_evicted,
            "cache_snapshots_lost_total": rows.n_lost,
            "cache_snapshots_offloaded_total": rows.n_saves,
            "cache_snapshots_reloaded_total": rows.n_loads,
        }

    def check(self) -> None:
        """Raise InternalError unless every page and row is in exactly one hand, every pin and promise is someone's, and every node is
        reachable. Walks everything: for tests."""
        check_books(self)

    # -- parts of the above

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _best_endpoint(
        self, root: PrefixNode, nodes: list[PrefixNode], tokens: Sequence[int], n_most: int, uses_host: bool
    ) -> tuple[list[PrefixNode], Snapshot | None, int]:
        """The longest reusable part of a path: its nodes, the snapshot behind them, tokens of its tail."""
        size = self.shape.page_tokens
        is_truncatable = self.shape.is_truncatable
        for n_nodes in range(len(nodes), -1, -1):
            node = nodes[n_nodes - 1] if n_nodes else root
            rest = tuple(tokens[n_nodes * size : min(n_most, (n_nodes + 1) * size)])
            best, n_best, is_best_here = None, -1, False
            for snapshot in node.snapshots:
                if snapshot.device_id == NOWHERE and not (uses_host and snapshot.host_id != NOWHERE):
                    continue
                n_tail = n_common(snapshot.tail, rest)
                is_usable = n_tail > 0 if is_truncatable else n_tail == len(snapshot.tail)
                is_here = snapshot.device_id != NOWHERE
                if is_usable and (n_tail, is_here) > (n_best, is_best_here):
                    best, n_best, is_best_here = snapshot, n_tail, is_here
            if best is not None:
                return nodes[:n_nodes], best, n_best
            if is_truncatable:
                return nodes, None, 0
        return [], None, 0

    def _check_fresh(self, root: PrefixNode, match: Match) -> None:
        parent = root
        for node in match.nodes:
            if node.parent is not parent or not node.is_somewhere:
                raise InternalError("a match was opened after its pages had gone, or under another key")
            parent = node
        if match.snapshot is not None and match.snapshot not in parent.snapshots:
            raise InternalError("a match was opened after its snapshot had gone")

    def _promise(self, holding: Holding, tokens: Sequence[int]) -> None:
        size = self.shape.page_tokens
        node = holding.node
        for start in range(len(holding.nodes) * size, len(tokens) - size + 1, size):
            node = self.tree.child(node, tuple(tokens[start : start + size]), self._now)
            node.n_promises += 1
            holding.promised.append(node)
        holding.promised.reverse()

    def _schedule_publication(self, holding: Holding) -> None:
        next_page = NEVER if holding.is_private else (len(holding.nodes) + 1) * self.shape.page_tokens
        holding.next_publication = min(next_page, holding.n_reused + 1) if holding.snapshot is not None else next_page

    def _wait_for_loads(self, holding: Holding) -> None:
        residents: list[Resident] = [*holding.nodes]
        if holding.snapshot is not None:
            residents.append(holding.snapshot)
        for resident in residents:
            if resident.is_loading and holding not in resident.waiters:
                resident.waiters.append(holding)
                holding.n_pending += 1

    def _publish_page(self, holding: Holding, tokens: Tokens) -> None:
        now = self._tick()
        if holding.promised:
            node = holding.promised.pop()
            node.n_promises -= 1
            if node.tokens != tokens:
                raise InternalError(f"page {node.depth - 1} of a sequence holds other tokens than it was opened with")
        else:
            node = self.tree.child(holding.node, tokens, now)
        self.pages.pin(node, now)
        holding.nodes.append(node)
        if node.device_id == NOWHERE:
            self.pages.settle(node, holding.private.pop(node.depth - 1))
            self._n_pages_published += 1
        else:
            node.duplicates.append(holding)
            self._n_duplicates += 1
            self._resolve_duplicate(node)

    def _resolve_duplicate(self, node: PrefixNode) -> None:
        """When nobody reads a node's page any more but there are duplicates of it, one of them takes its place."""
        if node.duplicates and node.n_users == len(node.duplicates) and not node.n_copies:
            holding = node.duplicates.pop()
            self.pages.device.release(node.device_id)
            node.device_id = holding.private.pop(node.depth - 1)

    def _has_space(self, node: PrefixNode, tail: Tokens) -> bool:
        """Make space for a snapshot of `tail`; False when it would be of no use or there is none."""
        for snapshot in list(node.snapshots):
            n_same = n_common(snapshot.tail, tail)
            if n_same == len(tail) and (len(snapshot.tail) == n_same or self.shape.is_truncatable):
                if snapshot.is_idle:
                    self.rows.touch(snapshot, self._tick())
                return False
            if n_same == len(snapshot.tail) and self.shape.is_truncatable and snapshot.is_idle:
                self._forget(snapshot)
        if len(node.snapshots) < SNAPSHOTS_PER_NODE:
            return True
        idle = [snapshot for snapshot in node.snapshots if snapshot.is_idle]
        if idle:
            self._forget(min(idle, key=lambda snapshot: snapshot.last_use))
        return bool(idle)

    def _forget(self, snapshot: Snapshot) -> None:
        self.rows.discard(snapshot)
        snapshot.node.snapshots.remove(snapshot)

    def _take_back(self, holding: Holding, row: int) -> None:
        if row not in holding.rows:
            raise InternalError(f"row {row} is not reserved for this sequence")
        holding.rows.remove(row)

    def _unpin_all(self, holding: Holding) -> None:
        now = self._tick()
        if holding.snapshot is not None:
            self.rows.unpin(holding.snapshot, now)
        for node in reversed(holding.nodes):
            self.pages.unpin(node, now)
            self._resolve_duplicate(node)
        self.pages.unpin(holding.root, now)
        self.tree.prune(holding.node)
        self.holdings.remove(holding)

    def _is_low(self, residence: Residence[Any]) -> bool:
        return residence.device.n_free * LOW_ROOM_SHARE < residence.device.n_ids

    def _save_rows(self, n_most: int) -> list[Transfer]:
        transfers: list[Transfer] = []
        while len(transfers) < n_most and self._is_low(self.rows):
            snapshot = self.rows.unsaved.oldest()
            transfer = self.rows.save(snapshot) if snapshot is not None else None
            if snapshot is None or transfer is None:
                break
            self.pages.hold(snapshot.node)
            transfers.append(transfer)
        return transfers

    def _lose_page(self, node: PrefixNode) -> None:
        for snapshot in list(node.snapshots):
            self._forget(snapshot)
        self.tree.prune(node)

    def _lose_row(self, snapshot: Snapshot) -> None:
        snapshot.node.snapshots.remove(snapshot)
        self.tree.prune(snapshot.node)


def _highest_unsaved(node: PrefixNode) -> PrefixNode:
    """The first on the way to `node` that host memory does not have."""
    while node.parent is not None and node.parent.depth and node.parent.host_id == NOWHERE:
        node = node.parent
    return node
