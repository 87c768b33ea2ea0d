"""What one sequence holds of the cache, and what a lookup found for it.

It knows tree nodes and page numbers; the rules are those of `CacheBooks`, which alone changes a holding. Page `i` of a sequence is
`private[i]` where it has one, and otherwise the page of `nodes[i]`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache has of a prompt at the moment of the lookup; it pins nothing, so it is good for the current `plan` only.

    `n_tokens` can be reused: whole pages, and then a part of a page when there is a snapshot for it. Of these, `n_host_pages` and
    `n_host_rows` have to come back from host memory first. `n_promised`: tokens of the same prompt that some holding has computed or
    has promised to compute; where it exceeds `n_tokens`, waiting would save work.
    """

    n_tokens: int
    n_host_pages: int
    n_host_rows: int
    n_promised: int


class Holding:
    """One sequence's pages, pins and promises, from `CacheBooks.open` to `CacheBooks.release`."""

    @property
    def n_reused(self) -> int:
        """Tokens of the match that it was opened with: the sequence's first position to compute."""
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Every page and row of the match is on the device: nothing left to reload, no transfer of it in flight."""
        raise NotImplementedError

    @property
    def n_pages(self) -> int:
        """Pages in the sequence's table: shared ones and private ones."""
        raise NotImplementedError
