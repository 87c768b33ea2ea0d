"""The shared declarations: sizes agree with the header, and what recipes declare passes every contract rule."""

from __future__ import annotations

import pytest

from helios.contract.schema import execution_pb2 as pb
from helios.ignition.capture import Capture
from helios.ignition.preparation import geometry
from helios.ignition.preparation.contract import declare_surface
from helios.ignition.preparation.geometry import ServingGeometry, program_shapes
from tests.ignition.kernel_header import HEADER, constant, host_target


def test_sizes_are_those_of_the_kernel_header() -> None:
    candidates = constant("HELIOS_MAX_CANDIDATES")
    assert constant("HELIOS_PAGE_TOKENS") == geometry.PAGE_TOKENS
    assert constant("HELIOS_SEGMENT") == geometry.SEGMENT_TOKENS
    assert constant("HELIOS_MAX_BIAS") == geometry.MAX_BIAS
    assert candidates == geometry.MAX_CANDIDATES
    assert 16 + 8 * candidates == geometry.SAMPLE_NBYTES
    assert 64 + 8 * candidates == geometry.COMPLETION_LANE_NBYTES
    header = HEADER.read_text()
    assert f"sizeof(HeliosSamplingRow) == {geometry.SAMPLING_ROW_NBYTES}" in header
    assert f"sizeof(HeliosRequestRow) == {geometry.REQUEST_ROW_NBYTES}" in header
    assert f"sizeof(HeliosCompletionHeader) == {geometry.COMPLETION_HEADER_NBYTES}" in header
    assert f"sizeof(HeliosCompletionLane) == {geometry.COMPLETION_LANE_NBYTES}" in header


def surface_of(concurrency: int = 32) -> pb.ExecutionManifest:
    capture = Capture(host_target())
    declare_surface(capture, ServingGeometry(1000, concurrency, 512, 261), 4096)
    return capture.manifest()


def test_destinations_stand_apart_in_ascending_order_within_their_buffer() -> None:
    manifest = surface_of()
    ends = {buffer.id: 0 for buffer in manifest.buffers}
    for destination in manifest.destinations:
        assert destination.offset >= ends[destination.buffer]
        ends[destination.buffer] = destination.offset + 4 * destination.count
        assert ends[destination.buffer] <= manifest.buffers[destination.buffer].nbytes


def test_what_every_round_stages_comes_before_what_few_rounds_stage() -> None:
    names = [destination.name for destination in surface_of().destinations]
    rounds = names[: names.index("admission_n_lanes")]
    assert rounds[:3] == ["n_lanes", "n_page_updates", "submission"]
    assert rounds[-4:] == ["prompt_tokens", "page_updates", "mask", "scored_targets"]
    admission = [name for name in names if name.startswith("admission")]
    assert admission[-2:] == ["admission_bias", "admission_histogram"]
    restore = [name for name in names if name.startswith("restore")]
    assert restore[-1] == "restore_page_updates"


def test_the_programs_of_one_submission_are_staged_in_buffers_of_their_own() -> None:
    """RT-7: all of them are packed before the first of them runs."""
    manifest = surface_of()
    buffers = {}
    for destination in manifest.destinations:
        name = destination.name.split("_")[0]
        group = name if name in ("admission", "restore", "snapshot") else "inputs"
        buffers.setdefault(group, set()).add(manifest.buffers[destination.buffer].name)
    assert buffers == {name: {name} for name in ("inputs", "admission", "restore", "snapshot")}


def test_state_rows_are_those_of_the_slots_and_those_of_snapshots() -> None:
    """CON-11."""
    sizes = ServingGeometry(1000, 6, 512, 261)
    assert (sizes.n_snapshot_rows, sizes.n_state_rows) == (24, 30)


@pytest.mark.parametrize(("concurrency", "prefill"), [(1, 64), (1, 512), (3, 512), (8, 100), (32, 512), (48, 2048)])
def test_programs_cover_every_cohort(concurrency: int, prefill: int) -> None:
    shapes = program_shapes(ServingGeometry(1000, concurrency, prefill, 261))
    by_operation = {operation: [s for s in shapes if s.operation == operation] for operation in range(1, 5)}
    assert len({shape.name for shape in shapes}) == len(shapes)
    assert {s.batch for s in by_operation[pb.OPERATION_DECODE]} >= {1, concurrency}
    assert max(s.packed_tokens for s in by_operation[pb.OPERATION_PREFILL]) == prefill
    assert max(s.packed_tokens for s in by_operation[pb.OPERATION_MIXED]) >= prefill
    assert all(s.batch == concurrency for s in by_operation[pb.OPERATION_MIXED])
