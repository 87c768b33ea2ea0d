"""Contracts as JSON: what is written is read back, and what the schema does not have is refused."""

from __future__ import annotations

import contextlib
import json

import hypothesis
import hypothesis.strategies as st
import pytest

from helios.contract.json_form import decode_json, encode_json
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.errors import ContractError
from tests.contract.full_sample import full_contract, full_manifest


def test_a_contract_and_a_manifest_come_back_as_they_were() -> None:
    """CON-4."""
    assert decode_json(pb.ServingContract, encode_json(full_contract())) == full_contract()
    assert decode_json(execution.ExecutionManifest, encode_json(full_manifest())) == full_manifest()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"served_id": "a", "colour": 1}', "colour"),
        ('{"model": {"version": 3, "engine": "fast"}}', "engine"),
        ('{"model": {"graphs": [{"operation": "OPERATION_GUESS"}]}}', "OPERATION_GUESS"),
        ('{"concurrency": -1}', "concurrency"),
        ('{"concurrency": "many"}', "concurrency"),
        ('{"served_id": "a", "served_id": "b"}', "served_id"),
        ("[]", "ServingContract"),
        ("null", "ServingContract"),
        ("", "ServingContract"),
        ("{", "ServingContract"),
        ("[" * 100_000, "ServingContract"),
        ('{"model":' * 100 + "{}" + "}" * 100, "ServingContract"),
        ('{"concurrency": ' + "9" * 10_000 + "}", "ServingContract"),
    ],
    ids=lambda text: text[:40],
)
def test_unknown_fields_and_wrong_values_are_refused(text: str, says: str) -> None:
    """CON-4: unknown semantic JSON fields are rejected."""
    with pytest.raises(ContractError, match=says):
        decode_json(pb.ServingContract, text)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_NAMES = st.sampled_from(
    [
        field.name
        for kind in (pb.ServingContract, pb.ModelContract, pb.GraphContract)
        for field in kind.DESCRIPTOR.fields
    ]
) | st.text(max_size=8)
_DOCUMENTS = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4)
)


@hypothesis.given(st.dictionaries(_NAMES, _DOCUMENTS, max_size=4).map(json.dumps) | st.text(max_size=40))
@hypothesis.settings(max_examples=500, deadline=None)
def test_any_document_decodes_or_is_refused(text: str) -> None:
    """CON-4: nothing but a ContractError."""
    with contextlib.suppress(ContractError):
        decode_json(pb.ServingContract, text)
