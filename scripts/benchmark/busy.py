"""What a program keeps of its speed while another one wants the same processors.

It knows contenders only by `take`. Speed with and without the other program is taken back to back: only their quotient is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext

from scripts.benchmark.contenders import Contender


class BusyLoop:
    """One process that computes all the while it is open, bound to no processor."""

    def __init__(self) -> None:
        self._child = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def __enter__(self) -> BusyLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()


def is_scheduled_ordinarily() -> bool:
    """Whether a busy loop started from here shares processors; at real-time priority it would keep one to itself."""
    return os.sched_getscheduler(0) == os.SCHED_OTHER


def share_kept(running: Contender, n_streams: int, n_new_tokens: int, is_busy_first: bool) -> float:
    """Tokens a second beside a busy loop, divided by tokens a second without one."""
    name = f"decode_{n_streams}"
    speed: dict[bool, float] = {}
    for is_busy in (is_busy_first, not is_busy_first):
        with BusyLoop() if is_busy else nullcontext():
            speed[is_busy] = running.take(name, n_new_tokens)
    return speed[True] / speed[False]
