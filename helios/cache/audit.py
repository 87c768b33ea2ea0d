"""Whether the books balance: every page and row in exactly one hand, every count somebody's, every node reachable.

It reads everything and changes nothing, and derives every count anew from the holdings, the tree and the transfers in flight. It
takes the time that takes, so it is for tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from typing import NoReturn, TypeVar

from helios.cache.holding import Holding
from helios.cache.journal import Journal
from helios.cache.prefix import PrefixNode, PrefixTree, Snapshot
from helios.cache.residence import Residence
from helios.cache.resident import NOWHERE, Resident
from helios.cache.retention import Retention
from helios.cache.snapshots import SNAPSHOTS_PER_NODE
from helios.errors import InternalError

R = TypeVar("R", bound=Resident)


def _wrong(what: str) -> NoReturn:
    raise InternalError(f"the cache books do not balance: {what}")


class Audit:
    """One look at the books; `check` raises InternalError at the first thing that is wrong."""

    def __init__(
        self,
        tree: PrefixTree,
        pages: Residence[PrefixNode],
        rows: Residence[Snapshot],
        holdings: Collection[Holding],
        retention: Retention,
        journal: Journal | None = None,
        *,
        is_truncatable: bool,
    ) -> None:
        self._tree = tree
        self._pages = pages
        self._rows = rows
        self._holdings = holdings
        self._retention = retention
        self._journal = journal
        self._is_truncatable = is_truncatable
        self._nodes = list(tree.walk())
        self._snapshots = [snapshot for node in self._nodes for snapshot in node.snapshots]

    def check(self) -> None:
        for node in self._nodes:
            self._check_place(node)
            self._check_below(node)
            self._check_snapshots(node)
        for holding in self._holdings:
            self._check_holding(holding)
        self._check_counts()
        self._check_duplicates()
        self._check_residence(self._pages, self._nodes)
        self._check_residence(self._rows, self._snapshots)
        self._check_retention()
        self._check_hands()
        if self._journal is not None:
            self._check_journal(self._journal)

    # -- the tree

    def _check_place(self, node: PrefixNode) -> None:
        if not node.is_needed:
            _wrong(f"a node at depth {node.depth} is of no use")
        if node.parent is None:
            if node.depth or node.tokens or node.is_somewhere or node.n_promises or node.duplicates:
                _wrong("a root is no page")
            return
        if node.parent.children.get(node.tokens) is not node or node.depth != node.parent.depth + 1:
            _wrong(f"a node at depth {node.depth} is not its parent's child")
        if len(node.tokens) != self._tree.page_tokens:
            _wrong(f"a node of {len(node.tokens)} tokens")

    def _check_below(self, node: PrefixNode) -> None:
        """Contents lie only below contents, and they are counted."""
        on_device = [child for child in node.children.values() if child.device_id != NOWHERE]
        on_host = [child for child in node.children.values() if child.host_id != NOWHERE]
        if node.n_device_below != len(on_device) or node.n_host_below != len(on_host):
            _wrong(f"a node at depth {node.depth} miscounts its children")
        if node.parent is not None and (
            (on_device and node.device_id == NOWHERE) or (on_host and node.host_id == NOWHERE)
        ):
            _wrong(f"a node at depth {node.depth} is missing between others")

    def _check_snapshots(self, node: PrefixNode) -> None:
        if len(node.snapshots) > SNAPSHOTS_PER_NODE or len({s.tail for s in node.snapshots}) != len(node.snapshots):
            _wrong(f"a node at depth {node.depth} has {len(node.snapshots)} snapshots, or two of the same tail")
        for snapshot in node.snapshots:
            if snapshot.node is not node or not (node.parent is None or node.is_somewhere):
                _wrong("a snapshot hangs at a node without a page")
            if not snapshot.is_somewhere or len(snapshot.tail) >= self._tree.page_tokens:
                _wrong(f"a snapshot of {len(snapshot.tail)} tokens without a row, or of a whole page")
            if self._is_truncatable and not snapshot.tail:
                _wrong("a snapshot without a tail")

    # -- holdings

    def _check_holding(self, holding: Holding) -> None:
        chain = [holding.root, *holding.nodes, *reversed(holding.promised)]
        for parent, node in pairwise(chain):
            if node.parent is not parent or parent.children.get(node.tokens) is not node:
                _wrong("a holding's pages do not follow one another in the tree")
        if self._tree.key_of(holding.root) is None:
            _wrong("a holding's root is not in the tree")
        indices = set(holding.private) | set(range(len(holding.nodes)))
        if not holding.is_released and indices != set(range(holding.n_pages)):
            _wrong(f"a holding of {holding.n_pages} pages lacks some")
        matched = holding.nodes[: holding.n_matched_nodes]
        if holding.is_ready and any(node.device_id == NOWHERE or node.is_loading for node in matched):
            _wrong("a holding is ready before its pages are")
        if holding.snapshot is not None and holding.snapshot.node is not chain[holding.n_matched_nodes]:
            _wrong("a holding's snapshot is not behind its pages")
        if holding.is_released and (not holding.n_pending or holding.private or holding.rows or holding.promised):
            _wrong("a released holding has something that it does not wait for")

    def _check_counts(self) -> None:
        """Users, promises and waiters, from the holdings."""
        users: Counter[Resident] = Counter()
        promises: Counter[Resident] = Counter()
        waiting: Counter[Holding] = Counter()
        for holding in self._holdings:
            users.update([holding.root, *holding.nodes])
            users.update([holding.snapshot] if holding.snapshot is not None else [])
            promises.update(holding.promised)
        residents: list[Resident] = [*self._nodes, *self._snapshots]
        for resident in residents:
            waiting.update(resident.waiters)
            if resident.n_users != users.pop(resident, 0):
                _wrong(f"{resident.n_users} users of a page or row are counted")
            if bool(resident.waiters) != resident.is_loading:
                _wrong("something is loading without anybody, or awaited without loading")
        for node in self._nodes:
            if node.n_promises != promises.pop(node, 0):
                _wrong(f"{node.n_promises} promises of a page are counted")
        if users or promises:
            _wrong("a holding has a page or row that is not in the tree")
        if any(holding.n_pending != waiting.pop(holding, 0) for holding in self._holdings) or waiting:
            _wrong("a holding waits for another number of transfers")

    def _check_duplicates(self) -> None:
        duplicates: Counter[tuple[PrefixNode, Holding]] = Counter()
        for holding in self._holdings:
            duplicates.update((node, holding) for node in holding.nodes if node.depth - 1 in holding.private)
        if duplicates != Counter((node, holding) for node in self._nodes for holding in node.duplicates):
            _wrong("a duplicate is not where it is listed")
        for node in self._nodes:
            if node.duplicates and node.n_users == len(node.duplicates) and not node.n_copies:
                _wrong("a page that nobody reads is kept beside its duplicate")

    # -- residences

    def _check_residence(self, residence: Residence[R], residents: list[R]) -> None:
        """Copies in flight, and who may go."""
        copies: Counter[Resident] = Counter()
        loading: set[Resident] = set()
        for transfer, resident in residence.in_flight.items():
            if (transfer.device_index, transfer.host_index) != (resident.device_id, resident.host_id):
                _wrong("what a transfer reads or writes has moved")
            if transfer.is_offload:
                copies[resident] += 1
            else:
                loading.add(resident)
        if residence is self._pages:
            copies.update(snapshot.node for t, snapshot in self._rows.in_flight.items() if t.is_offload)
        if loading != {resident for resident in residents if resident.is_loading}:
            _wrong("something is loading without a transfer")
        if copies != Counter({resident: resident.n_copies for resident in residents if resident.n_copies}):
            _wrong("copies are miscounted")
        self._check_queues(residence, residents)

    def _check_queues(self, residence: Residence[R], residents: list[R]) -> None:
        idle = {r for r in residents if r.device_id != NOWHERE and r.is_idle}
        leaves = {r for r in idle if not r.n_device_below}
        unsaved = {r for r in leaves if r.host_id == NOWHERE}
        host_leaves = {r for r in residents if r.host_id != NOWHERE and r.is_idle and not r.n_host_below}
        if residence.idle != idle:
            _wrong("the idle residents are miscounted")
        for queue, expected in (
            (residence.unsaved, unsaved),
            (residence.saved, leaves - unsaved),
            (residence.host_leaves, host_leaves),
        ):
            if queue.members() != {(r, r.worth) for r in expected}:
                _wrong("an eviction queue has other members, or at other times")

    def _check_retention(self) -> None:
        """What is kept has contents, is marked, and is counted; nothing else is marked."""
        kept = set(self._retention.kept())
        residents: set[Resident] = {*self._nodes, *self._snapshots}
        if not kept <= residents or kept != {resident for resident in residents if resident.is_kept}:
            _wrong("something is kept that is not in the tree, or marked without being kept")
        if any(not resident.is_somewhere for resident in kept):
            _wrong("something without contents is kept")
        if self._retention.n_pages != sum(isinstance(resident, PrefixNode) for resident in kept):
            _wrong("the kept pages are miscounted")

    def _check_hands(self) -> None:
        device = [node.device_id for node in self._nodes if node.device_id != NOWHERE]
        device += [page_id for holding in self._holdings for page_id in holding.private.values()]
        self._pages.device.check(device)
        self._pages.host.check([node.host_id for node in self._nodes if node.host_id != NOWHERE])
        rows = [snapshot.device_id for snapshot in self._snapshots if snapshot.device_id != NOWHERE]
        rows += [row for holding in self._holdings for row in holding.rows]
        self._rows.device.check(rows)
        self._rows.host.check([snapshot.host_id for snapshot in self._snapshots if snapshot.host_id != NOWHERE])

    def _check_journal(self, journal: Journal) -> None:
        """What it has noted is what a lookup under its key can find, on the device or in host memory."""
        pending = [node for node in self._nodes if node.parent is None and self._tree.key_of(node) == journal.key]
        found: set[PrefixNode] = set()
        while pending:
            children = pending.pop().children.values()
            pending.extend(children)
            found.update(child for child in children if child.is_somewhere)
        if journal.pages != found:
            _wrong(f"{len(journal.pages)} pages are in the journal, {len(found)} in the tree")
