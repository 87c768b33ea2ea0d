"""How long the parts may take: each has to end by its time after the start, so what one leaves over is for those behind it.

It knows no part. What found no time is remembered, to be told.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeLimit:
    """The clock of one run. `begin_part` sets the time that `allows` and `left_s` go by."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._ends_s = float("inf")
        self.left_out: list[str] = []

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._began_s

    @property
    def left_s(self) -> float:
        """Until this part has to end; never negative."""
        return max(0.0, self._ends_s - self.elapsed_s)

    def begin_part(self, ends_s: float) -> None:
        """The part that begins has to end so long after the start of the run."""
        self._ends_s = ends_s

    def allows(self, what: str) -> bool:
        """Whether there is time to begin `what`, which is left out otherwise."""
        if self.left_s:
            return True
        self.left_out.append(what)
        return False
