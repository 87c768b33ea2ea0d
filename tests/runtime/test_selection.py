"""Which programs are loaded: those that rounds of the chosen size ask for, and a missing one is named."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.enums import Operation
from helios.contract.prepared import PreparedContract
from helios.errors import ContractError
from helios.runtime.selection import KINDS, program_table, select_programs
from helios.scheduler.programs import RoundKind
from helios.scheduler.scheduler import SchedulerLimits
from tests.contract.sample import sample_contract, sample_manifest

PROGRAMS = [
    (Operation.INITIALIZE, 1, 0),
    (Operation.INITIALIZE, 8, 0),
    *((Operation.DECODE, lanes, lanes) for lanes in (1, 2, 4, 8, 16)),
    (Operation.PREFILL, 1, 64),
    (Operation.PREFILL, 1, 256),
    (Operation.PREFILL, 4, 512),
    (Operation.MIXED, 16, 64),
    (Operation.MIXED, 16, 256),
    (Operation.MIXED, 16, 512),
]


def core_with(programs: list[tuple[Operation, int, int]], concurrency: int = 16) -> PreparedContract:
    """The sample contract with these programs: operation, lanes, packed tokens."""
    contract = PreparedContract.from_core(sample_contract(), sample_manifest())
    model = {graph.operation: graph for graph in contract.graphs}
    graphs = tuple(
        dataclasses.replace(
            model.get(operation, contract.graphs[0]),
            name=f"{operation.name.lower()}.b{lanes}.p{packed}",
            index=index,
            operation=operation,
            batch_capacity=lanes,
            packed_token_capacity=packed,
        )
        for index, (operation, lanes, packed) in enumerate(programs)
    )
    return dataclasses.replace(
        contract, graphs=graphs, concurrency=concurrency, context_tokens=8192, prefill_tokens=512
    )


def limits_of(max_active: int = 16, context_tokens: int = 8192) -> SchedulerLimits:
    return SchedulerLimits(max_active, context_tokens, 512, 16, 96)


def names(contract: PreparedContract, operation: Operation) -> list[str]:
    return [graph.name.partition(".")[2] for graph in contract.graphs_of(operation)]


def test_four_requests_need_no_graph_for_sixteen() -> None:
    """CON-1, RT-7: a selection by --max-active."""
    selected = select_programs(core_with(PROGRAMS), limits_of(max_active=4))
    assert names(selected, Operation.DECODE) == ["b1.p1", "b2.p2", "b4.p4"]
    assert names(selected, Operation.INITIALIZE) == ["b1.p0", "b8.p0"]
    assert names(selected, Operation.PREFILL) == ["b1.p64", "b1.p256", "b4.p512"]


def test_a_number_between_two_sizes_takes_the_larger() -> None:
    assert names(select_programs(core_with(PROGRAMS), limits_of(max_active=5)), Operation.DECODE)[-1] == "b8.p8"


def test_short_contexts_need_no_long_prefill() -> None:
    selected = select_programs(core_with(PROGRAMS), limits_of(max_active=1, context_tokens=100))
    assert names(selected, Operation.PREFILL) == ["b1.p64", "b1.p256"]
    assert names(selected, Operation.INITIALIZE) == ["b1.p0"]


def test_indices_stay_those_of_the_manifest() -> None:
    contract = core_with(PROGRAMS)
    for graph in select_programs(contract, limits_of(max_active=2)).graphs:
        assert contract.graphs[graph.index] is graph


@pytest.mark.parametrize("operation", [Operation.DECODE, Operation.MIXED])
def test_a_program_too_small_for_all_requests_stops_the_start(operation: Operation) -> None:
    """RT-7: named, with what to do."""
    programs = [one for one in PROGRAMS if one[0] is not operation] + [(operation, 4, 64)]
    with pytest.raises(ContractError) as caught:
        select_programs(core_with(programs), limits_of(max_active=8))
    said = str(caught.value)
    assert f"no {operation.name.lower()} program for 8 requests" in said
    assert f"'{operation.name.lower()}.b4.p64', takes 4" in said
    assert "--max-active 4" in said


@pytest.mark.parametrize("kind", [RoundKind.INITIALIZE, RoundKind.PREFILL, RoundKind.DECODE, RoundKind.MIXED])
def test_a_missing_operation_stops_the_start(kind: RoundKind) -> None:
    """RT-7."""
    programs = [one for one in PROGRAMS if KINDS[one[0]] is not kind]
    with pytest.raises(ContractError, match=f"no {kind.value} program"):
        program_table(select_programs(core_with(programs), limits_of()))


def test_programs_that_this_server_never_launches_are_not_loaded() -> None:
    selected = select_programs(core_with([*PROGRAMS, (Operation.SCORED_PREFILL, 1, 64)]), limits_of())
    assert not selected.graphs_of(Operation.SCORED_PREFILL)
    assert len(selected.graphs) == len(PROGRAMS)


@given(st.integers(1, 16), st.integers(1, 16), st.integers(16, 8192), st.data())
def test_no_round_misses_what_was_left_out(
    max_active: int, n_lanes: int, context_tokens: int, data: st.DataObject
) -> None:
    """Every round within the limits finds the same program in the selection as in the whole core."""
    contract = core_with(PROGRAMS)
    limits = limits_of(max_active, context_tokens)
    whole, selected = program_table(contract), program_table(select_programs(contract, limits))
    n_lanes = min(n_lanes, max_active)
    kind = data.draw(st.sampled_from([RoundKind.DECODE, RoundKind.PREFILL, RoundKind.MIXED]))
    n_lanes = min(n_lanes, whole.lanes(kind))
    most = min(512, whole.rows(kind, n_lanes), n_lanes * context_tokens)
    n_rows = n_lanes if kind is RoundKind.DECODE else data.draw(st.integers(min(n_lanes, most), most))
    assert selected.choose(kind, n_lanes, n_rows) == whole.choose(kind, n_lanes, n_rows) is not None
