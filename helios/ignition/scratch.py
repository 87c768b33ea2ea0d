"""Places temporary values in one scratch buffer so that values which are alive at the same time never share a byte.

It knows lifetimes and sizes, nothing of kernels. The plan depends on its input alone: the same lifetimes give the same
offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SCRATCH_ALIGNMENT = 256  # of every value: what CUDA promises for an allocation


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value of `nbytes` bytes, alive from node `first` to node `last`, both included."""

    first: int
    last: int
    nbytes: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class ScratchPlan:
    """An offset for each lifetime, in the order given, and the bytes that hold them all."""

    offsets: tuple[int, ...]
    nbytes: int


def plan_scratch(lifetimes: Sequence[Lifetime]) -> ScratchPlan:
    """Largest first, each at the lowest offset that is free during its life: near the optimum for chains of layers."""
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i)):
        life = lifetimes[index]
        busy = sorted((offsets[i], offsets[i] + lifetimes[i].nbytes) for i in placed if lifetimes[i].meets(life))
        offset = _lowest_gap(busy, life.nbytes)
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + life.nbytes)
    return ScratchPlan(tuple(offsets), _align(total))


def _lowest_gap(busy: list[tuple[int, int]], nbytes: int) -> int:
    offset = 0
    for start, end in busy:
        if offset + nbytes <= start:
            break
        offset = max(offset, _align(end))
    return offset


def _align(offset: int) -> int:
    return -(-offset // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
