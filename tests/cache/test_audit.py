"""Planted faults: each promise of the books, broken once, is noticed by `check`."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from helios.cache.books import CacheBooks, CacheShape, prefix_key
from helios.cache.holding import NO_MATCH, Holding
from helios.cache.prefix import PrefixNode, Snapshot
from helios.cache.resident import NOWHERE
from helios.errors import InternalError

SIZE = 4
KEY = prefix_key(b"model", "", "", [])
SHARED = tuple(range(2 * SIZE))


class Scene:
    """Books with one of everything: pages and rows used, idle, promised, duplicate, in host memory, coming and going."""

    def __init__(self) -> None:
        self.books = CacheBooks(CacheShape(SIZE, n_pages=18, n_rows=4, n_host_pages=8, n_host_rows=4))
        past = self.open((50, 51, 52, 53, 1), n_published=5)
        self.save(past, (50, 51, 52, 53, 1))
        self.books.release(past)
        self.crowd_out()  # that page is in host memory only, its row on the device
        self.reader = self.open((*SHARED, 1, 2), n_published=2 * SIZE + 2)
        self.save(self.reader, (*SHARED, 1, 2))
        self.twin = self.books.open(KEY, SHARED, None)
        assert self.books.extend(self.twin, 2 * SIZE)
        self.books.publish(self.twin, SHARED, SIZE)  # a duplicate of the first page, a promise of the second
        idle = self.open((*SHARED, *range(30, 30 + SIZE)), n_published=3 * SIZE)
        self.books.release(idle)
        self.reserved_row = self.books.reserve_row(self.reader)
        self.loader = self.books.open(KEY, (50, 51, 52, 53, 9), self.books.lookup(KEY, (50, 51, 52, 53, 9), 4))
        assert len(self.books.reload(self.loader) or []) == 1
        self.root = self.reader.root
        self.first, self.second = self.reader.nodes
        self.books.retain(self.reader, "session", SIZE, math.inf)
        self.idle = self.second.children[tuple(range(30, 30 + SIZE))]
        self.loading = self.loader.nodes[0]
        self.snapshot = self.second.snapshots[0]
        self.books.check()

    def open(self, tokens: tuple[int, ...], n_published: int) -> Holding:
        holding = self.books.open(KEY, tokens, self.books.lookup(KEY, tokens, len(tokens)))
        assert self.books.reload(holding) == []
        assert self.books.extend(holding, len(tokens) + 1) is not None
        self.books.publish(holding, tokens, n_published)
        return holding

    def save(self, holding: Holding, tokens: tuple[int, ...]) -> None:
        row = self.books.reserve_row(holding)
        assert row is not None
        self.books.publish_snapshot(holding, tokens, len(tokens), row)

    def crowd_out(self) -> None:
        crowd = self.books.open(KEY, (9,), None)
        assert self.books.extend(crowd, 17 * SIZE)
        for transfer in self.books.offload(4):
            self.books.finish_transfer(transfer)
        assert self.books.extend(crowd, 18 * SIZE)
        self.books.release(crowd)


def _add_node(scene: Scene) -> None:
    scene.root.children[(7,) * SIZE] = PrefixNode(scene.root, (7,) * SIZE, 0)


def _add_short_node(scene: Scene) -> None:
    node = PrefixNode(scene.second, (7,), 0)
    node.n_promises = 1
    scene.second.children[(7,)] = node


def _add_snapshot(scene: Scene, tail: tuple[int, ...], row: int) -> None:
    snapshot = Snapshot(scene.second, tail, 0)
    scene.second.snapshots.append(snapshot)
    scene.books._rows.settle(snapshot, row)


def _set(name: str, field: str, value: object) -> Callable[[Scene], None]:
    return lambda scene: setattr(getattr(scene, name), field, value)


def _add(name: str, field: str, difference: int = 1) -> Callable[[Scene], None]:
    def plant(scene: Scene) -> None:
        owner = getattr(scene, name)
        setattr(owner, field, getattr(owner, field) + difference)

    return plant


def _move_copy(scene: Scene) -> None:
    scene.loading.host_id = 1 - scene.loading.host_id


FAULTS: dict[str, tuple[Callable[[Scene], object], str]] = {
    "a node nobody needs": (_add_node, "of no use"),
    "a node of too few tokens": (_add_short_node, "a node of 1 tokens"),
    "a root with a page": (_set("root", "device_id", 17), "root is no page"),
    "a child under other tokens": (_set("idle", "tokens", (0,) * SIZE), "not its parent's child"),
    "a wrong depth": (_add("idle", "depth"), "not its parent's child"),
    "an unreachable child": (lambda s: s.first.children.clear(), "miscounts its children"),
    "children miscounted on the device": (_add("first", "n_device_below"), "miscounts its children"),
    "children miscounted in host memory": (_add("first", "n_host_below"), "miscounts its children"),
    "a page missing between others": (_set("first", "device_id", NOWHERE), "miscounts|missing between"),
    "too many snapshots": (lambda s: [_add_snapshot(s, (i, i), 3) for i in range(5)], "has 6 snapshots"),
    "two snapshots of one tail": (lambda s: _add_snapshot(s, (1, 2), 3), "two of the same tail"),
    "a snapshot of a whole page": (lambda s: _add_snapshot(s, (1,) * SIZE, 3), "of a whole page"),
    "a snapshot without a tail": (lambda s: _add_snapshot(s, (), 3), "without a tail"),
    "a snapshot without a row": (_set("snapshot", "device_id", NOWHERE), "without a row"),
    "a snapshot at another node": (lambda s: setattr(s.snapshot, "node", s.first), "without a page"),
    "pages of a holding out of order": (lambda s: s.reader.nodes.reverse(), "do not follow"),
    "a holding under a foreign root": (
        lambda s: setattr(s.loader, "root", PrefixNode(None, (), 0)),
        "do not follow|not in the tree",
    ),
    "a holding of another tree": (
        lambda s: s.books._holdings.add(Holding(PrefixNode(None, (), 0), NO_MATCH, is_private=True)),
        "not in the tree",
    ),
    "a holding that lacks a page": (lambda s: s.reader.private.clear(), "lacks some"),
    "a holding that is ready too early": (_set("loader", "n_pending", 0), "ready before"),
    "a snapshot behind other pages": (lambda s: setattr(s.reader, "snapshot", s.snapshot), "not behind its pages"),
    "a released holding with pages": (_set("reader", "is_released", True), "does not wait for"),
    "a pin too many": (_add("idle", "n_users"), "1 users"),
    "a pin too few": (_add("second", "n_users", -1), "users"),
    "a pin of a snapshot too many": (_add("snapshot", "n_users"), "1 users"),
    "a promise too many": (_add("idle", "n_promises"), "1 promises"),
    "a promise too few": (_add("second", "n_promises", -1), "0 promises"),
    "a forgotten holding": (lambda s: s.books._holdings.remove(s.reader), "users"),
    "a waiter forgotten": (lambda s: s.loading.waiters.clear(), "without anybody"),
    "a waiter too many": (lambda s: s.loading.waiters.append(s.reader), "another number of transfers"),
    "a duplicate forgotten": (lambda s: s.first.duplicates.clear(), "not where it is listed"),
    "a duplicate that is none": (lambda s: s.second.duplicates.append(s.reader), "not where it is listed"),
    "a duplicate kept for nobody": (
        lambda s: (s.books._holdings.remove(s.reader), s.books._pages.unpin(s.first, 99), s.books._pages.unpin(s.second, 99),
                   s.books._pages.unpin(s.root, 99)),
        "beside its duplicate",
    ),
    "a copy that moved": (_move_copy, "has moved"),
    "a copy too many": (_add("idle", "n_copies"), "copies are miscounted"),
    "a load without a transfer": (lambda s: s.books._pages.in_flight.clear(), "without a transfer"),
    "an idle page uncounted": (lambda s: s.books._pages.idle.clear(), "idle residents"),
    "a leaf that is never evicted": (lambda s: s.books._pages.unsaved.place(s.idle, False), "other members"),
    "a page in use in the queue": (lambda s: s.books._pages.unsaved.place(s.first, True), "other members"),
    "a last use changed in the queue": (_add("idle", "last_use"), "at other times"),
    "a page kept and not marked": (lambda s: s.books._pages.mark(s.first, False), "marked without being kept"),
    "a page marked and not kept": (lambda s: s.books._pages.mark(s.idle, True), "marked without being kept"),
    "kept pages miscounted": (lambda s: setattr(s.books._retention, "n_pages", 7), "kept pages are miscounted"),
    "a page in two hands": (lambda s: s.twin.private.update({0: s.idle.device_id}), "18 pages"),
    "a page in no hand": (lambda s: s.books._pages.device.take(), "18 pages"),
    "a page free and in a hand": (lambda s: s.books._pages.device.release(s.idle.device_id), "18 pages"),
    "a row in no hand": (lambda s: s.reader.rows.clear(), "4 rows"),
    "a host page in no hand": (lambda s: s.books._pages.host.take(), "8 host pages"),
    "a host row in no hand": (lambda s: s.books._rows.host.take(), "4 host rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name: str) -> None:
    """CACHE-3, CACHE-6: an audit that cannot fail would prove nothing."""
    scene = Scene()
    plant, message = FAULTS[name]
    plant(scene)
    with pytest.raises(InternalError, match=message):
        scene.books.check()
