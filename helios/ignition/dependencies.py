"""Derives which nodes of a program must wait for which from the bytes that they read and write.

It knows byte ranges of buffers, nothing of kernels. Two nodes that touch a common byte, at least one of them writing
it, are always ordered, directly or through others; an edge that others imply is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes [start, end) of a buffer that a node touches."""

    buffer: int
    start: int
    end: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        """RAW, WAR or WAW on a common byte."""
        return (self.writes or other.writes) and self.start < other.end and other.start < self.end

    def covers(self, other: Access) -> bool:
        return self.start <= other.start and other.end <= self.end


def dependencies(accesses: Sequence[Sequence[Access]]) -> list[list[int]]:
    """For each node, in order, the earlier nodes that it waits for: ascending, transitively reduced."""
    written = {access.buffer for node in accesses for access in node if access.writes}
    standing: dict[int, list[tuple[int, Access]]] = {buffer: [] for buffer in written}
    ancestors: list[int] = []  # bit sets of node indices
    edges: list[list[int]] = []
    for index, node in enumerate(accesses):
        relevant = [access for access in node if access.buffer in written]
        before = {
            earlier for access in relevant for earlier, other in standing[access.buffer] if access.conflicts(other)
        }
        direct, reached = _reduce(before, ancestors)
        edges.append(direct)
        ancestors.append(reached)
        for access in relevant:
            _stand(standing[access.buffer], index, access)
    return edges


def _reduce(before: Iterable[int], ancestors: Sequence[int]) -> tuple[list[int], int]:
    """Walks the candidates latest first: one that a later candidate already waits for adds nothing."""
    direct: list[int] = []
    reached = 0
    for earlier in sorted(before, reverse=True):
        if not reached >> earlier & 1:
            direct.append(earlier)
            reached |= ancestors[earlier] | 1 << earlier
    return direct[::-1], reached


def _stand(standing: list[tuple[int, Access]], index: int, access: Access) -> None:
    """Notes an access; a write makes every earlier access that it covers irrelevant, since it waits for them itself."""
    if access.writes:
        standing[:] = [(i, other) for i, other in standing if i == index or not access.covers(other)]
    standing.append((index, access))
