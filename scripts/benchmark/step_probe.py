"""A probe on a model worker: what each part of a decode step costs its thread, and what every thread of the process spends.

It knows which calls a step is made of and wraps them where the worker finds them; nothing in the product knows of it. Parts are
counted in processor time, which others on the machine do not add to. Only steps that decode as many streams as were asked for
count, from the first to the last of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helios.engine import Engine

PARTS = ("plan", "launch", "deliver", "wait", "read", "retire")  # in the order of a step
_STEPS_BETWEEN_LOOKS = 32  # at all threads of the process: a look is dear


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """A thread's microseconds a step: running, and ready to run while it had no processor."""

    running_us: float
    ready_us: float


@dataclass(frozen=True, slots=True)
class Steps:
    """What so many steps took, each figure a mean. `starved`: the share of launches before which the device was out of work."""

    n_steps: int
    wall_us: float
    parts_us: dict[str, float]
    threads: dict[str, ThreadUse]
    starved: float


class StepProbe:
    """Wraps a worker for good. `begin` starts to count the steps of so many streams, `end` says what they took."""

    def __init__(self, engine: Engine) -> None:
        worker: Any = engine._worker
        self._runtime: Any = worker._runtime
        self._wrap(worker._scheduler, "plan", "plan")
        self._wrap(self._runtime, "launch", "launch", before=self._look_at_device)
        self._wrap(worker, "_deliver", "deliver")
        self._wrap(worker._scheduler, "retire", "retire")
        for frame in self._runtime._frames:
            frame._event = _TimedEvent(frame._event, self)
        self._complete = self._runtime.complete
        self._runtime.complete = self._completed
        self.begin(0)

    def begin(self, n_lanes: int) -> None:
        self.spent_ns: dict[str, int] = defaultdict(int)
        self._n_lanes = n_lanes
        self._n_steps = self._n_launches = self._n_starved = 0
        self._looks: list[_Look] = []

    def end(self) -> Steps:
        if len(self._looks) < 2:
            raise SystemExit(f"{self._n_steps} steps of {self._n_lanes} streams are too few")
        first, last = self._looks[0], self._looks[-1]
        n_steps = last.n_steps - first.n_steps
        us_a_step = 1e-3 / n_steps
        threads: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for thread, after in last.threads_ns.items():
            before = first.threads_ns.get(thread, (0, 0))
            for i in range(2):
                threads[thread[1]][i] += (after[i] - before[i]) * us_a_step
        return Steps(
            n_steps,
            (last.at_ns - first.at_ns) * us_a_step,
            {part: (last.spent_ns[part] - first.spent_ns[part]) * us_a_step for part in PARTS},
            {name: ThreadUse(*use) for name, use in sorted(threads.items())},
            (last.n_starved - first.n_starved) / (last.n_launches - first.n_launches),
        )

    def _wrap(self, owner: Any, name: str, part: str, before: Callable[[], None] | None = None) -> None:
        call = getattr(owner, name)

        def timed(*arguments: Any) -> Any:
            if before is not None:
                before()
            began_ns = time.thread_time_ns()
            result = call(*arguments)
            self.spent_ns[part] += time.thread_time_ns() - began_ns
            return result

        setattr(owner, name, timed)

    def _look_at_device(self) -> None:
        """Right before a launch: has all that was launched before it ended?"""
        self._n_launches += 1
        self._n_starved += all(frame._event.is_done() for frame, _ in self._runtime._in_flight)

    def _completed(self) -> Any:
        began_ns, waited_ns = time.thread_time_ns(), self.spent_ns["wait"]
        round_, completions = self._complete()
        self.spent_ns["read"] += time.thread_time_ns() - began_ns - (self.spent_ns["wait"] - waited_ns)
        if len(round_.lanes) == self._n_lanes and not any(lane.is_prompt for lane in round_.lanes):
            if self._n_steps % _STEPS_BETWEEN_LOOKS == 0:
                self._looks.append(self._look())
            self._n_steps += 1
        return round_, completions

    def _look(self) -> _Look:
        spent_ns = {part: self.spent_ns[part] for part in PARTS}
        at_ns = time.perf_counter_ns()
        return _Look(at_ns, self._n_steps, self._n_launches, self._n_starved, spent_ns, _threads_ns())


class _TimedEvent:
    """A frame's event whose waits are counted."""

    def __init__(self, event: Any, probe: StepProbe) -> None:
        self._event = event
        self._probe = probe

    def synchronize(self) -> None:
        began_ns = time.thread_time_ns()
        self._event.synchronize()
        self._probe.spent_ns["wait"] += time.thread_time_ns() - began_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)


_Thread = tuple[str, str]  # its number and its name


@dataclass(frozen=True, slots=True)
class _Look:
    at_ns: int
    n_steps: int
    n_launches: int
    n_starved: int
    spent_ns: dict[str, int]
    threads_ns: dict[_Thread, tuple[int, int]]


def _threads_ns() -> dict[_Thread, tuple[int, int]]:
    """How long each thread has run, and how long it was ready to run and had no processor."""
    names = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    threads = {}
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        running_ns, ready_ns, _ = (task / "schedstat").read_text().split()
        name = names.get(task.name) or (task / "comm").read_text().strip()
        threads[task.name, name] = int(running_ns), int(ready_ns)
    return threads
