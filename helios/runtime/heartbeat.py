"""Whether the model worker still gets on: it beats with every step, and a watch on a thread of its own looks for the beats.

It knows no device and no request. Looks are counted and not seconds, so a process that was stopped as a whole has missed nothing;
a worker that rests, because nothing is asked of it, owes no beat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_N_LOOKS = 20  # without a beat, until the worker counts as stuck: late by a twentieth of the limit at most


class Heartbeat:
    """What the worker shows. One thread writes, any may read."""

    def __init__(self) -> None:
        self.n_beats = 0
        self.is_resting = True

    def beat(self) -> None:
        """Work goes on."""
        self.n_beats += 1
        self.is_resting = False

    def rest(self) -> None:
        """There is no work; the next beat ends the rest."""
        self.is_resting = True


class Watch:
    """Calls `on_stall` once, on its own thread, when work has gone on for `limit_s` without a beat. `stop` ends it unsaid."""

    def __init__(self, heartbeat: Heartbeat, limit_s: float, on_stall: Callable[[], None]) -> None:
        self._heartbeat = heartbeat
        self._period_s = limit_s / _N_LOOKS
        self._on_stall = on_stall
        self._n_beats_seen = 0
        self._n_looks = 0
        self._is_told = threading.Event()
        self._thread = threading.Thread(target=self._run, name="helios-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Does not wait, so that `on_stall` may come here."""
        self._is_told.set()

    def look(self) -> bool:
        """One look, a period after the last. True when the worker is stuck."""
        if self._heartbeat.is_resting or self._heartbeat.n_beats != self._n_beats_seen:
            self._n_beats_seen = self._heartbeat.n_beats
            self._n_looks = 0
            return False
        self._n_looks += 1
        return self._n_looks >= _N_LOOKS

    def _run(self) -> None:
        while not self._is_told.wait(self._period_s):
            if self.look():
                self._on_stall()
                return
