"""Which captured programs are loaded: those that rounds of the chosen size can ask for, and no others.

It knows shapes and the scheduler's limits, no device. What is left out is never chosen; what is missing stops the start and is
named (RT-7, CON-1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from helios.contract.enums import Operation
from helios.contract.prepared import Graph, PreparedContract
from helios.errors import ContractError
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.round import ProgramShape
from helios.scheduler.scheduler import SchedulerLimits

KINDS = {
    Operation.INITIALIZE: RoundKind.INITIALIZE,
    Operation.RESTORE: RoundKind.RESTORE,
    Operation.PREFILL: RoundKind.PREFILL,
    Operation.DECODE: RoundKind.DECODE,
    Operation.MIXED: RoundKind.MIXED,
    Operation.SNAPSHOT: RoundKind.SNAPSHOT,
    Operation.SCORED_PREFILL: RoundKind.SCORED_PREFILL,
}
# Rounds of these hold every running request; the others may take several rounds for what one cannot hold.
_WHOLE_COHORT = (Operation.DECODE, Operation.MIXED)
_PROMPT_FEEDING = (Operation.PREFILL, Operation.MIXED, Operation.SCORED_PREFILL)


def select_programs(contract: PreparedContract, limits: SchedulerLimits) -> PreparedContract:
    """The same contract with the graphs that `limits` need. Raises ContractError where one is missing."""
    selected = [graph for operation in KINDS for graph in _selected(_served(contract, operation), operation, limits)]
    return dataclasses.replace(contract, graphs=tuple(sorted(selected, key=lambda graph: graph.index)))


def program_table(contract: PreparedContract) -> ProgramTable:
    """The contract's programs as the scheduler sees them."""
    programs: dict[RoundKind, list[ProgramShape]] = {}
    for operation, kind in KINDS.items():
        programs[kind] = [
            ProgramShape(graph.index, graph.name, graph.batch_capacity, graph.packed_token_capacity)
            for graph in _served(contract, operation)
        ]
    return ProgramTable(programs)


def _served(contract: PreparedContract, operation: Operation) -> Sequence[Graph]:
    """The graphs of an operation. Scored programs that leave no scores, as older manifests have them, are of no use."""
    is_useless = operation is Operation.SCORED_PREFILL and not contract.completion.scores_capacity
    return () if is_useless else contract.graphs_of(operation)


def _selected(graphs: Sequence[Graph], operation: Operation, limits: SchedulerLimits) -> Sequence[Graph]:
    """In the order in which the scheduler tries them, all up to the first that holds the largest round."""
    in_order = sorted(graphs, key=lambda graph: (graph.packed_token_capacity, graph.batch_capacity))
    n_lanes = min(limits.max_active, max((graph.batch_capacity for graph in graphs), default=0))
    if operation in _WHOLE_COHORT and n_lanes < limits.max_active:
        have = f"its largest, {in_order[-1].name!r}, takes {n_lanes}" if graphs else "it has none"
        raise ContractError(
            f"the core has no {operation.name.lower()} program for {limits.max_active} requests at once, {have}",
            hint=f"serve with --max-active {n_lanes}" if n_lanes else None,
        )
    n_rows = min(_most_rows(operation, n_lanes, limits), max((g.packed_token_capacity for g in graphs), default=0))
    for count, graph in enumerate(in_order, 1):
        if graph.batch_capacity >= n_lanes and graph.packed_token_capacity >= n_rows:
            return in_order[:count]
    return in_order


def _most_rows(operation: Operation, n_lanes: int, limits: SchedulerLimits) -> int:
    """Packed tokens of the largest round."""
    n_decoding = n_lanes if operation in _WHOLE_COHORT else 0
    n_prompt = limits.prefill_tokens if operation in _PROMPT_FEEDING else 0
    return min(n_decoding + n_prompt, n_lanes * limits.context_tokens)
