"""Kernels: their tests run on the device in question, and the heavy ones are timed beside their floors.

A floor is the larger of two times: the bytes that have to be read and written once at the measured copy rate, and the
operations at the measured matmul rate. It knows shapes, not models.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helios.device.device import Device
from scripts.gpu_checking.launches import Effort, copy_bytes_per_s, node_s
from tests.kernels.formats import bf16_rows_nbytes, random_weights
from tests.kernels.paged import Cache

ROOT = Path(__file__).resolve().parents[2]
MATMUL = "linear.bf16.g16k8.1"


@dataclass(frozen=True)
class Shapes:
    """What is timed. `copy_nbytes` is of the copy rate, `square` a side of the matmul rate; attention is by (heads, KV heads, head
    dimension), `context` tokens of each of `lanes` at once."""

    copy_nbytes: int
    square: int
    linear: tuple[int, int]  # outputs, inputs
    rows: tuple[int, ...]
    heads: tuple[int, int, int]
    lanes: int
    context: int
    effort: Effort


GPU = Shapes(1 << 30, 4096, (8192, 4096), (1, 32, 512), (32, 8, 128), 32, 1024, Effort(32, 5, 1 << 28))
TINY = Shapes(1 << 16, 64, (64, 64), (1, 3), (4, 2, 16), 2, 32, Effort(2, 1, 0))


@dataclass(frozen=True)
class Rates:
    """What the device was measured to do."""

    bytes_per_s: float
    operations_per_s: float
    matmul: str  # whose

    def floor_s(self, n_bytes: float, n_operations: float) -> float:
        return max(n_bytes / self.bytes_per_s, n_operations / self.operations_per_s)


@dataclass(frozen=True)
class Timed:
    """A kernel's time and its floor."""

    what: str
    time_s: float
    floor_s: float


def failures(target: str, tests: Path) -> tuple[str, list[str]]:
    """The tests of the kernels on `target`, cuda or simt: pytest's last line, and those that failed, or the reason why none ran."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-k", target, str(tests)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).splitlines() or ["pytest said nothing"]
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    return lines[-1], failed if result.returncode in (0, 1) else [lines[-1], *failed]


def rates(device: Device, shapes: Shapes) -> Rates:
    """The copy rate, and the rate of a square bf16 matmul: torch's when it is installed, else the product's own."""
    bytes_per_s = copy_bytes_per_s(device, shapes.copy_nbytes, shapes.effort)
    side = shapes.square
    elapsed_s = _torch_matmul_s(side) if device.name.startswith("cuda") else None
    if elapsed_s is not None:
        return Rates(bytes_per_s, 2 * side**3 / elapsed_s, "torch's")
    elapsed_s = node_s(device, MATMUL, _linear(MATMUL, side, side, side), shapes.effort)
    return Rates(bytes_per_s, 2 * side**3 / elapsed_s, "its own kernel's, no floor: torch is not installed")


def _torch_matmul_s(side: int) -> float | None:
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
    return best_ms / 1000


def timed(device: Device, shapes: Shapes, found: Rates) -> Iterator[Timed]:
    """Every heavy kernel."""
    n_out, n_in = shapes.linear
    for layout in ("q4_1.g16k8", "q4_0.g16k8", "q8_0.g16k8", "bf16.g16k8", "f16.g16k8"):
        for n_rows in shapes.rows:
            yield _timed_linear(device, f"linear.{layout}.1", n_rows, n_out, n_in, shapes.effort, found)
    for n_rows in shapes.rows:
        yield _timed_linear(device, "linear_silu_gate.q4_1.g16k8.1", n_rows, n_out, n_in, shapes.effort, found)
    for kv in ("bf16", "q8"):
        yield _timed_attention(device, kv, shapes, found, is_prompt=False)
        yield _timed_attention(device, kv, shapes, found, is_prompt=True)


def _linear(name: str, n_rows: int, n_out: int, n_in: int) -> dict[str, Any]:
    layout = name.split(".", 1)[1].rsplit(".", 1)[0]
    is_gate = name.startswith("linear_silu_gate")
    weights = random_weights(layout, n_out, n_in, np.random.default_rng(1))
    n_outputs = n_out // 2 if is_gate else n_out
    return {
        "n_rows": np.array([n_rows, 0, 0, 0], np.int32),
        "x": np.zeros(bf16_rows_nbytes(n_rows, n_in), np.uint8),
        "weight": weights.packed,
        "y": 0,
        "rows_capacity": n_rows,
        "n_in": n_in,
        "n_out": n_outputs,
        "y_stride": n_outputs,
    }


def _timed_linear(device: Device, name: str, n_rows: int, n_out: int, n_in: int, effort: Effort, found: Rates) -> Timed:
    given = _linear(name, n_rows, n_out, n_in)
    n_bytes = given["weight"].nbytes + given["x"].nbytes + 4 * n_rows * given["n_out"]
    floor_s = found.floor_s(n_bytes, 2.0 * n_rows * n_out * n_in)
    return Timed(f"{name.removesuffix('.1')} {n_rows} x {n_out} x {n_in}", node_s(device, name, given, effort), floor_s)


def _timed_attention(device: Device, kv: str, shapes: Shapes, found: Rates, *, is_prompt: bool) -> Timed:
    """Decode: a row of each lane at the end of its context. Prompt: all rows of one context, each over those before it."""
    n_heads, n_kv_heads, head_dim = shapes.heads
    n_slots = 1 if is_prompt else shapes.lanes
    cache = Cache(1, 1, n_kv_heads, head_dim, np.random.default_rng(1), kv)
    n_rows = shapes.context if is_prompt else shapes.lanes
    pages_per_slot = -(-shapes.context // 16)
    n_pages = n_slots * pages_per_slot
    last = shapes.context - 1
    given: dict[str, Any] = {
        "counts": np.array([n_rows, n_slots, 0, 0], np.int32),
        "row_position": np.arange(n_rows, dtype=np.int32) if is_prompt else np.full(n_rows, last, np.int32),
        "row_slot": np.zeros(n_rows, np.int32) if is_prompt else np.arange(n_rows, dtype=np.int32),
        "page_table": np.random.default_rng(1).permutation(n_pages).astype(np.int32),
        "qkv": 0,
        "kv": 0,
        "rows_capacity": n_rows,
        "n_slots": n_slots,
        "pages_per_slot": pages_per_slot,
        "n_pages": n_pages,
        "page_stride": cache.part_nbytes,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "head_dim": head_dim,
    }
    name = f"attention.{kv}.1" if is_prompt else f"attention_split.{kv}.1"
    outputs = {"out": 0} if is_prompt else {"partials": 0, "max_segments": -(-pages_per_slot * 16 // 256)}
    n_pairs = n_rows * (n_rows + 1) // 2 if is_prompt else n_rows * shapes.context
    n_bytes = n_pages * cache.part_nbytes + 8 * n_rows * n_heads * head_dim
    floor_s = found.floor_s(n_bytes, 4.0 * n_pairs * n_heads * head_dim)
    what = f"{name.removesuffix('.1')} {n_rows} rows over {shapes.context}"
    return Timed(what, node_s(device, name, given | outputs, shapes.effort), floor_s)
