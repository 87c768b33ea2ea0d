"""What the machine itself could do with these weights: the bounds that a figure is read against.

It knows no contender. Decode of one stream reads every weight byte once a token; prefill does each matrix's multiply-adds
once a token, the head's once a prompt. `floor.c` measures both rates in the same rounds as the figures.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("floor.c")
PROGRAM = ROOT / "build" / "bench" / "floor"


@dataclass(slots=True)
class Floors:
    """Rates of the machine, one of each a round, for a model of the given size."""

    weight_bytes: int
    n_parameters: int
    n_head_parameters: int
    n_threads: int
    read_bytes_per_s: list[float] = field(default_factory=list)
    multiply_adds_per_s: list[float] = field(default_factory=list)

    def compile(self) -> None:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O3", "-march=native", SOURCE, "-o", PROGRAM, "-lpthread"], check=True)

    def take(self) -> None:
        """Measure the machine once, now."""
        output = subprocess.run([PROGRAM, str(self.weight_bytes), str(self.n_threads)], check=True, capture_output=True)
        rates = json.loads(output.stdout)
        self.read_bytes_per_s.append(rates["read_bytes_per_s"])
        self.multiply_adds_per_s.append(rates["multiply_adds_per_s"])

    def prefill_multiply_adds(self, n_tokens: int) -> int:
        """Of a prompt's matrices; attention and norms left out. The embedding is a lookup; the head sees the last token only."""
        return (self.n_parameters - self.n_head_parameters) * n_tokens + self.n_head_parameters

    def report(self, product: dict[str, list[float]]) -> dict[str, Any]:
        """Bounds in tokens/s, and the median over rounds of the product's share of each."""
        decode = [rate / self.weight_bytes for rate in self.read_bytes_per_s]
        prefill = [rate * 512 / self.prefill_multiply_adds(512) for rate in self.multiply_adds_per_s]
        report: dict[str, Any] = {
            "weight_bytes": self.weight_bytes,
            "read_bytes_per_s": statistics.median(self.read_bytes_per_s),
            "multiply_adds_per_s": statistics.median(self.multiply_adds_per_s),
            "decode_1": statistics.median(decode),
            "prefill_512": statistics.median(prefill),
        }
        for name, bounds in (("decode_1", decode), ("prefill_512", prefill)):
            if name in product:
                shares = [value / bound for value, bound in zip(product[name], bounds, strict=True)]
                report[f"{name}_share"] = statistics.median(shares)
        return report
