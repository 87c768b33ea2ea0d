"""Rounds through packing into a modelled input buffer and page table: what is staged, and when."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract.enums import ElementType, Indexing, Operation, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.packing.packer import Packer, Span
from helios.runtime.round_values import RoundValues
from helios.scheduler.request import GenerationRequest, SamplingParameters
from helios.scheduler.round import Round
from tests.scheduler.hashing_device import PAGE_TOKENS
from tests.scheduler.requests import CONTEXT, requests
from tests.scheduler.simulation import Simulation, page_table

N_SLOTS, CHUNK, FRAMES = 3, 16, 2
PAGES_PER_SLOT = CONTEXT // PAGE_TOKENS
POISON = 1 << 20  # no page has this id
BUFFER = 0

# Value, indexing, rows, words of a row: the order of a captured model's inputs.
LAYOUT = [
    (ValueSource.LIVE_ROW_COUNT, Indexing.SCALAR, 1, 1),
    (ValueSource.PAGE_TABLE_UPDATE_COUNT, Indexing.SCALAR, 1, 1),
    (ValueSource.SUBMISSION, Indexing.SCALAR, 4, 1),
    *((ValueSource[name], Indexing.ACTIVE_ROW, N_SLOTS, 1) for name in ("SLOT", "GENERATION", "QUERY_LENGTH")),
    (ValueSource.PROMPT_TOKENS, Indexing.PACKED_TOKEN, 2 * CHUNK, 1),
    (ValueSource.PAGE_TABLE_UPDATES, Indexing.ACTIVE_ROW, N_SLOTS * PAGES_PER_SLOT, 2),
]


def lay_out() -> dict[str, Destination]:
    places, offset = {}, 0
    for source, _, n_rows, n_words in LAYOUT:
        places[source.name] = Destination(source.name, BUFFER, offset, ElementType.I32, n_rows * n_words, n_words)
        offset += 4 * n_rows * n_words
    return places


class StagedDevice:
    """The device's input buffer and page table, fed by nothing but the spans that are transferred."""

    def __init__(self) -> None:
        self.places = lay_out()
        last = self.places["PAGE_TABLE_UPDATES"]
        self.inputs = np.zeros(last.offset + last.nbytes, np.uint8)
        self.table = np.full((N_SLOTS, PAGES_PER_SLOT), POISON, np.int32)
        self.values = RoundValues(N_SLOTS, PAGES_PER_SLOT)
        bindings = tuple(Binding(source.name, source, indexing, 0, 0, 0, "") for source, indexing, _, _ in LAYOUT)
        graph = Graph("any", 0, Operation.MIXED, N_SLOTS, 0, CHUNK, 2 * CHUNK, bindings, (), None, None, 1)
        self.staging = [np.full_like(self.inputs, 0xEE) for _ in range(FRAMES)]
        self.packers = [Packer(graph, self.places, {BUFFER: staging}) for staging in self.staging]
        self.n_submitted = 0

    def submit(self, round_: Round) -> list[Span]:
        """Stage in one of two frames, transfer, and scatter the new entries as `page_table_update` does."""
        frame = self.n_submitted % FRAMES
        self.n_submitted += 1
        for admission in round_.admissions:
            self.table[admission.slot] = POISON  # whatever an earlier owner of the slot has left is worthless
        spans = self.packers[frame].pack(self.values.of(round_, self.n_submitted, frame), self.values.words)
        for span in spans:
            self.inputs[span.start : span.end] = self.staging[frame][span.start : span.end]
        (count,) = self.words(ValueSource.PAGE_TABLE_UPDATE_COUNT)
        for word, page_id in self.words(ValueSource.PAGE_TABLE_UPDATES).reshape(-1, 2)[:count]:
            self.table.reshape(-1)[word] = page_id
        return spans

    def words(self, source: ValueSource) -> np.ndarray:
        place = self.places[source.name]
        return self.inputs[place.offset : place.offset + place.nbytes].view(np.int32)

    def n_bytes_in(self, spans: list[Span], source: ValueSource) -> int:
        """How many of a destination's bytes were transferred."""
        place = self.places[source.name]
        ends = [(max(s.start, place.offset), min(s.end, place.offset + place.nbytes)) for s in spans]
        return sum(max(0, end - start) for start, end in ends)


def run(arrivals: list[GenerationRequest], check: Callable[[StagedDevice, Round, list[Span]], None]) -> None:
    simulation, device = Simulation(N_SLOTS, 18, CHUNK, FRAMES, n_rows=0), StagedDevice()
    for key, request in enumerate(arrivals):
        simulation.submit(key, request)
    while simulation.scheduler.has_work:
        while simulation.launch():
            round_ = simulation.in_flight[-1]
            check(device, round_, device.submit(round_))
        simulation.retire()


@settings(max_examples=60)
@given(st.lists(requests, min_size=1, max_size=8))
def test_page_entries_are_staged_when_they_are_new_and_only_then(arrivals: list[GenerationRequest]) -> None:
    """CON-9: only newly assigned page-table entries are uploaded, in every kind of round."""

    def check(device: StagedDevice, round_: Round, spans: list[Span]) -> None:
        assert device.n_bytes_in(spans, ValueSource.PAGE_TABLE_UPDATES) == 8 * len(round_.page_updates)
        n_new = sum(1 for lane in round_.lanes if lane.position % PAGE_TOKENS == 0)
        if not any(lane.is_prompt for lane in round_.lanes):
            assert len(round_.page_updates) == n_new

    run(arrivals, check)


@settings(max_examples=60)
@given(st.lists(requests, min_size=1, max_size=8))
def test_a_slots_next_request_gets_its_whole_table_again(arrivals: list[GenerationRequest]) -> None:
    """CON-9: generations invalidate remembered lengths: every entry that a lane reads was written for its own request."""

    def check(device: StagedDevice, round_: Round, spans: list[Span]) -> None:
        for lane in round_.lanes:
            n_read = -(-(lane.position + lane.query_length) // PAGE_TOKENS)
            assert device.table[lane.slot, :n_read].tolist() == page_table(lane.sequence)[:n_read]

    run(arrivals, check)


def test_a_decode_round_stages_the_same_few_bytes_at_any_length() -> None:
    """CON-9: staging is bounded; a page of 16 tokens costs 8 bytes, once."""
    sizes: list[tuple[int, int]] = []

    def check(device: StagedDevice, round_: Round, spans: list[Span]) -> None:
        if not round_.lanes[0].is_prompt:
            sizes.append((round_.lanes[0].position, sum(span.end - span.start for span in spans)))

    run([GenerationRequest(tuple(range(15)), 70, (), SamplingParameters(seed=1))], check)
    assert len(sizes) == 69
    usual = min(size for _, size in sizes)
    assert [position for position, size in sizes if size != usual] == [16, 32, 48, 64, 80]
    assert {size for _, size in sizes} == {usual, usual + 8}


def test_lanes_and_prompts_are_laid_out_in_lane_order() -> None:
    """CON-6, CON-7: prompt tokens are packed over the prompt lanes; a decode lane has none."""
    simulation = Simulation(N_SLOTS, 18, CHUNK, 1)
    first, second = GenerationRequest((7,), 30), GenerationRequest(tuple(range(40, 50)), 3)
    simulation.submit(0, first)
    for _ in range(2):
        simulation.launch()
        simulation.retire()
    simulation.submit(1, second)
    simulation.launch()
    round_ = simulation.in_flight[-1]
    values = RoundValues(N_SLOTS, PAGES_PER_SLOT).of(round_, (5 << 32) + 9, 1)
    prompt = [lane for lane in round_.lanes if lane.is_prompt]
    assert values[ValueSource.MIXED_PREFILL_ROW].tolist() == [lane.is_prompt for lane in round_.lanes]
    assert values[ValueSource.PROMPT_TOKENS].tolist() == list(range(40, 50))
    assert [lane.query_length for lane in prompt] == [10]
    assert values[ValueSource.LIVE_ROW_COUNT].tolist() == [2]
    assert values[ValueSource.SUBMISSION].tolist() == [9, 5, round_.program.index, 1]


@settings(max_examples=30)
@given(st.lists(requests, min_size=1, max_size=8))
def test_histograms_and_sampling_rows_are_staged_once_a_request(arrivals: list[GenerationRequest]) -> None:
    """CON-9: admission histograms are initialised once, by the admission; no generating round supplies them again."""
    admitted: list[tuple[int, int]] = []

    def check(device: StagedDevice, round_: Round, spans: list[Span]) -> None:
        admitted.extend((admission.sequence.key, admission.generation) for admission in round_.admissions)
        assert {(lane.sequence.key, lane.generation) for lane in round_.lanes} <= set(admitted)
        supplied = device.values.of(round_, 1, 0).keys()
        once = {ValueSource.SAMPLING_ROW, ValueSource.LOGIT_BIAS, ValueSource.PROMPT_HISTOGRAM}
        assert not supplied & once

    run(arrivals, check)
    assert len(admitted) == len(set(admitted))  # one that was preempted is admitted again, in a new generation
    assert {key for key, _ in admitted} == set(range(len(arrivals)))
