"""The processor that figures are of: figures without it say nothing, and two of them must not be mistaken for each other."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

# What x86 and Arm call the maker, the family and the model.
_NUMBERS = (("vendor_id", "CPU implementer"), ("cpu family", "CPU architecture"), ("model", "CPU part"))
_UNITS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI",
    "avx512_bf16": "BF16",
    "amx_int8": "AMX",
    "asimd": "NEON",
    "asimddp": "dot products",
    "i8mm": "8-bit matrices",
}


@dataclass(frozen=True, slots=True)
class Processor:
    """`name` as it gives itself, which may be a whole family's; `code` tells models apart and can be part of a file's name."""

    name: str
    code: str
    units: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.code}; {', '.join(self.units) or 'no vector units known'})"


def processor(cpuinfo: str | None = None) -> Processor:
    """The first processor of a text like /proc/cpuinfo, by default of this machine's."""
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    numbers = [facts.get(new, facts.get(old, "")) for new, old in _NUMBERS]
    vendor = numbers[0].removeprefix("Genuine").removeprefix("Authentic")
    code = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, [vendor, *numbers[1:]])).lower())
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    units = tuple(unit for flag, unit in _UNITS.items() if flag in flags)
    return Processor(facts.get("model name", "an unnamed processor"), code or platform.machine(), units)
