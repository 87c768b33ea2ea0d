"""A model worker that is held before its next round, so that what runs does not end by itself, however late its reader is."""

from __future__ import annotations

import time
from math import inf
from typing import ClassVar

from helios.runtime.worker import ModelWorker


class HeldWorker(ModelWorker):
    """Retires `n_rounds`, then only takes commands."""

    n_rounds: ClassVar[float] = inf
    n_retired = 0

    def _retire(self) -> None:
        while self.n_retired >= self.n_rounds and not self._is_stopping:
            self._take_commands(may_sleep=False)
            time.sleep(0.002)
        self.n_retired += 1
        super()._retire()
