"""Which cached prefixes are to go last: for each key one beginning of a sequence, within a bound.

It knows keys, contents and a time that it is told, not why something is kept. Kept contents are evicted when nothing else can be,
so they never stand in anybody's way; the bound leaves the larger part of the cache to whoever comes, and the key that was renewed
least recently makes way.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from helios.cache.prefix import PrefixNode, Snapshot
from helios.cache.resident import Resident

KEPT_SHARE = 2  # at most half of the pages: what others publish must have room to be found again


@dataclass(slots=True)
class _Claim:
    """What a key keeps. A dict as a set in order."""

    residents: dict[Resident, None]
    expires_s: float


class Retention:
    """`mark` is told of contents that are kept from now on, or no longer. At most `n_most_pages` pages, and as many keys."""

    def __init__(self, n_most_pages: int, mark: Callable[[Resident, bool], None]) -> None:
        self._n_most_pages = n_most_pages
        self._mark = mark
        self._claims: OrderedDict[str, _Claim] = OrderedDict()  # the least recently renewed first
        self._n_keys: dict[Resident, int] = {}
        self._first_expiry_s = math.inf
        self.n_pages = 0

    def keep(self, key: str, path: Sequence[PrefixNode], snapshot: Snapshot | None, expires_s: float) -> None:
        """From now on `key` keeps this path from the root, as far as the bound allows, and what hangs at its end; nothing else any
        more."""
        kept: dict[Resident, None] = dict.fromkeys(path[: self._n_most_pages])
        if snapshot is not None and len(kept) == len(path):
            kept[snapshot] = None
        for resident in kept:
            self._add(resident)
        self.drop(key)
        if not path or not kept:
            return
        self._claims[key] = _Claim(kept, expires_s)
        self._first_expiry_s = min(self._first_expiry_s, expires_s)
        while self.n_pages > self._n_most_pages or len(self._claims) > self._n_most_pages:
            self.drop(next(iter(self._claims)))

    def drop(self, key: str) -> None:
        """`key` keeps nothing."""
        claim = self._claims.pop(key, None)
        for resident in claim.residents if claim is not None else ():
            self._remove(resident)

    def expire(self, now_s: float) -> None:
        """Drop what was to be kept up to now."""
        if now_s < self._first_expiry_s:
            return
        for key in [key for key, claim in self._claims.items() if claim.expires_s <= now_s]:
            self.drop(key)
        self._first_expiry_s = min((claim.expires_s for claim in self._claims.values()), default=math.inf)

    def forget(self, resident: Resident) -> None:
        """It has lost its contents."""
        if resident not in self._n_keys:
            return
        for key, claim in list(self._claims.items()):
            if resident in claim.residents:
                del claim.residents[resident]
                self._remove(resident)
            if not claim.residents:
                del self._claims[key]

    def kept(self) -> Iterator[Resident]:
        """Everything that is kept, as often as a key keeps it; for audits."""
        for claim in self._claims.values():
            yield from claim.residents

    def _add(self, resident: Resident) -> None:
        n_keys = self._n_keys.get(resident, 0)
        self._n_keys[resident] = n_keys + 1
        if not n_keys:
            self.n_pages += isinstance(resident, PrefixNode)
            self._mark(resident, True)

    def _remove(self, resident: Resident) -> None:
        self._n_keys[resident] -= 1
        if not self._n_keys[resident]:
            del self._n_keys[resident]
            self.n_pages -= isinstance(resident, PrefixNode)
            self._mark(resident, False)
