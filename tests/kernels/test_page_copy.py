"""page_save and page_restore: partial pages to rows of state and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.kernels.harness import REFUSED, Library, int32, on_every_target

N_SLOTS, PAGES_PER_SLOT, N_PAGES, N_ROWS, CAPACITY = 3, 4, 14, 5, 6
PAGE_NBYTES = 3 * 65536 + 1000  # four parts, the last one short
PAGE_STRIDE, ROW_STRIDE = PAGE_NBYTES + 96, PAGE_NBYTES + 32
SCALARS = {
    "lanes_capacity": CAPACITY,
    "n_slots": N_SLOTS,
    "pages_per_slot": PAGES_PER_SLOT,
    "n_pages": N_PAGES,
    "page_stride": PAGE_STRIDE,
    "page_nbytes": PAGE_NBYTES,
    "n_rows": N_ROWS,
    "row_stride": ROW_STRIDE,
}


@dataclass(frozen=True)
class Copy:
    """One lane: the slot's page at `endpoint`, and a row."""

    slot: int
    endpoint: int
    row: int


class Memory:
    """Random pages and rows. Page ids of slot s are 4*s + 1 and on, in reverse."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self.kv = rng.integers(0, 256, (N_PAGES, PAGE_STRIDE)).astype(np.uint8)
        self.rows = rng.integers(0, 256, (N_ROWS, ROW_STRIDE)).astype(np.uint8)
        ids = np.arange(1, 1 + N_SLOTS * PAGES_PER_SLOT, dtype=np.int32).reshape(N_SLOTS, PAGES_PER_SLOT)
        self.page_table = np.ascontiguousarray(ids[:, ::-1])

    def launch(
        self, library: Library, name: str, *lanes: Copy, n_lanes: int | None = None, order: str = "serial"
    ) -> int:
        columns = np.full((3, CAPACITY), -9, np.int32)
        columns[:, : len(lanes)] = np.array([(lane.slot, lane.endpoint, lane.row) for lane in lanes]).reshape(-1, 3).T
        return library[name].launch(
            order=order,
            n_lanes=int32(len(lanes) if n_lanes is None else n_lanes),
            lane_slot=columns[0],
            lane_endpoint=columns[1],
            lane_row=columns[2],
            page_table=self.page_table,
            kv=self.kv.reshape(-1)[: (N_PAGES - 1) * PAGE_STRIDE + PAGE_NBYTES],
            rows=self.rows.reshape(-1)[: (N_ROWS - 1) * ROW_STRIDE + PAGE_NBYTES],
            **SCALARS,
        )

    def page_of(self, lane: Copy) -> int:
        return int(self.page_table[lane.slot, lane.endpoint // 16])


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_a_saved_page_is_the_page_and_nothing_else_changes(library: Library, order: str) -> None:
    """CACHE-5: a snapshot's partial page lives in a row."""
    memory, before = Memory(), Memory()
    lanes = [Copy(0, 1, 4), Copy(2, 63, 0), Copy(1, 47, 2)]
    n_tasks = memory.launch(library, "page_save.1", *lanes, order=order)
    assert n_tasks == len(lanes) * 4 or not library.counts_tasks
    for lane in lanes:
        assert (memory.rows[lane.row, :PAGE_NBYTES] == before.kv[memory.page_of(lane), :PAGE_NBYTES]).all()
        before.rows[lane.row, :PAGE_NBYTES] = memory.rows[lane.row, :PAGE_NBYTES]
    assert (memory.rows == before.rows).all()
    assert (memory.kv == before.kv).all()


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_a_restored_page_is_the_row_and_nothing_else_changes(library: Library, order: str) -> None:
    """CACHE-5: restore copies the row into the slot's private page; one row may go to several slots."""
    memory, before = Memory(), Memory()
    lanes = [Copy(0, 17, 3), Copy(2, 5, 3), Copy(1, 33, 1)]
    memory.launch(library, "page_restore.1", *lanes, order=order)
    for lane in lanes:
        page = memory.page_of(lane)
        assert (memory.kv[page, :PAGE_NBYTES] == before.rows[lane.row, :PAGE_NBYTES]).all()
        before.kv[page, :PAGE_NBYTES] = memory.kv[page, :PAGE_NBYTES]
    assert (memory.kv == before.kv).all()
    assert (memory.rows == before.rows).all()


SKIPPED = [
    Copy(0, 0, 0),  # nothing partial: its page may be no page of the slot
    Copy(0, 32, 0),
    Copy(0, -1, 0),
    Copy(0, -(2**31), 0),
    Copy(0, PAGES_PER_SLOT * 16 + 1, 0),
    Copy(0, 2**31 - 1, 0),
    Copy(-1, 1, 0),
    Copy(N_SLOTS, 1, 0),
    Copy(0, 1, -1),
    Copy(0, 1, N_ROWS),
    Copy(0, 1, 2**31 - 1),
    Copy(2, 17, 0),  # its page id is N_PAGES
    Copy(2, 33, 0),  # its page id is negative
]


@on_every_target
@pytest.mark.parametrize("name", ["page_save.1", "page_restore.1"])
@pytest.mark.parametrize("skipped", SKIPPED)
def test_a_lane_without_a_page_or_a_row_is_skipped(library: Library, name: str, skipped: Copy) -> None:
    memory, before = Memory(), Memory()
    memory.page_table[2, 1], memory.page_table[2, 2] = N_PAGES, -1
    memory.launch(library, name, skipped)
    assert (memory.kv == before.kv).all()
    assert (memory.rows == before.rows).all()
    memory.launch(library, name, skipped, Copy(1, 9, 2))  # and the lane behind it is not
    assert (memory.kv != before.kv).any() != (memory.rows != before.rows).any()


@on_every_target
@pytest.mark.parametrize(("n_lanes", "n_tasks"), [(0, 0), (-1, 0), (-(2**31), 0), (2**31 - 1, CAPACITY * 4)])
def test_the_lane_count_is_clamped(library: Library, n_lanes: int, n_tasks: int) -> None:
    given = Memory().launch(library, "page_save.1", n_lanes=n_lanes)
    assert given == n_tasks or not library.counts_tasks


@on_every_target
@pytest.mark.parametrize("name", ["page_save.1", "page_restore.1"])
def test_senseless_scalars_are_refused(library: Library, name: str) -> None:
    def refuses(**changed: int) -> bool:
        return set(library[name].extents(**SCALARS | changed).values()) == {REFUSED}

    assert not refuses()
    assert all(refuses(**{field: value}) for field in SCALARS for value in (0, -1, -(2**31)))
    assert refuses(page_stride=PAGE_NBYTES - 1)
    assert refuses(row_stride=PAGE_NBYTES - 1)
    assert refuses(page_nbytes=2**40, page_stride=2**41, row_stride=2**41)
    assert library[name].extents(**SCALARS | {"n_pages": 2**31 - 1, "page_stride": 2**62})["kv"] == REFUSED
    assert library[name].extents(**SCALARS | {"n_rows": 2**31 - 1, "row_stride": 2**62})["rows"] == REFUSED
