"""What one sequence holds of the cache, and what a lookup found for it.

It knows tree nodes and page numbers; the rules are those of `CacheBooks`, which alone changes a holding. Page `i` of a sequence is
`private[i]` where it has one, and otherwise the page of `nodes[i]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.cache.prefix import PrefixNode, Snapshot
from helios.cache.resident import NOWHERE


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache has of a prompt at the moment of the lookup; it pins nothing, so it is good for the current `plan` only.

    `n_tokens` can be reused: whole pages, and then a part of a page when there is a snapshot for it. Of these, `n_host_pages` and
    `n_host_rows` have to come back from host memory first. `n_promised`: tokens of the same prompt that holdings have computed or
    have promised to compute; where it exceeds `n_tokens`, waiting would save work.
    """

    n_tokens: int
    n_host_pages: int
    n_host_rows: int
    n_promised: int
    nodes: tuple[PrefixNode, ...] = ()
    snapshot: Snapshot | None = None
    awaited: PrefixNode | None = None

    @property
    def is_worth_waiting(self) -> bool:
        """The promise still stands and is not kept yet. Cheap, and good at any later time: while it is true, there is no need to
        look up again."""
        awaited = self.awaited
        return awaited is not None and awaited.n_promises > 0 and awaited.device_id == NOWHERE


NO_MATCH = Match(0, 0, 0, 0)


class Holding:
    """One sequence's pages, pins and promises, from `CacheBooks.open` to `CacheBooks.release`."""

    __slots__ = (
        "is_private",
        "is_released",
        "is_reloaded",
        "n_matched_nodes",
        "n_pages",
        "n_pending",
        "n_reused",
        "next_publication",
        "nodes",
        "private",
        "promised",
        "root",
        "rows",
        "snapshot",
    )

    def __init__(self, root: PrefixNode, match: Match, *, is_private: bool) -> None:
        self.root = root
        self.is_private = is_private
        self.is_released = False
        self.is_reloaded = not match.nodes and match.snapshot is None  # or all that was missing is on its way
        self.nodes = list(match.nodes)  # pinned: the pages that it shares, or has a duplicate of
        self.n_matched_nodes = len(match.nodes)
        self.promised: list[PrefixNode] = []  # in reverse order: the next page is the last of them
        self.snapshot = match.snapshot  # pinned until the tail has been restored
        self.private: dict[int, int] = {}  # page index -> page id
        self.rows: set[int] = set()  # reserved, not yet published
        self.n_pages = len(match.nodes)  # in the sequence's table, shared or private
        self.n_reused = match.n_tokens  # the first position that the sequence computes
        self.n_pending = 0  # transfers that it waits for
        self.next_publication = 0  # number of tokens at which `publish` has something to do

    @property
    def node(self) -> PrefixNode:
        """The deepest published one."""
        return self.nodes[-1] if self.nodes else self.root

    @property
    def is_ready(self) -> bool:
        """Every page and row of the match is on the device: nothing left to reload, no transfer of it in flight."""
        return self.is_reloaded and not self.n_pending
