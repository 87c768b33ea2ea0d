"""What a server process has spent and holds, by Linux's books in /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.soaking.audit import Resources


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds of the thread that runs the event loop (the first) and of all threads since the start; memory and descriptors
    now."""

    loop_s: float
    all_s: float
    resident_bytes: int
    n_descriptors: int

    @classmethod
    def of(cls, pid: int) -> Costs:
        resources = Resources.of(pid)
        times_s = {int(task.name): _cpu_s(task) for task in Path(f"/proc/{pid}/task").iterdir()}
        return cls(times_s[pid], sum(times_s.values()), resources.resident_bytes, resources.n_descriptors)


def _cpu_s(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except OSError:  # it ended meanwhile
        return 0.0
