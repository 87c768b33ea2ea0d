"""Contracts of every version load with the meaning that their version gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.contract.enums import ImageLayout, Operation, ReasoningSyntax, ToolSyntax
from helios.contract.json_form import decode_json
from helios.contract.messages import decode_message
from helios.contract.prepared import PreparedContract
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.contract.versions import upgrade
from helios.errors import ContractError
from tests.contract.editing import Edit, graph, put
from tests.contract.full_sample import full_contract, full_frontend
from tests.contract.sample import DECODE

FIXTURES = Path(__file__).parent / "fixtures"


def stored(version: int) -> tuple[pb.ServingContract, execution.ExecutionManifest]:
    """The wire form of a contract of this version and its manifest, as they were written once."""
    contract = (FIXTURES / f"version_{version}.contract.pb").read_bytes()
    manifest = (FIXTURES / f"version_{version}.manifest.pb").read_bytes()
    return (
        decode_message(pb.ServingContract, contract, "the contract"),
        decode_message(execution.ExecutionManifest, manifest, "the manifest"),
    )


def prepared(version: int) -> PreparedContract:
    return PreparedContract.from_core(*stored(version))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_stored_wire_form_says_what_the_stored_json_says(version: int) -> None:
    """CON-4: field and enum numbers are stable, and so are their names."""
    serving, manifest = stored(version)
    assert serving == decode_json(pb.ServingContract, (FIXTURES / f"version_{version}.contract.json").read_text())
    assert manifest == decode_json(
        execution.ExecutionManifest, (FIXTURES / f"version_{version}.manifest.json").read_text()
    )


def test_version_1_has_one_vocabulary_and_no_speculation() -> None:
    """CON-3: what version 1 lacks has a meaning."""
    contract = prepared(1)
    assert (contract.version, contract.vocabulary, contract.input_vocabulary) == (1, 96, 96)
    assert (contract.vision, contract.cache.draft_cursor, contract.speculative_widths) == (None, None, ())
    assert contract.frontend.tool_syntax is ToolSyntax.NONE


def test_version_2_speculates_and_has_no_syntaxes() -> None:
    """CON-3: what version 2 lacks has a meaning."""
    contract = prepared(2)
    (speculative,) = contract.graphs_of(Operation.SPECULATIVE)
    assert (contract.version, speculative.confidence_width, speculative.tuned_buffer_ids) == (2, 3, {9})
    assert contract.input_vocabulary == 97
    assert contract.cache.draft_cursor is not None
    assert contract.frontend.reasoning_syntax is ReasoningSyntax.NONE
    assert contract.frontend.image_layout is ImageLayout.NONE
    assert contract.frontend.eos_tokens == (2, 5)


def test_version_3_has_everything() -> None:
    """CON-3, CON-12, FE-1: the version that is written."""
    contract = prepared(3)
    assert contract.vision is not None
    assert contract.frontend.tool_syntax is ToolSyntax.FUNCTION_TAGS
    assert contract.frontend.image_layout is ImageLayout.AXES


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_upgraded_contract_upgrades_to_itself(version: int) -> None:
    """CON-3: a field that a version lacks may say what its absence means; the message that came in is not changed."""
    serving, _ = stored(version)
    before = pb.ServingContract.FromString(serving.SerializeToString())
    upgraded = upgrade(serving)
    assert serving == before
    assert upgrade(upgraded) == upgraded


LACKS: list[tuple[int, str, Edit]] = [
    (1, "'input_vocabulary' is 97 beside a vocabulary of 96", lambda s, m: put(s.model, input_vocabulary=97)),
    (1, "'speculative_widths' has 4", lambda s, m: s.speculative_widths.append(4)),
    (1, "'draft_cursor' is given", lambda s, m: put(s.model.cache.draft_cursor, view="requests")),
    (
        1,
        "graph 'decode.b4', field 'operation' is SPECULATIVE",
        lambda s, m: put(graph(s, DECODE), operation=execution.OPERATION_SPECULATIVE),
    ),
    (1, "'tuned_bindings' is given", lambda s, m: graph(s, DECODE).tuned_bindings.add(buffer=3, producer="t")),
    (1, "'tool_syntax' is 2", lambda s, m: put(s.model.frontend, tool_syntax=2)),
    (2, "'vision' is given", lambda s, m: s.model.vision.CopyFrom(full_contract().model.vision)),
    (2, "'reasoning_syntax' is 2", lambda s, m: put(s.model.frontend, reasoning_syntax=2)),
    (2, "'image_layout' is 99", lambda s, m: put(s.model.frontend, image_layout=99)),
    (2, "'tool_markers' is given", lambda s, m: s.model.frontend.tool_markers.CopyFrom(full_frontend().tool_markers)),
    (2, "'image_tokens' is given", lambda s, m: s.model.frontend.image_tokens.SetInParent()),
    (2, "'prefix_boundaries' is given", lambda s, m: s.model.frontend.prefix_boundaries.add(role=2, constraint=1)),
]


@pytest.mark.parametrize(("version", "says", "edit"), LACKS)
def test_a_field_of_a_later_version_is_refused(version: int, says: str, edit: Edit) -> None:
    """CON-4: a contract says nothing that its version does not have."""
    serving, manifest = stored(version)
    edit(serving, manifest)
    with pytest.raises(ContractError) as caught:
        PreparedContract.from_core(serving, manifest)
    assert says in caught.value.message
    assert caught.value.message.endswith(f"which version {version} of the model contract does not have")


@pytest.mark.parametrize("version", [0, 4, (1 << 32) - 1])
def test_an_unknown_version_is_refused(version: int) -> None:
    """CON-4: unsupported versions are rejected."""
    serving, manifest = stored(3)
    serving.model.version = version
    with pytest.raises(ContractError, match=f"version {version} is unknown"):
        PreparedContract.from_core(serving, manifest)
