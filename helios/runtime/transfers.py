"""Copies between the device's cache and host memory, on a stream of their own beside compute.

It knows planes, state rows and pinned memory, nothing of requests. What a transfer reads is immutable and what it writes is nobody
else's until it is reported finished, so the streams need no fence between them. Nothing is allocated after the start: a fixed
number of events marks groups of copies, and what finds no free event waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from helios.cache.transfer import Store, Transfer
from helios.contract.prepared import PreparedContract
from helios.device.cudart import COPY_DEVICE_TO_HOST, COPY_HOST_TO_DEVICE
from helios.device.device import Device
from helios.device.memory import DeviceBuffer, PinnedBuffer
from helios.device.stream import Event
from helios.errors import InternalError, OutOfMemoryError

N_EVENTS = 64
GROUP_TRANSFERS = 16  # of one event: a few megabytes, so that the first pages of a long reload are not known late


@dataclass(frozen=True, slots=True)
class _Part:
    """A plane's share of a page, or a view's share of a state row. Item i is at `address` + i * `stride`."""

    address: int
    stride: int
    nbytes: int
    host_offset: int


@dataclass(frozen=True, slots=True)
class _HostStore:
    """The pinned memory of one kind of item, and where its parts are on the device."""

    memory: PinnedBuffer
    item_nbytes: int
    n_items: int
    parts: tuple[_Part, ...]


class TransferQueue:
    """Owns its stream, host stores and events. Use `start`, and `finished` from time to time; transfers finish in order."""

    def __init__(
        self,
        device: Device,
        contract: PreparedContract,
        buffers: list[DeviceBuffer],
        n_host_pages: int,
        n_host_rows: int,
    ) -> None:
        self._stores = _allocate(device, contract, buffers, {Store.PAGE: n_host_pages, Store.ROW: n_host_rows})
        self._stream = device.new_stream()
        self._free_events = [device.new_event() for _ in range(N_EVENTS)]
        self._queued: deque[Transfer] = deque()
        self._groups: deque[tuple[Event, list[Transfer]]] = deque()
        self._n_unfinished = 0
        self._moved_nbytes = {True: 0, False: 0}  # by whether it went to the host

    @property
    def n_unfinished(self) -> int:
        return self._n_unfinished

    def start(self, transfers: Iterable[Transfer]) -> None:
        """Queue copies. Returns at once."""
        for transfer in transfers:
            store = self._stores.get(transfer.store)
            if store is None or not 0 <= transfer.host_index < store.n_items:
                raise InternalError(f"{transfer} has no place in host memory")
            self._queued.append(transfer)
            self._n_unfinished += 1
        self._submit()

    def finished(self) -> list[Transfer]:
        """The transfers that have finished since the last call. Raises DeviceError when the device failed."""
        finished: list[Transfer] = []
        if not self._groups:
            return finished
        while self._groups and self._groups[0][0].is_done():
            event, group = self._groups.popleft()
            self._free_events.append(event)
            finished += group
        self._n_unfinished -= len(finished)
        for transfer in finished:
            self._moved_nbytes[transfer.is_offload] += self._stores[transfer.store].item_nbytes
        self._submit()
        return finished

    def wait(self) -> None:
        """Block (GIL released) until `finished` has something to report. Raises DeviceError when the device failed."""
        if not self._groups:
            raise InternalError("no transfer is under way")
        self._groups[0][0].synchronize()

    def statistics(self) -> dict[str, int]:
        return {
            "transfers_in_flight": self._n_unfinished,
            "host_cache_bytes": sum(store.memory.size_bytes for store in self._stores.values()),
            "offload_bytes_total": self._moved_nbytes[True],
            "reload_bytes_total": self._moved_nbytes[False],
        }

    def close(self) -> None:
        """Drain the stream, then free what it used."""
        self._stream.close()
        for event in (*self._free_events, *(event for event, _ in self._groups)):
            event.close()
        for store in self._stores.values():
            store.memory.close()

    def _submit(self) -> None:
        while self._queued and self._free_events:
            group = [self._queued.popleft() for _ in range(min(len(self._queued), GROUP_TRANSFERS))]
            for transfer in group:
                self._copy(transfer)
            event = self._free_events.pop()
            event.record(self._stream)
            self._groups.append((event, group))

    def _copy(self, transfer: Transfer) -> None:
        store = self._stores[transfer.store]
        item = store.memory.address + transfer.host_index * store.item_nbytes
        for part in store.parts:
            host, device = item + part.host_offset, part.address + transfer.device_index * part.stride
            if transfer.is_offload:
                self._stream.copy_async(host, device, part.nbytes, COPY_DEVICE_TO_HOST)
            else:
                self._stream.copy_async(device, host, part.nbytes, COPY_HOST_TO_DEVICE)


def _allocate(
    device: Device, contract: PreparedContract, buffers: list[DeviceBuffer], counts: Mapping[Store, int]
) -> dict[Store, _HostStore]:
    """The host stores that are not empty. Raises OutOfMemoryError."""
    parts_by_store = {Store.PAGE: _page_parts(contract, buffers), Store.ROW: _row_parts(contract, buffers)}
    stores: dict[Store, _HostStore] = {}
    for store, parts in parts_by_store.items():
        item_nbytes = sum(part.nbytes for part in parts)
        nbytes = counts[store] * item_nbytes
        if not nbytes:
            continue
        try:
            stores[store] = _HostStore(device.pinned(nbytes), item_nbytes, counts[store], parts)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"{counts[store]:,} {store.value}s in host memory need {nbytes:,} bytes, {device.memory_free_bytes():,} are free",
                hint="lower --offload-gb",
            ) from error
    return stores


def _page_parts(contract: PreparedContract, buffers: list[DeviceBuffer]) -> tuple[_Part, ...]:
    parts, host_offset = [], 0
    for buffer in contract.buffers:
        if buffer.page_nbytes:
            parts.append(_Part(buffers[buffer.id].address, buffer.page_nbytes, buffer.page_nbytes, host_offset))
            host_offset += buffer.page_nbytes
    return tuple(parts)


def _row_parts(contract: PreparedContract, buffers: list[DeviceBuffer]) -> tuple[_Part, ...]:
    """Row 0 is the first that is a snapshot's."""
    parts, host_offset = [], 0
    for view in contract.state_row_views:
        first = buffers[view.buffer_id].address + view.offset + contract.first_snapshot_row * view.row_stride
        parts.append(_Part(first, view.row_stride, view.row_nbytes, host_offset))
        host_offset += view.row_nbytes
    return tuple(parts)
