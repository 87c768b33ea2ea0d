"""What a server must look like when a soak is over: nothing held, nothing grown.

Pure but for two small readers: the rules work on numbers taken from /metrics and /proc. A breach is a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Heap and caches may still settle between a quarter and the end of a run; a leak of 1 KiB a request would be 7 MiB in 7,500.
GROWTH_SHARE = 0.02
GROWTH_BYTES = 4 << 20

ZERO = (
    "requests_waiting",
    "requests_running",
    "requests_admitted",
    "cache_pages_held",
    "rounds_in_flight",
    "requests_failed_total",
)
EQUAL = (("slots_free", "slots"),)
ENDINGS = ("requests_finished_total", "requests_cancelled_total", "requests_failed_total")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a process holds."""

    n_descriptors: int
    n_threads: int
    resident_bytes: int

    @classmethod
    def of(cls, pid: int) -> Resources:
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        n_descriptors = sum(1 for _ in (process / "fd").iterdir())
        return cls(n_descriptors, int(status["Threads"]), int(status["VmRSS"].split()[0]) << 10)


def read_metrics(text: str) -> dict[str, float]:
    """The samples of a /metrics page without their prefix, those of one name added up over their labels."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        sample, _, value = line.rpartition(" ")
        if not line.startswith("#") and value:
            name = sample.partition("{")[0].removeprefix("helios_")
            samples[name] = samples.get(name, 0.0) + float(value)
    return samples


def is_settled(metrics: Mapping[str, float]) -> bool:
    """Whether every request has ended."""
    return all(metrics[name] == 0 for name in ("requests_waiting", "requests_running", "requests_admitted"))


def metric_breaches(metrics: Mapping[str, float]) -> list[str]:
    """Pages, slots and requests that are not back where they began."""
    breaches = [f"{name} is {metrics[name]:,.0f}, not 0" for name in ZERO if metrics[name] != 0]
    breaches += [
        f"{part} is {metrics[part]:,.0f} of {metrics[whole]:,.0f}"
        for part, whole in EQUAL
        if metrics[part] != metrics[whole]
    ]
    n_ended = sum(metrics[name] for name in ENDINGS)
    if n_ended != metrics["requests_submitted_total"]:
        breaches.append(f"{metrics['requests_submitted_total']:,.0f} requests were submitted, {n_ended:,.0f} ended")
    return breaches


def resource_breaches(before: Resources, quarter: Resources, after: Resources) -> list[str]:
    """Descriptors and threads that were not given back, memory that kept growing after the first quarter."""
    breaches = []
    if after.n_descriptors > before.n_descriptors:
        breaches.append(f"{after.n_descriptors} descriptors are open, {before.n_descriptors} were before")
    if after.n_threads > before.n_threads:
        breaches.append(f"{after.n_threads} threads run, {before.n_threads} did before")
    limit_bytes = quarter.resident_bytes * (1 + GROWTH_SHARE) + GROWTH_BYTES
    if after.resident_bytes > limit_bytes:
        mib = [round(resources.resident_bytes / (1 << 20), 1) for resources in (before, quarter, after)]
        breaches.append(f"resident memory went from {mib[0]} to {mib[1]} MiB in the first quarter, then on to {mib[2]}")
    return breaches
