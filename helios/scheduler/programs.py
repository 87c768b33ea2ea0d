"""The captured programs by operation, smallest first, and the choice of the one that fits a round.

It knows shapes and measured costs only. Where nothing was measured, the smallest program that holds the lanes and the rows is
chosen.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from helios.errors import ContractError
from helios.scheduler.round import ProgramShape


class RoundKind(enum.Enum):
    """The operations that the scheduler launches."""

    INITIALIZE = "initialize"
    RESTORE = "restore"
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"
    SNAPSHOT = "snapshot"
    SCORED_PREFILL = "scored_prefill"


# How many of the smallest programs that fit a round are tried to learn what they cost.
N_PROBED = 2

# Without these a core serves: it reuses prefixes at whole pages only, and scores no prompts.
OPTIONAL = frozenset({RoundKind.RESTORE, RoundKind.SNAPSHOT, RoundKind.SCORED_PREFILL})


class ProgramTable:
    """Programs of each kind in ascending size. Raises ContractError where a kind that serving needs is missing."""

    def __init__(self, programs: Mapping[RoundKind, Iterable[ProgramShape]]) -> None:
        self._programs = {
            kind: sorted(programs.get(kind, ()), key=lambda p: (p.packed_token_capacity, p.batch_capacity))
            for kind in RoundKind
        }
        for kind, shapes in self._programs.items():
            if not shapes and kind not in OPTIONAL:
                raise ContractError(f"the core has no {kind.value} program")

    def lanes(self, kind: RoundKind) -> int:
        """Most lanes that one program of this kind takes; 0 when there is none."""
        return max((p.batch_capacity for p in self._programs[kind]), default=0)

    def rows(self, kind: RoundKind, n_lanes: int = 1) -> int:
        """Most packed tokens of one program of this kind that takes `n_lanes` lanes; 0 when there is none."""
        return max((p.packed_token_capacity for p in self._programs[kind] if p.batch_capacity >= n_lanes), default=0)

    def n_most_starting(self, n_rows: int) -> int:
        """How many prompts may be under way at once, so that one submission can start them all, also from snapshots where the cache
        has `n_rows` of them. Raises ContractError when they could not be restored."""
        n_most = min(self.lanes(RoundKind.PREFILL), self.lanes(RoundKind.INITIALIZE))
        if not n_rows:
            return n_most
        if not self.lanes(RoundKind.RESTORE):
            raise ContractError(f"the cache has {n_rows} snapshot rows, the core has no restore program")
        return min(n_most, self.lanes(RoundKind.RESTORE))

    def choose(
        self,
        kind: RoundKind,
        n_lanes: int,
        n_rows: int,
        cost_s: Callable[[ProgramShape], float | None] = lambda shape: None,
    ) -> ProgramShape | None:
        """The cheapest program that holds `n_lanes` and `n_rows`, or None. Of the two smallest, one of unknown cost is taken,
        so that it becomes known; larger ones compete once other rounds have measured them."""
        best: ProgramShape | None = None
        best_s = 0.0
        n_fit = 0
        for shape in self._programs[kind]:
            if shape.batch_capacity < n_lanes or shape.packed_token_capacity < n_rows:
                continue
            n_fit += 1
            duration_s = cost_s(shape)
            if duration_s is None:
                if n_fit <= N_PROBED:
                    return shape
            elif best is None or duration_s < best_s:
                best, best_s = shape, duration_s
        return best
