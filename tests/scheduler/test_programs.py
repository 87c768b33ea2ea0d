"""Which program takes a round."""

from __future__ import annotations

import pytest

from helios.errors import ContractError
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.round import ProgramShape

SHAPES = {
    RoundKind.INITIALIZE: [ProgramShape(0, "i", 4, 0)],
    RoundKind.PREFILL: [ProgramShape(1, "p64", 1, 64), ProgramShape(2, "p256", 4, 256)],
    RoundKind.DECODE: [ProgramShape(n, f"d{n}", n, n) for n in (16, 8, 4)],
    RoundKind.MIXED: [ProgramShape(3, "m", 16, 256)],
}
TABLE = ProgramTable(SHAPES)


def chosen(n_lanes: int, costs_s: dict[int, float]) -> str:
    program = TABLE.choose(RoundKind.DECODE, n_lanes, n_lanes, lambda shape: costs_s.get(shape.index))
    assert program is not None
    return program.name


def test_without_measurement_the_smallest_that_fits_is_chosen() -> None:
    assert [chosen(n, {}) for n in (1, 4, 5, 9)] == ["d4", "d4", "d8", "d16"]
    assert TABLE.choose(RoundKind.DECODE, 17, 17) is None


def test_of_measured_programs_the_cheapest_is_chosen() -> None:
    """Programs are chosen from measured costs: of the two smallest an unknown one is measured first, larger ones are not tried."""
    assert chosen(3, {4: 1.0}) == "d8"
    assert chosen(3, {4: 1.0, 8: 2.0}) == "d4"
    assert chosen(3, {4: 2.0, 8: 1.0}) == "d8"
    assert chosen(3, {4: 2.0, 8: 1.0, 16: 0.5}) == "d16"
    assert chosen(3, {8: 1.0, 16: 0.5}) == "d4"


@pytest.mark.parametrize("missing", [RoundKind.INITIALIZE, RoundKind.PREFILL, RoundKind.DECODE, RoundKind.MIXED])
def test_a_core_without_a_kind_that_serving_needs_is_refused(missing: RoundKind) -> None:
    """RT-7: a missing graph variant fails the start."""
    with pytest.raises(ContractError, match=missing.value):
        ProgramTable({kind: shapes for kind, shapes in SHAPES.items() if kind is not missing})


def test_snapshot_rows_without_a_restore_program_are_refused() -> None:
    """RT-7: an inconsistent start fails at the start, not at the first hit."""
    assert TABLE.n_most_starting(0) == 4
    with pytest.raises(ContractError, match="restore"):
        TABLE.n_most_starting(2)
    with_restore = ProgramTable({**SHAPES, RoundKind.RESTORE: [ProgramShape(9, "r", 2, 0)]})
    assert with_restore.n_most_starting(2) == 2
