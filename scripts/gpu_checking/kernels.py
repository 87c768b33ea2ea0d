"""Kernels beside their floors.

A floor is the larger of two times: the bytes that have to be read and written once at the measured copy rate, and the
operations at the measured matmul rate. What fits in a GPU's cache can be faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.device.device import Device
from scripts.gpu_checking.cases import Case, Shapes, cases
from scripts.gpu_checking.launches import Stopwatch

MATMUL = "linear.bf16.g16k8.1"


@dataclass(frozen=True)
class Rates:
    """What the device was measured to do."""

    bytes_per_s: float
    operations_per_s: float
    matmul: str  # whose

    def floor_s(self, n_bytes: float, n_operations: float) -> float:
        return max(n_bytes / self.bytes_per_s, n_operations / self.operations_per_s)

    def __str__(self) -> str:
        return (
            f"copy {self.bytes_per_s / 1e9:,.1f} GB/s read and written; matmul {self.operations_per_s / 1e12:,.3f} TFLOP/s "
            f"({self.matmul})"
        )


@dataclass(frozen=True)
class Timed:
    """A kernel's time and its floor."""

    what: str
    time_s: float
    floor_s: float

    def __str__(self) -> str:
        share = self.floor_s / self.time_s
        return f"{self.what:56} {self.time_s * 1e6:10.1f} {self.floor_s * 1e6:10.2f} {share:8.0%}"


# The operations' rate is of bf16 on the matrix unit, also for kernels that do not use it.
HEADING = f"{'kernel':56} {'us':>10} {'floor us':>10} {'reached':>8}"


def rates(device: Device, stopwatch: Stopwatch, shapes: Shapes) -> Rates:
    """The copy rate, and the rate of a large bf16 matmul: torch's when it is installed, else the product's own."""
    bytes_per_s = stopwatch.copy_bytes_per_s()
    found = _torch_operations_per_s(4096) if device.name.startswith("cuda") else None
    if found is not None:
        return Rates(bytes_per_s, found, "torch's")
    case = list(cases([MATMUL], shapes))[-1]
    return Rates(
        bytes_per_s, case.operations / stopwatch.time_s(case), "its own kernel's, no floor: torch is not installed"
    )


def _torch_operations_per_s(side: int) -> float | None:
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    a = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
    n_times = 20
    best_ms = float("inf")
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n_times):
            a @ a
        end.record()
        torch.cuda.synchronize()
        best_ms = min(best_ms, begin.elapsed_time(end) / n_times)
    return float(2e3 * side**3 / best_ms)


def timed(device: Device, stopwatch: Stopwatch, found: Rates, case: Case) -> Timed:
    """One launch beside its floor."""
    floor_s = found.floor_s(case.moved_nbytes(device.kernels.table), case.operations)
    return Timed(str(case), stopwatch.time_s(case), floor_s)
