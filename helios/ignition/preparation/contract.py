"""The declarations that recipes share: inputs, device-owned state, the completion record, and the contract over them.

It knows what serving needs of any text model with a paged cache, and no architecture. One table says for each host
value where it is staged and where it comes from, so destinations and bindings cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.ignition.capture import Buffer, Capture, ProgramCapture, Tensor
from helios.ignition.operands import Inputs, State
from helios.ignition.preparation.geometry import (
    COMPLETION_HEADER_NBYTES,
    COMPLETION_LANE_NBYTES,
    MAX_BIAS,
    PAGE_TOKENS,
    REQUEST_ROW_NBYTES,
    SAMPLE_NBYTES,
    SAMPLING_ROW_NBYTES,
    STATE_ROWS_PER_REQUEST,
    ServingGeometry,
)

CONTRACT_VERSION = 3
PENDING_VIEW = "pending"
CONTINUATION_VIEW = "continuation"

_WORD = 4  # every staged element is an int32 or uint32
_DESTINATION_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class HostValue:
    """One staged value: `rows` indexed elements of `words` words at capacity, and the source that fills them."""

    name: str
    source: pb.ValueSource
    indexing: pb.Indexing
    rows: int
    words: int = 1
    element_type: execution.ElementType = execution.ELEMENT_TYPE_I32


def round_values(geometry: ServingGeometry) -> list[HostValue]:
    """What a generating round stages. The order matters: a submission copies up to the last value it used."""
    lanes = geometry.concurrency
    by_lane = [
        ("lane_slot", pb.VALUE_SOURCE_SLOT),
        ("lane_generation", pb.VALUE_SOURCE_GENERATION),
        ("lane_source", pb.VALUE_SOURCE_MIXED_PREFILL_ROW),
        ("lane_query_length", pb.VALUE_SOURCE_QUERY_LENGTH),
        ("lane_position", pb.VALUE_SOURCE_PROMPT_POSITION),
        ("lane_sample", pb.VALUE_SOURCE_SAMPLING_DECISION),
        ("lane_masked", pb.VALUE_SOURCE_GRAMMAR_MASKED),
    ]
    unsigned = execution.ELEMENT_TYPE_U32
    return [
        HostValue("n_lanes", pb.VALUE_SOURCE_LIVE_ROW_COUNT, pb.INDEXING_SCALAR, 1),
        HostValue("n_page_updates", pb.VALUE_SOURCE_PAGE_TABLE_UPDATE_COUNT, pb.INDEXING_SCALAR, 1),
        HostValue("submission", pb.VALUE_SOURCE_SUBMISSION, pb.INDEXING_SCALAR, 4, element_type=unsigned),
        *(HostValue(name, source, pb.INDEXING_ACTIVE_ROW, lanes) for name, source in by_lane),
        HostValue("prompt_tokens", pb.VALUE_SOURCE_PROMPT_TOKENS, pb.INDEXING_PACKED_TOKEN, geometry.prefill_tokens),
        HostValue(
            "page_updates",
            pb.VALUE_SOURCE_PAGE_TABLE_UPDATES,
            pb.INDEXING_ACTIVE_ROW,
            geometry.max_page_updates,
            2,
        ),
        HostValue("mask", pb.VALUE_SOURCE_GRAMMAR_MASK, pb.INDEXING_ACTIVE_ROW, lanes, geometry.mask_words, unsigned),
        HostValue("scored_targets", pb.VALUE_SOURCE_SCORED_TARGETS, pb.INDEXING_PACKED_TOKEN, geometry.scored_tokens),
    ]


def admission_values(geometry: ServingGeometry) -> list[HostValue]:
    """What INITIALIZE stages: biases and histograms last, since few requests have them."""
    lanes = geometry.admissions
    row, unsigned = pb.INDEXING_ACTIVE_ROW, execution.ELEMENT_TYPE_U32
    return [
        HostValue("admission_n_lanes", pb.VALUE_SOURCE_LIVE_ROW_COUNT, pb.INDEXING_SCALAR, 1),
        HostValue("admission_lane_slot", pb.VALUE_SOURCE_SLOT, row, lanes),
        HostValue("admission_lane_generation", pb.VALUE_SOURCE_GENERATION, row, lanes),
        HostValue("admission_lane_position", pb.VALUE_SOURCE_CONSUMED_ENDPOINT, row, lanes),
        HostValue(
            "admission_sampling", pb.VALUE_SOURCE_SAMPLING_ROW, row, lanes, SAMPLING_ROW_NBYTES // _WORD, unsigned
        ),
        HostValue("admission_bias", pb.VALUE_SOURCE_LOGIT_BIAS, row, lanes, MAX_BIAS * 2),
        HostValue("admission_histogram", pb.VALUE_SOURCE_PROMPT_HISTOGRAM, row, lanes, geometry.vocabulary, unsigned),
    ]


def restore_values(geometry: ServingGeometry) -> list[HostValue]:
    """What RESTORE stages: the private page that each lane's row is copied into, then the row."""
    lanes, row = geometry.admissions, pb.INDEXING_ACTIVE_ROW
    return [
        HostValue("restore_n_lanes", pb.VALUE_SOURCE_LIVE_ROW_COUNT, pb.INDEXING_SCALAR, 1),
        HostValue("restore_n_page_updates", pb.VALUE_SOURCE_PAGE_TABLE_UPDATE_COUNT, pb.INDEXING_SCALAR, 1),
        HostValue("restore_lane_slot", pb.VALUE_SOURCE_SLOT, row, lanes),
        HostValue("restore_lane_endpoint", pb.VALUE_SOURCE_CONSUMED_ENDPOINT, row, lanes),
        HostValue("restore_lane_row", pb.VALUE_SOURCE_RESTORE_SOURCE, row, lanes),
        HostValue("restore_page_updates", pb.VALUE_SOURCE_PAGE_TABLE_UPDATES, row, lanes, 2),
    ]


def snapshot_values(geometry: ServingGeometry) -> list[HostValue]:
    """What SNAPSHOT stages."""
    lanes, row = geometry.concurrency, pb.INDEXING_ACTIVE_ROW
    return [
        HostValue("snapshot_n_lanes", pb.VALUE_SOURCE_LIVE_ROW_COUNT, pb.INDEXING_SCALAR, 1),
        HostValue("snapshot_lane_slot", pb.VALUE_SOURCE_SLOT, row, lanes),
        HostValue("snapshot_lane_endpoint", pb.VALUE_SOURCE_CONSUMED_ENDPOINT, row, lanes),
        HostValue("snapshot_lane_row", pb.VALUE_SOURCE_SNAPSHOT_DESTINATION, row, lanes),
    ]


# Each table in an input buffer of its own, so that the programs of one submission can be staged one after the other.
_STATE_VALUES = {
    execution.OPERATION_INITIALIZE: admission_values,
    execution.OPERATION_RESTORE: restore_values,
    execution.OPERATION_SNAPSHOT: snapshot_values,
}


@dataclass(frozen=True, slots=True)
class Surface:
    """What every program shares apart from weights: staged inputs, state, cache and completion."""

    geometry: ServingGeometry
    inputs: Inputs
    state: State
    cache: Tensor
    completion: Tensor
    scores: Tensor
    distributions: Tensor
    prompt_distributions: Tensor


def declare_surface(capture: Capture, geometry: ServingGeometry, page_nbytes: int) -> Surface:
    """Declares the shared buffers and destinations. `page_nbytes` holds 16 tokens of all layers."""
    slots = geometry.concurrency
    lanes_nbytes = COMPLETION_HEADER_NBYTES + slots * COMPLETION_LANE_NBYTES
    scores_end = lanes_nbytes + geometry.scored_tokens * SAMPLE_NBYTES
    distributions_end = scores_end + geometry.max_distributions * geometry.distribution_nbytes
    end = distributions_end + geometry.max_prompt_distributions * geometry.distribution_nbytes

    def state(name: str, row_nbytes: int) -> Tensor:
        return capture.buffer(name, execution.BUFFER_KIND_STATE, slots * row_nbytes)

    inputs = {
        **_declare_values(capture, "inputs", round_values(geometry)),
        **_declare_values(capture, "admission", admission_values(geometry)),
        **_declare_values(capture, "restore", restore_values(geometry)),
        **_declare_values(capture, "snapshot", snapshot_values(geometry)),
    }
    completion = capture.buffer("completion", execution.BUFFER_KIND_COMPLETION, end)
    return Surface(
        geometry=geometry,
        inputs=inputs,
        state=State(
            requests=state("requests", REQUEST_ROW_NBYTES),
            sampling=state("sampling", SAMPLING_ROW_NBYTES),
            bias=state("bias", MAX_BIAS * 2 * _WORD),
            histogram=state("histogram", geometry.vocabulary * _WORD),
            page_table=state("page_table", geometry.pages_per_slot * _WORD),
            continuation=capture.buffer(
                CONTINUATION_VIEW, execution.BUFFER_KIND_STATE, geometry.n_state_rows * page_nbytes
            ),
        ),
        cache=capture.buffer("kv", execution.BUFFER_KIND_CACHE_PLANE, 0, page_nbytes=page_nbytes),
        completion=completion.at(0, lanes_nbytes),
        scores=completion.at(lanes_nbytes, scores_end - lanes_nbytes),
        distributions=completion.at(scores_end, distributions_end - scores_end),
        prompt_distributions=completion.at(distributions_end),
    )


def _declare_values(capture: Capture, buffer: str, values: list[HostValue]) -> dict[str, Tensor]:
    """Lays the values out one behind the other in a new input buffer."""
    offsets, end = [], 0
    for value in values:
        offset = -(-end // _DESTINATION_ALIGNMENT) * _DESTINATION_ALIGNMENT
        offsets.append(offset)
        end = offset + value.rows * value.words * _WORD
    whole = capture.buffer(buffer, execution.BUFFER_KIND_INPUT, end)
    tensors = {}
    for value, offset in zip(values, offsets, strict=True):
        tensor = whole.at(offset, value.rows * value.words * _WORD)
        capture.destination(value.name, tensor, value.element_type, value.rows * value.words, value.words)
        tensors[value.name] = tensor
    return tensors


def finish_manifest(capture: Capture, surface: Surface, abi_label: str) -> execution.ExecutionManifest:
    """The capture's manifest with the parts that serving reads."""
    manifest = capture.manifest()
    manifest.abi_label = abi_label
    manifest.completion.CopyFrom(
        execution.CompletionLayout(
            buffer=_buffer_of(surface.completion).id,
            header_nbytes=COMPLETION_HEADER_NBYTES,
            lane_nbytes=COMPLETION_LANE_NBYTES,
            lanes_capacity=surface.geometry.concurrency,
            score_nbytes=SAMPLE_NBYTES,
            scores_capacity=surface.geometry.scored_tokens,
            distribution_nbytes=surface.geometry.distribution_nbytes,
            distributions_capacity=surface.geometry.max_distributions,
            prompt_distributions_capacity=surface.geometry.max_prompt_distributions,
        )
    )
    manifest.request_slots = surface.geometry.concurrency
    manifest.pages_per_slot = surface.geometry.pages_per_slot
    return manifest


def model_contract(
    programs: Iterable[ProgramCapture], surface: Surface, frontend: pb.FrontendContract
) -> pb.ModelContract:
    """The semantic contract of the captured programs."""
    views = _state_views(surface)
    vocabulary = surface.geometry.vocabulary
    return pb.ModelContract(
        version=CONTRACT_VERSION,
        vocabulary=vocabulary,
        input_vocabulary=vocabulary,
        cache=pb.CacheContract(
            page_tokens=PAGE_TOKENS,
            regions=[
                pb.CacheRegion(
                    kind=pb.REGION_KIND_PAGED_KEY_VALUE, planes=[_buffer_of(surface.cache).id], tokens_per_record=1
                ),
                pb.CacheRegion(kind=pb.REGION_KIND_CONTINUATION, views=[CONTINUATION_VIEW]),
            ],
            page_tables=[pb.PageTableView(buffer=_buffer_of(surface.state.page_table).id)],
        ),
        graphs=[_graph(program, surface.geometry, views) for program in programs],
        frontend=frontend,
        state_views=views,
    )


def _state_views(surface: Surface) -> list[pb.StateView]:
    """One view a state buffer, a row a slot or a state row, and the pending token at the head of the request row."""
    state, slots = surface.state, surface.geometry.concurrency
    by_slot = (state.requests, state.sampling, state.bias, state.histogram, state.page_table)
    views = []
    for tensor, rows in (*((tensor, slots) for tensor in by_slot), (state.continuation, surface.geometry.n_state_rows)):
        buffer = _buffer_of(tensor)
        row_nbytes = buffer.nbytes // rows
        views.append(
            pb.StateView(name=buffer.name, buffer=buffer.id, row_stride=row_nbytes, row_nbytes=row_nbytes, rows=rows)
        )
    requests = _buffer_of(state.requests).id
    views.append(
        pb.StateView(name=PENDING_VIEW, buffer=requests, row_stride=REQUEST_ROW_NBYTES, row_nbytes=_WORD, rows=slots)
    )
    return views


def _graph(program: ProgramCapture, geometry: ServingGeometry, views: list[pb.StateView]) -> pb.GraphContract:
    values = _STATE_VALUES.get(program.operation, round_values)(geometry)
    if program.operation == execution.OPERATION_DECODE:
        values = [value for value in values if value.source != pb.VALUE_SOURCE_PROMPT_TOKENS]
    if program.operation != execution.OPERATION_SCORED_PREFILL:
        values = [value for value in values if value.source != pb.VALUE_SOURCE_SCORED_TARGETS]
    touched = program.touched()
    accesses = [
        pb.StateAccess(view=view.name, access=_access(*touched[view.buffer]))
        for view in views
        if view.buffer in touched
    ]
    return pb.GraphContract(
        program=program.name,
        operation=program.operation,
        bindings=[
            pb.ValueBinding(destination=value.name, source=value.source, indexing=value.indexing) for value in values
        ],
        accesses=accesses,
        pending_view=PENDING_VIEW if any(access.view == PENDING_VIEW for access in accesses) else None,
        state_rows_per_request=STATE_ROWS_PER_REQUEST,
    )


def _access(reads: bool, writes: bool) -> pb.Access:
    if reads and writes:
        return pb.ACCESS_READ_WRITE
    return pb.ACCESS_WRITE if writes else pb.ACCESS_READ


def _buffer_of(tensor: Tensor) -> Buffer:
    if not isinstance(tensor.storage, Buffer):
        raise TypeError("a surface tensor is a physical buffer")
    return tensor.storage
