"""The programs that set up, restore and save a request's state and compute no token: every recipe captures the same ones (RT-3).

They know the shared surface, no weights and no architecture. What a snapshot cannot share as whole pages lies in a row of the
continuation state; RESTORE and SNAPSHOT copy it into a private page and back, and touch nothing else (CACHE-5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from helios.contract.schema import execution_pb2 as pb
from helios.ignition import state_operations
from helios.ignition.capture import ProgramCapture
from helios.ignition.operations import page_table_update
from helios.ignition.preparation.contract import Surface


def _initialize(program: ProgramCapture, surface: Surface) -> None:
    state_operations.slot_init(program, surface.inputs, surface.state, surface.geometry)


def _restore(program: ProgramCapture, surface: Surface) -> None:
    inputs, state, geometry = surface.inputs, surface.state, surface.geometry
    updates, n_updates = inputs["restore_page_updates"], inputs["restore_n_page_updates"]
    page_table_update(program, updates, n_updates, state.page_table, geometry)
    state_operations.page_restore(program, inputs, state, surface.cache, geometry)


def _snapshot(program: ProgramCapture, surface: Surface) -> None:
    state_operations.page_save(program, surface.inputs, surface.state, surface.cache, surface.geometry)


STATE_PROGRAMS: Mapping[pb.Operation, Callable[[ProgramCapture, Surface], None]] = {
    pb.OPERATION_INITIALIZE: _initialize,
    pb.OPERATION_RESTORE: _restore,
    pb.OPERATION_SNAPSHOT: _snapshot,
}
