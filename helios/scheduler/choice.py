"""The program of a round by measured costs, remembered from round to round.

It knows programs and their costs, no lanes. Costs move slowly and looking at all of them takes time in each step, so a choice among
known ones holds for the rounds of its size that follow, for so many of them.
"""

from __future__ import annotations

from helios.errors import InternalError
from helios.scheduler.costs import CostRecord
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.round import ProgramShape

N_ROUNDS_HELD = 32


class ProgramChoice:
    """Chooses for one round after another."""

    def __init__(self, programs: ProgramTable, costs: CostRecord) -> None:
        self._programs = programs
        self._costs = costs
        self._held_for: tuple[RoundKind, int, int] | None = None
        self._held: ProgramShape | None = None
        self._n_rounds_left = 0

    def choose(self, kind: RoundKind, n_lanes: int, n_rows: int, now_s: float) -> tuple[ProgramShape, bool]:
        """The program, and whether what it takes is known. Raises InternalError where none fits."""
        size = kind, n_lanes, n_rows
        program = self._held if size == self._held_for and self._n_rounds_left else None
        if program is None:
            program = self._programs.choose(
                kind, n_lanes, n_rows, lambda shape: self._costs.round_s(shape.index, n_rows, now_s)
            )
            self._n_rounds_left = N_ROUNDS_HELD
        if program is None:
            raise InternalError(f"no {kind.value} program takes {n_lanes} lanes and {n_rows} rows")
        is_known = self._costs.round_s(program.index, n_rows, now_s) is not None
        self._held, self._held_for = program, size if is_known else None
        self._n_rounds_left -= 1
        return program, is_known
