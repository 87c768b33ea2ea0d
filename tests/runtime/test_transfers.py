"""Copies between device and host memory beside compute: they move exactly what they say, in order, out of fixed resources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.cache.transfer import Store, Transfer
from helios.device.stream import Event
from helios.errors import DeviceError, InternalError, OutOfMemoryError
from helios.runtime import transfers as module
from helios.scheduler.request import GenerationRequest, SamplingParameters
from tests.runtime.hand_made import Loaded, Tenant, prepare_tiny

N_PAGES, N_HOST_PAGES, N_HOST_ROWS = 24, 10, 6
GREEDY = SamplingParameters(temperature=0.0)


@pytest.fixture(scope="module")
def core_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_tiny(tmp_path_factory.mktemp("transfers"))


@pytest.fixture
def loaded(core_path: Path) -> Iterator[Loaded]:
    with Loaded(core_path, N_PAGES, n_host_pages=N_HOST_PAGES, n_host_rows=N_HOST_ROWS) as opened:
        yield opened


def offload(store: Store, device_index: int, host_index: int) -> Transfer:
    return Transfer(store, True, device_index, host_index)


def reload(store: Store, device_index: int, host_index: int) -> Transfer:
    return Transfer(store, False, device_index, host_index)


def fill(loaded: Loaded) -> None:
    """Random bytes in every page and row."""
    rng = np.random.default_rng(8)
    for name in ("kv", "continuation"):
        buffer = loaded.runtime._buffers[loaded.contract.buffer_named(name).id]
        loaded.device.upload(buffer.address, rng.integers(0, 256, buffer.size_bytes).astype(np.uint8))


def drain(loaded: Loaded) -> list[Transfer]:
    """Every transfer under way, in the order in which they were reported."""
    finished: list[Transfer] = []
    while loaded.runtime.n_transfers:
        loaded.runtime.wait_transfer()
        finished += loaded.runtime.finished_transfers()
    return finished


def test_pages_and_rows_come_back_to_wherever_they_are_wanted(loaded: Loaded) -> None:
    """CACHE-3: all planes of a page, all views of a row, to host memory and back to another place."""
    fill(loaded)
    pages, rows = [loaded.page(i) for i in range(N_PAGES)], [loaded.row(i) for i in range(12)]
    out = [offload(Store.PAGE, 3, 9), offload(Store.PAGE, 7, 0), offload(Store.ROW, 11, 5), offload(Store.ROW, 0, 0)]
    back = [reload(Store.PAGE, 20, 9), reload(Store.PAGE, 3, 0), reload(Store.ROW, 1, 5), reload(Store.ROW, 11, 0)]
    loaded.runtime.start_transfers(out)
    loaded.runtime.start_transfers(back)
    assert drain(loaded) == out + back
    pages[20], pages[3], rows[1], rows[11] = pages[3], pages[7], rows[11], rows[0]
    assert [loaded.page(i) for i in range(N_PAGES)] == pages
    assert [loaded.row(i) for i in range(12)] == rows


def test_bytes_and_transfers_are_counted(loaded: Loaded) -> None:
    """MET-1: what went to host memory, what came back, and what is under way."""
    contract = loaded.contract
    assert loaded.runtime.statistics()["host_cache_bytes"] == (
        N_HOST_PAGES * contract.page_nbytes + N_HOST_ROWS * contract.row_nbytes
    )
    loaded.runtime.start_transfers([offload(Store.PAGE, 0, 0), offload(Store.ROW, 0, 0)])
    loaded.runtime.start_transfers([reload(Store.PAGE, 1, 0)])
    assert loaded.runtime.statistics()["transfers_in_flight"] == loaded.runtime.n_transfers == 3
    assert len(drain(loaded)) == 3
    statistics = loaded.runtime.statistics()
    assert statistics["transfers_in_flight"] == loaded.runtime.n_transfers == 0
    assert statistics["offload_bytes_total"] == contract.page_nbytes + contract.row_nbytes
    assert statistics["reload_bytes_total"] == contract.page_nbytes


def test_more_transfers_than_events_wait_their_turn(loaded: Loaded) -> None:
    """RT-7: events are reused; order is kept, and nothing is lost."""
    fill(loaded)
    n_transfers = 3 * module.N_EVENTS * module.GROUP_TRANSFERS // 2
    moves = [offload(Store.PAGE, i % N_PAGES, i % N_HOST_PAGES) for i in range(n_transfers)]
    for transfer in moves:
        loaded.runtime.start_transfers([transfer])
    assert drain(loaded) == moves
    loaded.runtime.start_transfers(moves)
    assert drain(loaded) == moves


def test_what_is_under_way_is_not_reported(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """CACHE-6: what a copy reads and writes is nobody else's before it has ended."""
    transfer = offload(Store.PAGE, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Event, "is_done", lambda event: False)
        loaded.runtime.start_transfers([transfer])
        assert loaded.runtime.finished_transfers() == []
    assert drain(loaded) == [transfer]


def test_asking_does_not_wait(loaded: Loaded) -> None:
    assert loaded.runtime.finished_transfers() == []
    with pytest.raises(InternalError, match="no transfer is under way"):
        loaded.runtime.wait_transfer()


def test_nothing_is_allocated_while_serving(loaded: Loaded) -> None:
    """RT-7: neither memory nor threads nor descriptors, whatever is copied and launched."""

    def resources() -> tuple[object, ...]:
        statistics = loaded.device.statistics()
        del statistics["memory_free_bytes"]
        return statistics, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    tenant = Tenant(loaded, 0, GenerationRequest((1, 2, 3), 8, (), GREEDY), [0])
    loaded.run(tenant.prefill())  # the device's threads start with its first launch
    before = resources()
    for i in range(200):
        loaded.runtime.start_transfers([offload(Store.PAGE, 2 + i % 9, i % N_HOST_PAGES)])
    loaded.run(tenant.prefill())
    drain(loaded)
    assert resources() == before


def test_rounds_answer_the_same_while_pages_move(loaded: Loaded) -> None:
    """RT-7: copies of other pages, on their own stream, disturb no round."""

    def answer() -> list[int]:
        tenant = Tenant(loaded, 0, GenerationRequest((5, 6, 7) * 9, 8, (), GREEDY), [0, 1, 2])
        return [
            loaded.run(round_)[0].token for round_ in [tenant.prefill(), *(tenant.decode(27 + i) for i in range(7))]
        ]

    expected = answer()
    loaded.runtime.start_transfers([offload(Store.PAGE, 0, 0), offload(Store.PAGE, 1, 1)])
    loaded.runtime.start_transfers(
        [reload(Store.PAGE, 3 + i % 20, i % N_HOST_PAGES) for i in range(module.GROUP_TRANSFERS * 20)]
    )
    assert answer() == expected
    drain(loaded)


def test_what_has_no_place_in_host_memory_is_refused(core_path: Path) -> None:
    with Loaded(core_path, N_PAGES, n_host_pages=2) as opened:
        for transfer in (offload(Store.ROW, 0, 0), offload(Store.PAGE, 0, 2), reload(Store.PAGE, 0, -1)):
            with pytest.raises(InternalError, match="has no place in host memory"):
                opened.runtime.start_transfers([transfer])


def test_what_is_no_page_of_the_device_is_a_device_error(loaded: Loaded) -> None:
    """A failed copy is a device fault."""
    with pytest.raises(DeviceError, match="cudaMemcpyAsync"):
        loaded.runtime.start_transfers([offload(Store.PAGE, N_PAGES, 0)])


def test_a_host_store_that_does_not_fit_stops_the_start(core_path: Path) -> None:
    """RT-7: the sentence has the numbers, and says which option to lower."""
    with pytest.raises(OutOfMemoryError, match="pages in host memory need") as caught:
        Loaded(core_path, N_PAGES, n_host_pages=1 << 40)
    assert caught.value.hint == "lower --offload-gb"


def test_closing_waits_for_both_streams(core_path: Path) -> None:
    """RT-6: memory stays until the copies that use it have ended; then no thread and no descriptor is left."""

    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    for _ in range(3):
        with Loaded(core_path, N_PAGES, n_host_pages=N_HOST_PAGES, n_host_rows=N_HOST_ROWS) as opened:
            tenant = Tenant(opened, 0, GenerationRequest((1, 2, 3) * 20, 8, (), GREEDY), [0, 1, 2, 3])
            opened.runtime.launch(tenant.prefill())
            opened.runtime.start_transfers([offload(Store.PAGE, 5 + i % 9, i % N_HOST_PAGES) for i in range(2000)])
    assert count() == before
