"""Copies between device and host memory: which are to be started, which are under way, what they take.

It knows transfers as the cache books name them, no bytes. A transfer is reported complete exactly once, and the books hear of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from helios.cache.books import CacheBooks
from helios.cache.transfer import Transfer
from helios.errors import InternalError
from helios.scheduler.costs import CostRecord

# Copies under way above which no write-back is started: their pages are pinned, and a reload would queue up behind them.
MOST_UNDER_WAY = 16


class CopyBook:
    """`wanted` ones are taken by the runtime, then under way until `finish`."""

    def __init__(self, cache: CacheBooks, costs: CostRecord, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._costs = costs
        self._clock = clock
        self._has_host_memory = cache.shape.n_host_pages + cache.shape.n_host_rows > 0
        self._wanted: list[Transfer] = []
        self._under_way: dict[Transfer, float] = {}  # when it was started
        self._reloaded_s = float("-inf")
        self.n_reloads = 0

    @property
    def n_under_way(self) -> int:
        """Copies that will be reported complete, or have yet to be taken."""
        return len(self._under_way) + len(self._wanted)

    def want(self, transfers: Iterable[Transfer]) -> None:
        """Reloads that a sequence waits for."""
        for transfer in transfers:
            self._wanted.append(transfer)
            self.n_reloads += 1

    def take(self) -> list[Transfer]:
        """The copies to start now: those that sequences wait for, then write-backs while few are under way."""
        if not self._has_host_memory:
            return []
        transfers, self._wanted = self._wanted, []
        n_room = MOST_UNDER_WAY - len(transfers) - len(self._under_way)
        if n_room > 0:
            transfers += self._cache.offload(n_room)
        if transfers:
            self._under_way.update(dict.fromkeys(transfers, self._clock()))
        return transfers

    def finish(self, transfer: Transfer) -> None:
        """The copy is complete. Raises InternalError when it was not under way."""
        started_s = self._under_way.pop(transfer, None)
        if started_s is None:
            raise InternalError(f"{transfer} was reported complete and is not under way")
        if not transfer.is_offload:
            self.n_reloads -= 1
            now_s = self._clock()
            self._costs.observe_reload(now_s - max(started_s, self._reloaded_s))
            self._reloaded_s = now_s
        self._cache.finish_transfer(transfer)
