"""Restores and snapshots as the values that the RESTORE and SNAPSHOT programs read.

It knows the messages of a round and the value sources, no destination and no device. The scheduler counts snapshot rows from 0; on
the device they stand behind the rows of the slots (CON-11).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helios.contract.enums import ValueSource
from helios.contract.prepared import PreparedContract
from helios.errors import InternalError
from helios.packing.values import Values, page_entries
from helios.scheduler.round import Restore, Snapshot


class StateValues:
    """Makes the values of a submission that moves state; lane i is restore or snapshot i."""

    def __init__(self, contract: PreparedContract) -> None:
        self._page_tokens = contract.page_tokens
        self._pages_per_slot = contract.pages_per_slot
        self._rows_per_request = contract.state_rows_per_request
        self._first_row = contract.first_snapshot_row
        self._n_rows = contract.n_snapshot_rows

    def of_restores(self, restores: Sequence[Restore]) -> Values:
        """Values of a RESTORE submission: each private page enters its slot's table, then the row is copied into it."""
        for restore in restores:
            if restore.page_index != restore.endpoint // self._page_tokens:
                raise InternalError(f"endpoint {restore.endpoint} is not in page {restore.page_index} of its slot")
        updates = [(restore.slot, restore.page_index, restore.page_id) for restore in restores]
        return {
            **self._of(restores),
            ValueSource.PAGE_TABLE_UPDATE_COUNT: np.array([len(updates)], np.int32),
            ValueSource.PAGE_TABLE_UPDATES: page_entries(updates, self._pages_per_slot),
            ValueSource.RESTORE_SOURCE: self._rows(restores),
        }

    def of_snapshots(self, snapshots: Sequence[Snapshot]) -> Values:
        """Values of a SNAPSHOT submission."""
        return {**self._of(snapshots), ValueSource.SNAPSHOT_DESTINATION: self._rows(snapshots)}

    def _of(self, lanes: Sequence[Restore] | Sequence[Snapshot]) -> Values:
        slots = np.array([lane.slot for lane in lanes], np.int32)
        return {
            ValueSource.LIVE_ROW_COUNT: np.array([len(lanes)], np.int32),
            ValueSource.SLOT: slots,
            ValueSource.LIVE_STATE_ROW: slots * np.int32(self._rows_per_request),
            ValueSource.CONSUMED_ENDPOINT: np.array([lane.endpoint for lane in lanes], np.int32),
        }

    def _rows(self, lanes: Sequence[Restore] | Sequence[Snapshot]) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        for lane in lanes:
            if not 0 <= lane.row < self._n_rows:
                raise InternalError(f"snapshot row {lane.row} does not exist, there are {self._n_rows}")
        return np.array([self._first_row + lane.row for lane in lanes], np.int32)
