"""For how long a choice of program holds."""

from __future__ import annotations

import pytest

from helios.errors import InternalError
from helios.scheduler.choice import N_ROUNDS_HELD, ProgramChoice
from helios.scheduler.costs import STALE_S, CostRecord
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.round import ProgramShape

DECODE = [ProgramShape(n, f"d{n}", n, n) for n in (4, 8)]
OTHERS = {
    kind: [ProgramShape(0, kind.value, 4, 64)] for kind in (RoundKind.INITIALIZE, RoundKind.PREFILL, RoundKind.MIXED)
}


def start(costs_s: dict[int, float]) -> tuple[ProgramChoice, CostRecord]:
    costs = CostRecord()
    for program, duration_s in costs_s.items():
        costs.observe_round(program, 3, duration_s, 0.0)
    return ProgramChoice(ProgramTable({RoundKind.DECODE: DECODE, **OTHERS}), costs), costs


def test_a_choice_among_known_costs_holds_for_so_many_rounds() -> None:
    choice, costs = start({4: 1.0, 8: 2.0})
    names = []
    for _ in range(2 * N_ROUNDS_HELD):
        program, is_known = choice.choose(RoundKind.DECODE, 3, 3, 1.0)
        assert is_known
        names.append(program.name)
        costs.observe_round(4, 3, 9.0, 1.0)
    assert names == ["d4"] * N_ROUNDS_HELD + ["d8"] * N_ROUNDS_HELD


def test_a_round_that_no_program_takes_is_refused() -> None:
    """RT-7: a missing variant is named."""
    choice, _ = start({4: 1.0, 8: 2.0})
    with pytest.raises(InternalError, match="no decode program takes 9 lanes and 9 rows"):
        choice.choose(RoundKind.DECODE, 9, 9, 1.0)


def test_another_size_is_chosen_for_anew() -> None:
    choice, _ = start({4: 1.0, 8: 2.0})
    assert [choice.choose(RoundKind.DECODE, n, n, 1.0)[0].name for n in (3, 5, 3)] == ["d4", "d8", "d4"]


def test_unknown_costs_are_measured_one_after_the_other() -> None:
    """Of the two smallest an unknown one is taken, and the next as soon as that is known."""
    choice, costs = start({})
    found = []
    for _ in range(3):
        program, is_known = choice.choose(RoundKind.DECODE, 3, 3, 1.0)
        found.append((program.name, is_known))
        costs.observe_round(program.index, 3, float(program.index), 1.0)
    assert found == [("d4", False), ("d8", False), ("d4", True)]


def test_a_held_choice_that_grows_stale_is_unknown() -> None:
    """SPEC-7: then the round needs its completion before another may follow."""
    choice, _ = start({4: 1.0, 8: 2.0})
    assert choice.choose(RoundKind.DECODE, 3, 3, STALE_S)[1]
    assert not choice.choose(RoundKind.DECODE, 3, 3, STALE_S + 1.0)[1]
