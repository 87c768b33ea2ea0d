"""page_table_update, slot_init, row_table and commit: the device's own book-keeping."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from helios.packing.values import MAX_BIAS
from tests.kernels.harness import REFUSED, Library, counts, int32, on_every_target
from tests.kernels.records import (
    BIAS,
    COMPLETION_HEADER,
    COMPLETION_LANE,
    PENALTIES,
    REQUEST,
    SAMPLE,
    SAMPLING,
    sampling_row,
)

VOCABULARY = 50
N_SLOTS = 4
NONE, EOS, LIMIT = 0, 1, 2
PENDING, PROMPT = 0, 1


@dataclass
class Lane:
    """One submitted lane."""

    slot: int
    generation: int = 1
    source: int = PENDING
    tokens: list[int] = field(default_factory=list)
    position: int = 0
    sample: int = 1
    length: int | None = None  # when it lies about its tokens

    @property
    def query_length(self) -> int:
        return len(self.tokens) if self.length is None else self.length


def requests(**rows: tuple[int, int]) -> np.ndarray:
    """Request rows; slot_n=(pending token, consumed) with generation 1."""
    table = np.zeros(N_SLOTS, REQUEST)
    table["pending_token"] = -1
    for name, (pending, consumed) in rows.items():
        table[int(name.removeprefix("slot_"))] = (pending, consumed, 0, NONE, 1, 0)
    return table


def lane_columns(lanes: list[Lane], capacity: int) -> dict[str, np.ndarray]:
    def column(values: list[int], dtype: Any = np.int32) -> np.ndarray:
        return np.array(values + [-9 if dtype is np.int32 else 9] * (capacity - len(values)), np.int64).astype(dtype)

    return {
        "n_lanes": int32(len(lanes)),
        "lane_slot": column([lane.slot for lane in lanes]),
        "lane_generation": column([lane.generation for lane in lanes], np.uint32),
        "lane_source": column([lane.source for lane in lanes]),
        "lane_query_length": column([lane.query_length for lane in lanes]),
        "lane_position": column([lane.position for lane in lanes]),
        "lane_sample": column([lane.sample for lane in lanes]),
    }


def expand(
    library: Library,
    lanes: list[Lane],
    table: np.ndarray,
    *,
    capacity: int = 6,
    rows_capacity: int = 16,
    n_positions: int = 100,
    n_lanes: int | None = None,
) -> dict[str, np.ndarray]:
    """Run row_table; the arrays it wrote, cut to the live counts. Asserts that nothing beyond them was touched."""
    columns = lane_columns(lanes, capacity)
    if n_lanes is not None:
        columns["n_lanes"] = int32(n_lanes)
    tokens = [token for lane in lanes if lane.source == PROMPT for token in lane.tokens][:rows_capacity]
    rows = {
        name: np.full(rows_capacity, -7, np.int32) for name in ("row_token", "row_position", "row_slot", "row_identity")
    }
    per_lane = {name: np.full(capacity, -7, np.int32) for name in ("lane_first_row", "sample_row", "sample_lane")}
    count_words = np.full(4, -7, np.int32)
    library["row_table.1"].launch(
        **columns,
        prompt_tokens=np.array(tokens + [0] * (rows_capacity - len(tokens)), np.int32),
        requests=table,
        counts=count_words,
        **rows,
        **per_lane,
        lanes_capacity=capacity,
        rows_capacity=rows_capacity,
        n_slots=N_SLOTS,
        n_positions=n_positions,
        vocabulary=VOCABULARY,
    )
    n_rows, live_lanes, n_samples, reserved = (int(n) for n in count_words)
    assert reserved == 0
    assert live_lanes == min(len(lanes), capacity) if n_lanes is None else True
    for array in rows.values():
        assert (array[n_rows:] == -7).all()
    assert (per_lane["lane_first_row"][live_lanes:] == -7).all()
    for name in ("sample_row", "sample_lane"):
        assert (per_lane[name][n_samples:] == -7).all()
    assert rows["row_identity"][:n_rows].tolist() == list(range(n_rows))
    return {name: array[:n_rows].tolist() for name, array in rows.items()} | {
        "lane_first_row": per_lane["lane_first_row"][:live_lanes].tolist(),
        "sample_row": per_lane["sample_row"][:n_samples].tolist(),
        "sample_lane": per_lane["sample_lane"][:n_samples].tolist(),
    }  # type: ignore[return-value]


@on_every_target
def test_prompt_and_pending_lanes_expand_to_rows_in_lane_order(library: Library) -> None:
    table = requests(slot_0=(7, 30), slot_1=(-1, 0), slot_3=(-1, 16))
    lanes = [
        Lane(0),
        Lane(3, source=PROMPT, tokens=[1, 2, 3], position=16, sample=0),
        Lane(1, source=PROMPT, tokens=[4, 5], position=0),
    ]
    assert expand(library, lanes, table) == {
        "row_token": [7, 1, 2, 3, 4, 5],
        "row_position": [30, 16, 17, 18, 0, 1],
        "row_slot": [0, 3, 3, 3, 1, 1],
        "row_identity": [0, 1, 2, 3, 4, 5],
        "lane_first_row": [0, 1, 4],
        "sample_row": [0, 5],
        "sample_lane": [0, 2],
    }


@on_every_target
@pytest.mark.parametrize(
    "dead",
    [
        Lane(0, generation=2),
        Lane(2),
        Lane(1),
        Lane(-1),
        Lane(4),
        Lane(2**31 - 1),
        Lane(0, source=PROMPT, tokens=[]),
        Lane(0, source=PROMPT, tokens=[1, VOCABULARY]),
        Lane(0, source=PROMPT, tokens=[-1]),
        Lane(0, source=PROMPT, tokens=[1], position=-1),
        Lane(0, source=PROMPT, tokens=[1, 2], position=99),
        Lane(0, source=PROMPT, tokens=[1] * 16),
        Lane(0, source=PROMPT, tokens=[1], length=-5),
        Lane(0, source=PROMPT, tokens=[1] * 13, length=2**31 - 1, position=2**31 - 1),
    ],
)
def test_stale_finished_and_impossible_lanes_make_no_rows(library: Library, dead: Lane) -> None:
    table = requests(slot_0=(7, 30), slot_1=(-1, 3), slot_2=(9, 5), slot_3=(8, 2))
    table[2]["finish"] = EOS
    # A prompt lane's tokens are skipped with it, so the next prompt lane still finds its own (unless the length was a lie).
    rest = [Lane(3), Lane(3, source=PROMPT, tokens=[11], position=4)]
    lied = dead.length is not None or len(dead.tokens) == 16
    lanes = [Lane(3, sample=0), dead, *rest]
    result = expand(library, lanes, table)
    assert result["lane_first_row"][:3] == [0, -1, 1]
    assert result["row_token"][:2] == [8, 8]
    if not lied:
        assert result["row_token"] == [8, 8, 11]
        assert result["sample_lane"] == [2, 3]


@on_every_target
def test_hundreds_of_lanes_are_placed_one_after_the_other(library: Library) -> None:
    """More than a block has threads, and more prompt tokens than are staged."""
    rng = np.random.default_rng(4)
    table = requests(slot_0=(7, 30), slot_1=(9, 3), slot_2=(VOCABULARY, 5), slot_3=(8, 2))
    rows_capacity, lanes = 1000, []
    for _ in range(300):
        tokens = rng.integers(0, VOCABULARY, int(rng.integers(1, 50))).tolist()
        if rng.random() < 0.2:
            tokens[-1] = VOCABULARY
        is_prompt = rng.random() < 0.15
        lanes.append(
            Lane(
                int(rng.integers(0, N_SLOTS)),
                generation=int(rng.random() > 0.1),
                source=PROMPT if is_prompt else PENDING,
                tokens=tokens if is_prompt else [],
                position=int(rng.integers(0, 50)),
                sample=int(rng.integers(0, 2)),
            )
        )
    expected: dict[str, list[int]] = {name: [] for name in ("row_token", "row_position", "row_slot", "sample_lane")}
    first_rows, n_staged = [], 0
    for i, lane in enumerate(lanes):
        request = table[lane.slot]
        is_prompt = lane.source == PROMPT
        tokens, position = (
            (lane.tokens, lane.position) if is_prompt else ([request["pending_token"]], request["consumed"])
        )
        n_staged += len(lane.tokens)
        n_rows = len(expected["row_token"])
        is_staged = not is_prompt or n_staged <= rows_capacity
        is_live = lane.generation == 1 and max(tokens) < VOCABULARY and is_staged
        is_live = is_live and n_rows + len(tokens) <= rows_capacity
        first_rows.append(n_rows if is_live else -1)
        if not is_live:
            continue
        expected["row_token"] += tokens
        expected["row_position"] += range(position, position + len(tokens))
        expected["row_slot"] += [lane.slot] * len(tokens)
        if lane.sample:
            expected["sample_lane"].append(i)
    found = expand(library, lanes, table, capacity=310, rows_capacity=rows_capacity)
    assert found["lane_first_row"] == first_rows
    assert {name: found[name] for name in expected} == expected
    assert -1 in first_rows[200:] != [-1] * 100


@on_every_target
@pytest.mark.parametrize("n_lanes", [-1, 0, -(2**31), 2**31 - 1])
def test_the_lane_count_is_clamped(library: Library, n_lanes: int) -> None:
    lanes = [Lane(i % N_SLOTS) for i in range(6)]
    result = expand(
        library, lanes, requests(slot_0=(1, 1), slot_1=(1, 1), slot_2=(1, 1), slot_3=(1, 1)), n_lanes=n_lanes
    )
    assert len(result["row_token"]) == (6 if n_lanes > 0 else 0)


@on_every_target
def test_page_table_entries_outside_the_table_are_skipped(library: Library) -> None:
    table = np.zeros((3, 5), np.int32)
    updates = np.array(
        [[0, 11], [14, 12], [15, 13], [-1, 14], [2**31 - 1, 15], [-(2**31), 16], [7, -3], [3, 99]], np.int32
    )
    library["page_table_update.1"].launch(
        updates=updates, n_updates=int32(7), page_table=table, updates_capacity=8, n_slots=3, pages_per_slot=5
    )
    assert {int(i): int(table.flat[i]) for i in np.flatnonzero(table)} == {0: 11, 14: 12, 7: -3}
    for n, expected in ((0, 0), (-5, 0), (2**31 - 1, 1)):
        n_tasks = library["page_table_update.1"].launch(
            updates=updates, n_updates=int32(n), page_table=table, updates_capacity=8, n_slots=3, pages_per_slot=5
        )
        assert n_tasks == expected or not library.counts_tasks


@on_every_target
@pytest.mark.parametrize("vocabulary", [9001, 20000])
def test_a_long_histogram_is_copied_whole(library: Library, vocabulary: int) -> None:
    staged = np.array([sampling_row(flags=PENALTIES), sampling_row(), sampling_row(flags=PENALTIES)], SAMPLING)
    words = np.random.default_rng(3).integers(0, 2**32, (3, vocabulary), np.uint32)
    histogram = np.full((3, vocabulary), 7, np.uint32)
    library["slot_init.1"].launch(
        n_lanes=int32(3),
        lane_slot=int32(2, 1, 0),
        lane_generation=np.ones(3, np.uint32),
        lane_position=int32(0, 0, 0),
        staged_sampling=staged,
        staged_bias=np.zeros((3, MAX_BIAS), BIAS),
        staged_histogram=words,
        requests=np.zeros(3, REQUEST),
        sampling=np.zeros(3, SAMPLING),
        bias=np.zeros((3, MAX_BIAS), BIAS),
        histogram=histogram,
        lanes_capacity=3,
        n_slots=3,
        vocabulary=vocabulary,
        order="shuffled",
    )
    np.testing.assert_array_equal(histogram, [words[2], np.full(vocabulary, 7), words[0]])


@on_every_target
def test_slot_init_sets_up_rows_and_only_those(library: Library) -> None:
    rng = np.random.default_rng(1)
    staged = np.array(
        [sampling_row(n_bias=3), sampling_row(flags=PENALTIES, n_bias=9999), sampling_row(n_bias=-4)], SAMPLING
    )
    staged_bias = np.zeros((3, MAX_BIAS), BIAS)
    staged_bias["value"], staged_bias["id"] = (
        rng.standard_normal((3, MAX_BIAS)),
        rng.integers(0, VOCABULARY, (3, MAX_BIAS)),
    )
    staged_histogram = rng.integers(0, 9, (3, VOCABULARY)).astype(np.uint32)
    state = {
        "requests": np.full(N_SLOTS * REQUEST.itemsize, 0x55, np.uint8).view(REQUEST),
        "sampling": np.full(N_SLOTS * SAMPLING.itemsize, 0x55, np.uint8).view(SAMPLING),
        "bias": np.full(N_SLOTS * MAX_BIAS * BIAS.itemsize, 0x55, np.uint8).view(BIAS).reshape(N_SLOTS, MAX_BIAS),
        "histogram": np.full((N_SLOTS, VOCABULARY), 0x55, np.uint32),
    }
    before = {name: array.copy() for name, array in state.items()}
    library["slot_init.1"].launch(
        n_lanes=int32(3),
        lane_slot=int32(2, 0, N_SLOTS),
        lane_generation=np.array([5, 2**32 - 1, 7], np.uint32),
        lane_position=int32(0, 48, 3),
        staged_sampling=staged,
        staged_bias=staged_bias,
        staged_histogram=staged_histogram,
        **state,
        lanes_capacity=3,
        n_slots=N_SLOTS,
        vocabulary=VOCABULARY,
    )
    assert request_tuple(state["requests"][2]) == (-1, 0, 0, NONE)
    assert request_tuple(state["requests"][0]) == (-1, 48, 0, NONE)
    assert state["requests"]["generation"][[2, 0]].tolist() == [5, 2**32 - 1]
    assert state["sampling"][[2, 0]].tobytes() == staged[:2].tobytes()
    np.testing.assert_array_equal(state["bias"][2, :3], staged_bias[0, :3])
    np.testing.assert_array_equal(state["bias"][0], staged_bias[1])
    np.testing.assert_array_equal(state["histogram"][0], staged_histogram[1])
    for name, array in state.items():
        for slot in (1, 3):
            assert array[slot].tobytes() == before[name][slot].tobytes()
    assert (state["bias"][2, 3:] == before["bias"][2, 3:]).all()
    assert (state["histogram"][2] == 0x55).all()


@dataclass
class Device:
    """What commit reads and writes."""

    requests: np.ndarray
    sampling: np.ndarray = field(default_factory=lambda: np.array([sampling_row(output_limit=3)] * N_SLOTS, SAMPLING))
    histogram: np.ndarray = field(default_factory=lambda: np.zeros((N_SLOTS, VOCABULARY), np.uint32))

    def commit(
        self,
        library: Library,
        lanes: list[Lane],
        first_row: list[int],
        sampled: dict[int, int],
        *,
        n_samples: int | None = None,
    ) -> tuple[np.void, np.ndarray]:
        capacity = 6
        samples = np.zeros(capacity, SAMPLE)
        for i, token in enumerate(sampled.values()):
            samples[i]["token"], samples[i]["logprob"], samples[i]["rank"] = token, -0.5 - i, i + 1
            samples[i]["n_candidates"] = 2
            samples[i]["candidate_token"][:2], samples[i]["candidate_logprob"][:2] = [token, 1], [-0.5, -1.5]
        completion = np.full(COMPLETION_HEADER.itemsize + capacity * COMPLETION_LANE.itemsize, 0x55, np.uint8)
        library["commit.1"].launch(
            **lane_columns(lanes, capacity),
            lane_first_row=np.array(first_row + [-9] * (capacity - len(first_row)), np.int32),
            counts=counts(0, len(lanes), len(sampled) if n_samples is None else n_samples),
            sample_lane=np.array([*sampled, *[-9] * capacity][:capacity], np.int32),
            samples=samples,
            submission=np.array([0x01020304, 0x05060708, 3, 1], np.uint32),
            sampling=self.sampling,
            requests=self.requests,
            histogram=self.histogram,
            completion=completion,
            lanes_capacity=capacity,
            n_slots=N_SLOTS,
            vocabulary=VOCABULARY,
        )
        used = COMPLETION_HEADER.itemsize + len(lanes) * COMPLETION_LANE.itemsize
        assert (completion[used:] == 0x55).all()
        header = completion[: COMPLETION_HEADER.itemsize].view(COMPLETION_HEADER)[0]
        assert header["n_lanes"] == len(lanes)
        return header, completion[COMPLETION_HEADER.itemsize : used].view(COMPLETION_LANE)


def request_tuple(row: np.void) -> tuple[int, int, int, int]:
    return tuple(int(row[name]) for name in ("pending_token", "consumed", "emitted", "finish"))  # type: ignore[return-value]


@on_every_target
def test_commit_advances_lanes_and_reports_them(library: Library) -> None:
    device = Device(requests(slot_0=(7, 30), slot_1=(-1, 16), slot_2=(-1, 0), slot_3=(5, 9)))
    lanes = [
        Lane(0),
        Lane(1, source=PROMPT, tokens=[1, 2, 3], position=16, sample=0),
        Lane(2, source=PROMPT, tokens=[4, 5]),
        Lane(3, sample=0),
    ]
    header, records = device.commit(library, lanes, [0, 1, 4, 6], {0: 21, 2: 22})
    assert (header["sequence"], header["program"], header["frame"]) == (0x0506070801020304, 3, 1)
    assert [request_tuple(row) for row in device.requests] == [
        (21, 31, 1, NONE),
        (-1, 19, 0, NONE),
        (22, 2, 1, NONE),
        (5, 10, 0, NONE),
    ]
    assert records["slot"].tolist() == [0, 1, 2, 3]
    assert records["emitted"].tolist() == [1, 0, 1, 0]
    assert records["token"].tolist() == [21, -1, 22, -1]
    assert records["consumed"].tolist() == [31, 19, 2, 10]
    assert records["generation"].tolist() == [1, 1, 1, 1]
    assert records["rank"].tolist() == [1, 0, 2, 0]
    assert records["logprob"].tolist() == [-0.5, 0, -1.5, 0]
    assert records["n_candidates"].tolist() == [2, 0, 2, 0]
    assert records[2]["candidate_token"][:2].tolist() == [22, 1]
    assert records["draft_cursor"].tolist() == records["reserved_model"].tolist() == [-1] * 4
    assert records["offered"].tolist() == records["accepted"].tolist() == [0] * 4


@on_every_target
def test_eos_and_limit_finish_a_request_which_then_stays_dead(library: Library) -> None:
    device = Device(requests(slot_0=(7, 30), slot_1=(7, 30)))
    device.sampling[0]["eos"][:2], device.sampling[0]["n_eos"] = [40, 41], 2
    device.sampling[1]["eos"][:2], device.sampling[1]["n_eos"] = [40, 41], 1
    device.requests["emitted"][:2] = [0, 1]
    _, records = device.commit(library, [Lane(0), Lane(1)], [0, 1], {0: 41, 1: 41})
    assert records["finish"].tolist() == [EOS, NONE]
    assert records["emitted"].tolist() == [1, 1]
    assert request_tuple(device.requests[0]) == (41, 31, 1, EOS)
    _, records = device.commit(library, [Lane(0), Lane(1)], [0, 1], {1: 12})
    assert records["finish"].tolist() == [EOS, LIMIT]
    assert records["emitted"].tolist() == [0, 1]
    assert records["consumed"].tolist() == [31, 32]
    before = device.requests.copy()
    _, records = device.commit(library, [Lane(0), Lane(1)], [-1, -1], {})
    assert (device.requests == before).all()
    assert records["finish"].tolist() == [EOS, LIMIT]


@on_every_target
def test_eos_wins_over_the_limit(library: Library) -> None:
    device = Device(requests(slot_0=(7, 30)))
    device.sampling[0]["eos"][0], device.sampling[0]["n_eos"], device.sampling[0]["output_limit"] = 40, 1, 1
    _, records = device.commit(library, [Lane(0)], [0], {0: 40})
    assert records["finish"].tolist() == [EOS]


@on_every_target
def test_histogram_counts_output_only_with_penalties_and_saturates(library: Library) -> None:
    device = Device(requests(slot_0=(7, 30), slot_1=(7, 30), slot_2=(7, 30)))
    device.sampling["flags"] = [PENALTIES, 0, PENALTIES, 0]
    device.histogram[0, 21], device.histogram[2, 23] = 1 << 31 | 4, 0xFFFFFFFF
    device.commit(library, [Lane(0), Lane(1), Lane(2)], [0, 1, 2], {0: 21, 1: 22, 2: 23})
    assert device.histogram[0, 21] == 1 << 31 | 5
    assert device.histogram[1].sum() == 0
    assert device.histogram[2, 23] == 0xFFFFFFFF


@on_every_target
@pytest.mark.parametrize("dead", [Lane(0, generation=9), Lane(-1), Lane(N_SLOTS), Lane(2**31 - 1)])
def test_a_dead_lane_reports_its_state_and_changes_nothing(library: Library, dead: Lane) -> None:
    device = Device(requests(slot_0=(7, 30), slot_1=(5, 9)))
    before = dataclasses.replace(device, requests=device.requests.copy())
    _, records = device.commit(library, [dead, Lane(1)], [0, 1], {0: 20, 1: 21})
    assert device.requests[0] == before.requests[0]
    assert records["emitted"].tolist() == [0, 1]
    assert records["token"].tolist() == [-1, 21]
    assert records[0]["consumed"] == (30 if dead.slot == 0 else 0)
    assert records[0]["generation"] == (1 if dead.slot == 0 else dead.generation)


@on_every_target
def test_hostile_numbers_stay_inside(library: Library) -> None:
    device = Device(requests(slot_0=(7, 2**31 - 1), slot_1=(5, 9)))
    device.sampling["flags"] = PENALTIES
    device.sampling["n_eos"] = 2**31 - 1
    device.requests["emitted"] = 2**31 - 1
    lanes = [Lane(0), Lane(1, source=PROMPT, length=2**31 - 1, position=2**31 - 1)]
    for token in (-1, VOCABULARY, 2**31 - 1, -(2**31)):
        _, records = device.commit(library, lanes, [0, 2**31 - 1], {0: token, 1: token}, n_samples=2**31 - 1)
        assert records["emitted"].tolist() == [0, 0]
    assert device.requests["consumed"][:2].tolist() == [2**31 - 1] * 2
    device.sampling["n_eos"] = -5
    _, records = device.commit(library, lanes[:1], [0], {0: 3})
    assert records["finish"].tolist() == [LIMIT]


@on_every_target
def test_senseless_scalars_are_refused(library: Library) -> None:
    good = {
        "lanes_capacity": 4,
        "rows_capacity": 8,
        "n_slots": 4,
        "n_positions": 64,
        "vocabulary": 50,
        "updates_capacity": 4,
        "pages_per_slot": 4,
    }
    for name in ("page_table_update.1", "slot_init.1", "row_table.1", "commit.1", "sample.1"):
        scalars = {field: good[field] for field, _, kind in library[name].fields if kind > 2}
        assert REFUSED not in library[name].extents(**scalars).values()
        for field_name in scalars:
            for value in (0, -1, -(2**31)):
                assert set(library[name].extents(**scalars | {field_name: value}).values()) == {REFUSED}
