"""Reads what the device assembler says about each kernel: registers, spills, stack, shared memory.

It knows the text that `nvcc -Xptxas -v` prints and nothing of compiling. A kernel that the text names and does not describe to
the end is an error, never a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ENTRY = re.compile(r"Compiling entry function '(?:helios_)?(\w+)' for 'sm_(\w+)'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel takes on one architecture. `shared_bytes` is static shared memory, `stack_bytes` local memory."""

    n_registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int


def read_usage(reports: Iterable[Path]) -> dict[tuple[str, str], KernelUsage]:
    """(kernel identifier, architecture such as "90a") -> usage, of all reports together."""
    found: dict[tuple[str, str], KernelUsage] = {}
    for report in reports:
        found |= parse_usage(report.read_text())
    return found


def parse_usage(text: str) -> dict[tuple[str, str], KernelUsage]:
    """The same, of one report's text."""
    found = {}
    starts = list(_ENTRY.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends, strict=True):
        part = text[start.end() : end]
        memory, used, shared = _MEMORY.search(part), _USED.search(part), _SHARED.search(part)
        if memory is None or used is None:
            raise ValueError(f"the report does not describe {start.group(1)} for sm_{start.group(2)}")
        stack, stores, loads = (int(number) for number in memory.groups())
        usage = KernelUsage(int(used.group(1)), stack, stores, loads, int(shared.group(1)) if shared else 0)
        found[start.group(1), start.group(2)] = usage
    return found
