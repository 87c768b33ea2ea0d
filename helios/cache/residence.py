"""A store on the device and its extension in host memory: who lives where, who may go, what is being copied.

It knows residents (pages or snapshot rows alike), no tokens and no sequences. Free ids go first; then contents that host memory has
too; then the least recently used contents, which are lost; and in the same order what is to be kept, when nothing else is left.
What a transfer reads or writes stays where it is until it is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from helios.cache.eviction import EvictionQueue, R
from helios.cache.free_list import FreeList
from helios.cache.resident import NOWHERE
from helios.cache.transfer import Store, Transfer
from helios.errors import InternalError

LOW_ROOM_SHARE = 4  # less than a quarter of the device free: time to save what would be lost


class Residence(Generic[R]):
    """One kind of residents. `lose` is called with a resident that has just lost its last copy; before it, and for one that is
    discarded, `forget`."""

    def __init__(
        self, store: Store, n_device: int, n_host: int, lose: Callable[[R], None], forget: Callable[[R], None]
    ) -> None:
        self.store = store
        self.device = FreeList(n_device, store.value)
        self.host = FreeList(n_host, f"host {store.value}")
        self.unsaved: EvictionQueue[R] = EvictionQueue()  # on the device only: lost when evicted
        self.saved: EvictionQueue[R] = EvictionQueue()  # on the device and in host memory
        self.host_leaves: EvictionQueue[R] = EvictionQueue()
        self.in_flight: dict[Transfer, R] = {}
        self.n_evicted = 0
        self.n_saved = 0
        self.n_loaded = 0
        self.idle: set[R] = set()  # on the device, missed by nobody but later lookups
        self._lose = lose
        self._forget = forget

    # -- users

    def pin(self, resident: R, now: int) -> None:
        """One more holding needs it."""
        resident.n_users += 1
        resident.last_use = now
        if resident.n_users == 1:
            self.refile(resident)

    def unpin(self, resident: R, now: int) -> None:
        resident.n_users -= 1
        resident.last_use = now
        if not resident.n_users:
            self.refile(resident)

    def touch(self, resident: R, now: int) -> None:
        """It was of use, though nobody pinned it."""
        self._take_out(resident)
        resident.last_use = now
        self.refile(resident)

    def mark(self, resident: R, is_kept: bool) -> None:
        """It goes after everything that is not kept, or no longer does."""
        self._take_out(resident)
        resident.is_kept = is_kept
        self.refile(resident)

    def hold(self, resident: R) -> None:
        """A transfer reads it, or needs it to stay."""
        resident.n_copies += 1
        self.refile(resident)

    def unhold(self, resident: R) -> None:
        resident.n_copies -= 1
        self.refile(resident)

    def _take_out(self, resident: R) -> None:
        for queue in (self.unsaved, self.saved, self.host_leaves):
            queue.place(resident, False)

    def refile(self, resident: R) -> None:
        """Put it where it belongs after anything about it has changed."""
        is_saved = resident.host_id != NOWHERE
        is_idle_here = resident.is_idle and resident.device_id != NOWHERE
        if is_idle_here:
            self.idle.add(resident)
        else:
            self.idle.discard(resident)
        is_leaf = is_idle_here and not resident.n_device_below
        self.unsaved.place(resident, is_leaf and not is_saved)
        self.saved.place(resident, is_leaf and is_saved)
        self.host_leaves.place(resident, is_saved and resident.is_idle and not resident.n_host_below)

    # -- the device

    @property
    def n_idle(self) -> int:
        """Residents on the device that only later lookups would miss."""
        return len(self.idle)

    def make_room(self, n_ids: int) -> bool:
        """Evict until `n_ids` are free. False, mostly with nothing evicted, when that cannot be."""
        if n_ids > self.device.n_free + self.n_idle:
            return False
        while self.device.n_free < n_ids:
            resident = self._next_to_go()
            if resident is None:
                return False
            self.evict(resident)
        return True

    def _next_to_go(self) -> R | None:
        """What host memory has too, before what would be lost; what is kept, after both."""
        saved, unsaved = self.saved.oldest(), self.unsaved.oldest()
        if saved is not None and (unsaved is None or unsaved.is_kept or not saved.is_kept):
            return saved
        return unsaved

    def settle(self, resident: R, device_id: int) -> None:
        """It lives at `device_id` from now on."""
        resident.device_id = device_id
        if resident.parent is not None:
            resident.parent.n_device_below += 1
            self.refile(resident.parent)
        self.refile(resident)

    def evict(self, resident: R) -> None:
        """It leaves the device."""
        self.device.release(resident.device_id)
        resident.device_id = NOWHERE
        self.n_evicted += 1
        if resident.parent is not None:
            resident.parent.n_device_below -= 1
            self.refile(resident.parent)
        self._left(resident)

    def _left(self, resident: R) -> None:
        self.refile(resident)
        if not resident.is_somewhere:
            self._forget(resident)
            self._lose(resident)

    # -- host memory

    def worth_saving(self, n_most: int) -> list[R]:
        """When room on the device is low: up to `n_most` of those that are lost next, the first one first."""
        is_low = self.device.n_free * LOW_ROOM_SHARE < self.device.n_ids
        return self.unsaved.first(n_most) if is_low and self.host.n_ids else []

    def save(self, resident: R) -> Transfer | None:
        """Copy it to host memory; what is worth less makes room there. None when there is no such room."""
        if not self.host.n_free and not self._make_host_room(resident.worth):
            return None
        resident.host_id = self.host.take()
        if resident.parent is not None:
            resident.parent.n_host_below += 1
            self.refile(resident.parent)
        self.hold(resident)
        self.n_saved += 1
        return self._start(resident, is_offload=True)

    def load(self, resident: R) -> Transfer:
        """Copy it back to a free id."""
        self.settle(resident, self.device.take())
        resident.is_loading = True
        self.n_loaded += 1
        return self._start(resident, is_offload=False)

    def finish(self, transfer: Transfer) -> R:
        """The copy is complete: the resident that it was of."""
        resident = self.in_flight.pop(transfer, None)
        if resident is None:
            raise InternalError(f"{transfer} was finished and is not in flight")
        if transfer.is_offload:
            self.unhold(resident)
        else:
            resident.is_loading = False
        return resident

    def discard(self, resident: R) -> None:
        """It goes away from everywhere, without being missed."""
        if resident.device_id != NOWHERE:
            self.device.release(resident.device_id)
        if resident.host_id != NOWHERE:
            self.host.release(resident.host_id)
        resident.device_id = resident.host_id = NOWHERE
        self._forget(resident)
        self.refile(resident)

    def _start(self, resident: R, *, is_offload: bool) -> Transfer:
        transfer = Transfer(self.store, is_offload, resident.device_id, resident.host_id)
        self.in_flight[transfer] = resident
        return transfer

    def _make_host_room(self, worth: tuple[bool, int]) -> bool:
        resident = self.host_leaves.oldest()
        if resident is None or resident.worth >= worth:
            return False
        self.host.release(resident.host_id)
        resident.host_id = NOWHERE
        if resident.parent is not None:
            resident.parent.n_host_below -= 1
            self.refile(resident.parent)
        self._left(resident)
        return True
