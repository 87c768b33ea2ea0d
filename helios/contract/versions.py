"""Older versions of the model contract, read as the current one: the single place where a version makes a difference.

It knows which fields a version lacks and what their absence means, and nothing about graphs or buffers beyond that. What comes out
has the fields of version 3, and an older contract says nothing that its own version could not say.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.contract.rule import Violations
from helios.contract.schema import contract_pb2 as contract
from helios.contract.schema import execution_pb2 as execution
from helios.errors import ContractError

VERSIONS = (1, 2, 3)

_SELECTORS = {
    "tool_syntax": contract.TOOL_SYNTAX_NONE,
    "reasoning_syntax": contract.REASONING_SYNTAX_NONE,
    "image_preparation": contract.IMAGE_PREPARATION_NONE,
    "image_layout": contract.IMAGE_LAYOUT_NONE,
}
_SYNTAX_DATA = ("tool_markers", "reasoning_markers", "assistant", "image_tokens")


def upgrade(serving: contract.ServingContract) -> contract.ServingContract:
    """The contract with the fields of version 3; the version number stays. Raises ContractError.

    A field that the version lacks may be absent or say what its absence means.
    """
    version = serving.model.version
    if version not in VERSIONS:
        raise ContractError(
            f"model contract version {version} is unknown, versions 1, 2 and 3 are served", hint="use a newer Helios"
        )
    upgraded = contract.ServingContract()
    upgraded.CopyFrom(serving)
    for step in _STEPS[version - 1 :]:
        for problem in step(upgraded):
            raise ContractError(f"{problem}, which version {version} of the model contract does not have")
    return upgraded


def _from_1(serving: contract.ServingContract) -> Violations:
    """Version 1: every id that may be fed may be sampled, one token a step, no tuned buffers."""
    model = serving.model
    if model.input_vocabulary not in (0, model.vocabulary):
        yield f"field 'input_vocabulary' is {model.input_vocabulary:,} beside a vocabulary of {model.vocabulary:,}"
    model.input_vocabulary = model.vocabulary
    if serving.speculative_widths:
        yield f"field 'speculative_widths' has {serving.speculative_widths[0]}"
    if model.cache.HasField("draft_cursor"):
        yield "cache, field 'draft_cursor' is given"
    for graph in model.graphs:
        if graph.operation == execution.OPERATION_SPECULATIVE:
            yield f"graph {graph.program!r}, field 'operation' is SPECULATIVE"
        if graph.tuned_bindings:
            yield f"graph {graph.program!r}, field 'tuned_bindings' is given"


def _from_2(serving: contract.ServingContract) -> Violations:
    """Version 2: text only, and output is passed on as it is generated."""
    model = serving.model
    if model.HasField("vision"):
        yield "field 'vision' is given"
    if not model.HasField("frontend"):
        return
    frontend = model.frontend
    for name, none in _SELECTORS.items():
        if getattr(frontend, name) not in (0, none):
            yield f"frontend, field {name!r} is {getattr(frontend, name)}"
        setattr(frontend, name, none)
    for name in _SYNTAX_DATA:
        if frontend.HasField(name):
            yield f"frontend, field {name!r} is given"
    if frontend.prefix_boundaries:
        yield "frontend, field 'prefix_boundaries' is given"


# Step i reads version i + 1 as the next one.
_STEPS: tuple[Callable[[contract.ServingContract], Violations], ...] = (_from_1, _from_2)
