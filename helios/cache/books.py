"""The books of the prefix cache: whose page is it, what does it hold, which may go.

They know token ids and numbers of pages and rows, no device and no clock. A lookup finds only pages whose tokens, under the same
key, were verified to be exactly the asked ones; and every page and row is in exactly one hand, which `check` proves.

A sequence's life in the order of the calls: `lookup`, `open`, `reload` until the holding `is_ready`, `extend` (over the restored
tail too), `attach`, `restore`; then `extend` before and `publish` after each verified round; `release` at the final fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helios.cache.holding import Holding, Match
from helios.cache.transfer import Transfer


def prefix_key(cache_identity: bytes, salt: str, adapter: str, media: Sequence[bytes]) -> bytes:
    """The key of a prefix tree: everything besides the tokens that a page's contents depend on, or that must keep callers apart.
    Every part is length-prefixed, so two different sets of parts never have the same key."""
    raise NotImplementedError


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

    # -- beginning

    def lookup(self, key: bytes, tokens: Sequence[int], n_most: int, *, uses_host: bool = True) -> Match:
        """What can be reused of `tokens`, at most `n_most` of them. Without `uses_host`, only what is on the device (recomputing
        instead of reloading). Pins nothing and changes nothing."""
        raise NotImplementedError

    def open(self, key: bytes, tokens: Sequence[int], match: Match | None, *, is_private: bool = False) -> Holding:
        """Begin a sequence: pin what `match` found (of the same plan call; None: nothing is reused) and promise the other complete
        pages of `tokens` to later lookups. `is_private`: promises nothing and never publishes. Takes no pages; cannot fail."""
        raise NotImplementedError

    def reload(self, holding: Holding) -> list[Transfer] | None:
        """Take pages and rows for the parts of the match that are in host memory: the copies to start now, [] when there are none.
        None, and nothing taken, when pages or rows are short even after eviction. The sequence may start when `is_ready`."""
        raise NotImplementedError

    def attach(self, holding: Holding) -> list[tuple[int, int]]:
        """(page index, page id) of the shared pages that the sequence starts with, for its slot's page table."""
        raise NotImplementedError

    def restore(self, holding: Holding) -> tuple[int, int, int] | None:
        """(row, page index, page id): the reused tail is copied from this row to this private page before the first round; None when
        there is no tail. The page is one that `extend` returned: call it first, beyond `n_reused`. The row stays pinned until the
        first `publish` beyond it."""
        raise NotImplementedError

    # -- running

    def extend(self, holding: Holding, n_positions: int) -> list[tuple[int, int]] | None:
        """Take private pages, evicting as needed, until `n_positions` positions have one: the new (page index, page id). None, and
        nothing taken, when pages are short even after eviction."""
        raise NotImplementedError

    def publish(self, holding: Holding, tokens: Sequence[int], n_committed: int) -> None:
        """After a verified round: complete pages of the first `n_committed` tokens become shared and immutable. `tokens` are the
        sequence's own so far (prompt and output), at least `n_committed` of them. Cheap when no page was completed."""
        raise NotImplementedError

    def reserve_row(self, holding: Holding) -> int | None:
        """A row for a snapshot that the next round will write, evicting as needed; None when there is none. Private to the holding
        until it is published or dropped."""
        raise NotImplementedError

    def publish_snapshot(self, holding: Holding, tokens: Sequence[int], endpoint: int, row: int) -> None:
        """The round that wrote `row` is verified: it holds the state after the first `endpoint` tokens. Publishes the complete pages
        before it too. The row may turn out to be of no use (a duplicate) and is free then."""
        raise NotImplementedError

    def drop_row(self, holding: Holding, row: int) -> None:
        """A reserved row that will not be published; its round, if there was one, is complete."""
        raise NotImplementedError

    def release(self, holding: Holding) -> None:
        """The sequence is over or preempted, and no round in flight touches its pages or rows: unpins, frees what is private, drops
        its promises and reserved rows. While a reload is in flight, what it writes stays taken until the transfer finishes."""
        raise NotImplementedError

    # -- host memory

    def offload(self, n_most: int) -> list[Transfer]:
        """Copies to start in the background, at most `n_most`: least recently used pages and rows that host memory does not have yet,
        when room on the device is low. [] mostly."""
        raise NotImplementedError

    def finish_transfer(self, transfer: Transfer) -> None:
        """The copy is complete, whatever became of the holding that wanted it."""
        raise NotImplementedError

    # -- counts

    @property
    def n_free_pages(self) -> int:
        """Pages in nobody's hand."""
        raise NotImplementedError

    @property
    def n_evictable_pages(self) -> int:
        """Cached pages that no sequence uses: `extend` can have them too."""
        raise NotImplementedError

    def statistics(self) -> dict[str, int]:
        """Name to number, for /metrics; names of counters end in _total."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise InternalError unless every page and row is in exactly one hand, every pin and promise is someone's, and every node is
        reachable. Walks everything: for tests."""
        raise NotImplementedError
