"""What a rule of the contract is, and what it looks at.

It knows no rule. A rule reads one `Subject` and yields its violations; rules run in the order of the table in `rules.py`, so
one may rely on what those before it have established.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from helios.contract.schema import contract_pb2, execution_pb2

Violations = Iterator[str]
Value = TypeVar("Value", bound=Hashable)


class Subject:
    """Both messages of a core and their indices by name; of two things with one name the first counts."""

    def __init__(self, serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest) -> None:
        self.serving = serving
        self.model = serving.model
        self.manifest = manifest

    @cached_property
    def programs(self) -> dict[str, execution_pb2.Program]:
        return {program.name: program for program in reversed(self.manifest.programs)}

    @cached_property
    def tuning_programs(self) -> dict[str, execution_pb2.Program]:
        return {program.name: program for program in reversed(self.manifest.tuning_programs)}

    @cached_property
    def destinations(self) -> dict[str, execution_pb2.Destination]:
        return {destination.name: destination for destination in reversed(self.manifest.destinations)}

    @cached_property
    def views(self) -> dict[str, contract_pb2.StateView]:
        return {view.name: view for view in reversed(self.model.state_views)}

    def buffer(self, buffer_id: int) -> execution_pb2.Buffer | None:
        buffers = self.manifest.buffers
        return buffers[buffer_id] if buffer_id < len(buffers) else None

    def graphs(self, *operations: int) -> Iterator[tuple[contract_pb2.GraphContract, execution_pb2.Program]]:
        """Each graph of these operations (of any, when none is given) with its program."""
        for graph in self.model.graphs:
            if not operations or graph.operation in operations:
                yield graph, self.programs[graph.program]

    @cached_property
    def page_table_ids(self) -> frozenset[int]:
        return frozenset(view.buffer for view in self.model.cache.page_tables)


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` yields a sentence for each violation, which names the graph, the binding and the field."""

    id: str
    reason: str
    check: Callable[[Subject], Violations] = field(repr=False)


def rule(id: str, reason: str) -> Callable[[Callable[[Subject], Violations]], Rule]:  # noqa: A002 - the rule's id
    """Turn a generator of violations into a Rule."""
    return lambda check: Rule(id, reason, check)


def repeated(values: Iterable[Value]) -> list[Value]:
    """Every value that has been seen before. There are thousands of lists and hardly ever one, so that is asked natively."""
    listed = list(values)
    first = set(listed)
    if len(first) == len(listed):
        return []
    again = []
    for value in listed:
        if value in first:
            first.remove(value)
        else:
            again.append(value)
    return again
