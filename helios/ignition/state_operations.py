"""The named operations of programs that compute no token: a slot's rows are set up, its partial page is saved or restored.

It knows argument lists (`cuda_src/kernels.h` is the reference), nothing of models; `operations.py` has the operations of tokens.
"""

from __future__ import annotations

from helios.ignition.capture import PAGE_COUNT, ProgramCapture, Tensor
from helios.ignition.operands import Inputs, State
from helios.ignition.preparation.geometry import ServingGeometry


def slot_init(program: ProgramCapture, inputs: Inputs, state: State, geometry: ServingGeometry) -> None:
    program.launch(
        "slot_init.1",
        n_lanes=inputs["admission_n_lanes"],
        lane_slot=inputs["admission_lane_slot"],
        lane_generation=inputs["admission_lane_generation"],
        lane_position=inputs["admission_lane_position"],
        staged_sampling=inputs["admission_sampling"],
        staged_bias=inputs["admission_bias"],
        staged_histogram=inputs["admission_histogram"],
        requests=state.requests,
        sampling=state.sampling,
        bias=state.bias,
        histogram=state.histogram,
        lanes_capacity=program.batch_capacity,
        n_slots=geometry.concurrency,
        vocabulary=geometry.vocabulary,
    )


def page_save(program: ProgramCapture, inputs: Inputs, state: State, kv: Tensor, geometry: ServingGeometry) -> None:
    """The partial page of each lane's slot goes to its snapshot row."""
    _page_copy(program, "page_save.1", "snapshot", inputs, state, kv, geometry)


def page_restore(program: ProgramCapture, inputs: Inputs, state: State, kv: Tensor, geometry: ServingGeometry) -> None:
    """Each lane's snapshot row goes to the page that its slot's table has at the endpoint."""
    _page_copy(program, "page_restore.1", "restore", inputs, state, kv, geometry)


def _page_copy(
    program: ProgramCapture,
    kernel: str,
    prefix: str,
    inputs: Inputs,
    state: State,
    kv: Tensor,
    geometry: ServingGeometry,
) -> None:
    program.launch(
        kernel,
        n_lanes=inputs[f"{prefix}_n_lanes"],
        lane_slot=inputs[f"{prefix}_lane_slot"],
        lane_endpoint=inputs[f"{prefix}_lane_endpoint"],
        lane_row=inputs[f"{prefix}_lane_row"],
        page_table=state.page_table,
        kv=kv,
        rows=state.continuation,
        lanes_capacity=program.batch_capacity,
        n_slots=geometry.concurrency,
        pages_per_slot=geometry.pages_per_slot,
        n_pages=PAGE_COUNT,
        page_stride=kv.nbytes,
        page_nbytes=kv.nbytes,
        n_rows=geometry.n_state_rows,
        row_stride=kv.nbytes,
    )
