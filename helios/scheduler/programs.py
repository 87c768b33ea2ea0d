"""The captured programs by operation, smallest first, and the choice of the one that fits a round.

It knows shapes only. The chosen program is the smallest that holds the lanes and the rows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from helios.errors import ContractError
from helios.scheduler.round import ProgramShape


class RoundKind(enum.Enum):
    """The operations that the scheduler launches."""

    INITIALIZE = "initialize"
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class ProgramTable:
    """Programs of each kind in ascending size. Raises ContractError where a kind that serving needs is missing."""

    def __init__(self, programs: Mapping[RoundKind, Iterable[ProgramShape]]) -> None:
        self._programs = {
            kind: sorted(programs.get(kind, ()), key=lambda p: (p.packed_token_capacity, p.batch_capacity))
            for kind in RoundKind
        }
        for kind, shapes in self._programs.items():
            if not shapes:
                raise ContractError(f"the core has no {kind.value} program")

    def lanes(self, kind: RoundKind) -> int:
        """Most lanes that one program of this kind takes."""
        return max(p.batch_capacity for p in self._programs[kind])

    def rows(self, kind: RoundKind, n_lanes: int = 1) -> int:
        """Most packed tokens of one program of this kind that takes `n_lanes` lanes; 0 when there is none."""
        return max((p.packed_token_capacity for p in self._programs[kind] if p.batch_capacity >= n_lanes), default=0)

    def choose(self, kind: RoundKind, n_lanes: int, n_rows: int) -> ProgramShape | None:
        """The smallest program that holds `n_lanes` and `n_rows`, or None."""
        for shape in self._programs[kind]:
            if shape.batch_capacity >= n_lanes and shape.packed_token_capacity >= n_rows:
                return shape
        return None
