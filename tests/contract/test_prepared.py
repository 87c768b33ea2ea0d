"""A valid contract becomes one frozen view, and unknown enums and fields are refused before any rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from helios.contract.enums import Access, BufferKind, Indexing, Operation, ToolSyntax, ValueSource
from helios.contract.prepared import PreparedContract, SamplingDefaults
from helios.contract.schema import contract_pb2 as pb
from helios.errors import ContractError
from tests.contract import sample
from tests.contract.editing import (
    Edit,
    binding,
    destination,
    graph,
    host_owned_pending,
    make_speculative,
    program,
    put,
)
from tests.contract.full_sample import full_contract, full_manifest
from tests.contract.sample import DECODE, MIXED, sample_contract, sample_manifest


@pytest.fixture
def contract() -> PreparedContract:
    return PreparedContract.from_core(sample_contract(), sample_manifest())


def test_the_metadata_of_the_messages_is_in_the_view(contract: PreparedContract) -> None:
    """CON-1, CON-3, CON-12: serving and model metadata."""
    assert (contract.version, contract.served_id, contract.aliases) == (3, "sample", ("sample-latest",))
    assert (contract.context_tokens, contract.prefill_tokens, contract.concurrency) == (128, 32, 4)
    assert (contract.vocabulary, contract.input_vocabulary, contract.page_tokens) == (96, 96, 16)
    assert (contract.request_slots, contract.pages_per_slot, contract.state_rows_per_request) == (4, 8, 1)
    assert contract.frontend.tool_syntax is ToolSyntax.NONE
    assert contract.frontend.eos_tokens == (2, 5)
    assert (contract.sampling.temperature, contract.sampling.top_k) == (0.5, None)
    assert contract.completion.nbytes == 32 + 4 * 224
    assert contract.rank_resources == ({sample.WEIGHT: "embedding"},)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(SamplingDefaults)])
def test_each_sampling_default_is_the_cores_or_nobodys(field: str) -> None:
    """CON-2: a default that the core sets is its own, one that it leaves out is None."""
    serving = sample_contract()
    serving.sampling.Clear()
    value = 1 if field == "top_k" else 0.5
    put(serving.sampling, **{field: value})
    sampling = PreparedContract.from_core(serving, sample_manifest()).sampling
    assert {name: number for name, number in dataclasses.asdict(sampling).items() if number is not None} == {
        field: value
    }


def test_graphs_of_an_operation_come_smallest_first(contract: PreparedContract) -> None:
    """CON-5: a graph carries its program's operation and extents."""
    (decode,) = contract.graphs_of(Operation.DECODE)
    assert (decode.name, decode.index, decode.batch_capacity, decode.packed_token_capacity) == (DECODE, 2, 4, 4)
    assert decode.binds(ValueSource.SLOT)
    assert not decode.binds(ValueSource.PROMPT_TOKENS)
    assert contract.graphs_of(Operation.SPECULATIVE) == ()


def test_bindings_lead_to_typed_destinations(contract: PreparedContract) -> None:
    """CON-7: indexing, type and extent are explicit."""
    binding = contract.graphs_of(Operation.PREFILL)[0].bindings[4]
    assert (binding.source, binding.indexing) == (ValueSource.PROMPT_TOKENS, Indexing.PACKED_TOKEN)
    destination = contract.destinations[binding.destination]
    assert (destination.buffer_id, destination.dtype, destination.n_indices) == (sample.INPUTS, np.dtype("<i4"), 32)
    assert contract.buffers[destination.buffer_id].kind is BufferKind.INPUT
    assert contract.destinations["mask"].n_indices == 4
    assert contract.destinations["mask"].nbytes == 48


def test_a_device_owned_pending_token_is_a_view(contract: PreparedContract) -> None:
    """CON-10: pending tokens name a view, accesses say who reads and writes it."""
    graph = contract.graphs_of(Operation.DECODE)[0]
    assert graph.pending_view == contract.views["pending"]
    assert (contract.views["pending"], Access.READ_WRITE) in graph.accesses


def test_the_view_cannot_be_changed(contract: PreparedContract) -> None:
    """RT-2: one immutable object."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        contract.concurrency = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        contract.destinations["n_lanes"] = contract.destinations["mask"]  # type: ignore[index]


def test_the_abi_label_selects_nothing() -> None:
    """CORE-7: ABI labels never gate loading."""
    manifest = sample_manifest()
    manifest.abi_label = "from the future"
    assert PreparedContract.from_core(sample_contract(), manifest).abi_label == "from the future"


def test_snapshots_have_the_state_rows_behind_those_of_the_slots() -> None:
    """CON-11, CACHE-1: what the cache books are sized by."""
    serving, manifest = full_contract(), full_manifest()
    view = next(view for view in serving.model.state_views if view.name == "rows")
    view.rows, manifest.buffers[view.buffer].nbytes, serving.snapshot_count = 11, 11 * 64, 3
    contract = PreparedContract.from_core(serving, manifest)
    assert (contract.first_snapshot_row, contract.n_snapshot_rows, contract.snapshot_count) == (8, 3, 3)
    assert (contract.row_nbytes, contract.page_nbytes) == (64, 2048)


def test_a_core_without_programs_for_them_has_no_snapshots() -> None:
    """CORE-7: prefixes are reused at whole pages then."""
    contract = PreparedContract.from_core(sample_contract(), sample_manifest())
    assert (contract.n_snapshot_rows, contract.row_nbytes, contract.page_nbytes) == (0, 0, 2048)


@pytest.mark.parametrize(("kind", "is_truncatable"), [("CONTINUATION", True), ("RECURRENT", False)])
def test_state_that_sums_up_its_tokens_cannot_be_cut_short(kind: str, is_truncatable: bool) -> None:
    """CACHE-5: a recurrent state is that of its own endpoint alone."""
    serving = full_contract()
    serving.model.cache.regions[1].kind = pb.RegionKind.Value(f"REGION_KIND_{kind}")
    assert PreparedContract.from_core(serving, full_manifest()).is_truncatable is is_truncatable


def test_a_speculative_graph_with_one_length_source_is_accepted() -> None:
    """SPEC-2, SPEC-3: the base of the breaks above is valid itself."""
    serving, manifest = sample_contract(), sample_manifest()
    make_speculative(serving, manifest)
    bindings = graph(serving, MIXED).bindings
    bindings.remove(binding(serving, MIXED, "prompt_tokens"))
    serving.speculative_widths.append(4)
    contract = PreparedContract.from_core(serving, manifest)
    assert contract.graphs_of(Operation.SPECULATIVE)[0].draft_tokens == 3


def test_a_host_owned_pending_token_is_accepted() -> None:
    """CON-10: a host-owned pending token names a value binding."""
    serving = sample_contract()
    host_owned_pending(serving, pb.VALUE_SOURCE_COMPLETED_PENDING_TOKEN)
    contract = PreparedContract.from_core(serving, sample_manifest())
    assert contract.graphs_of(Operation.DECODE)[0].pending_destination == "lane_query_length"


# -- enums and unknown fields ------------------------------------------------------------------------------------------

ENUM_BREAKS: list[tuple[str, Edit]] = [
    (
        "graph 'decode.b4', binding 'lane_slot', field 'source' has the unknown number 999",
        lambda s, m: put(binding(s, DECODE, "lane_slot"), source=999),
    ),
    (
        "graph 'decode.b4', binding 'lane_slot', field 'indexing' is unspecified",
        lambda s, m: put(binding(s, DECODE, "lane_slot"), indexing=0),
    ),
    ("graph 'decode.b4', field 'operation' is unspecified", lambda s, m: put(graph(s, DECODE), operation=0)),
    ("access 'pending', field 'access' has the", lambda s, m: put(graph(s, DECODE).accesses[1], access=9)),
    ("regions[0], field 'kind' is unspecified", lambda s, m: put(s.model.cache.regions[0], kind=0)),
    ("frontend, field 'tool_syntax' has the unknown number 77", lambda s, m: put(s.model.frontend, tool_syntax=77)),
    ("buffer 'kv', field 'kind' has the unknown number 8", lambda s, m: put(m.buffers[sample.KV], kind=8)),
    ("program 'decode.b4', field 'operation' is unspecified", lambda s, m: put(program(m, DECODE), operation=0)),
    ("destination 'mask', field 'element_type' is unsp", lambda s, m: put(destination(m, "mask"), element_type=0)),
    (
        "program 'decode.b4', nodes[3], collective, field 'operation' is unspecified",
        lambda s, m: program(m, DECODE).nodes.add().collective.SetInParent(),
    ),
]


@pytest.mark.parametrize(("says", "break_it"), ENUM_BREAKS)
def test_unspecified_and_unknown_enum_numbers_are_refused(says: str, break_it: Edit) -> None:
    """CON-4: the unspecified zero selects nothing, and an unknown number is refused by name."""
    serving, manifest = sample_contract(), sample_manifest()
    break_it(serving, manifest)
    with pytest.raises(ContractError) as caught:
        PreparedContract.from_core(serving, manifest)
    assert says in caught.value.message


@pytest.mark.parametrize("part", ["serving", "graph", "manifest", "node"])
def test_unknown_fields_are_refused_at_any_depth(part: str) -> None:
    """CON-4: a field of a later schema may mean something, so it is not skipped."""
    serving, manifest = sample_contract(), sample_manifest()
    parts = {
        "serving": serving,
        "graph": serving.model.graphs[0],
        "manifest": manifest,
        "node": manifest.programs[0].nodes[0],
    }
    parts[part].MergeFromString(b"\xf8\x7f\x01")  # field 2047
    with pytest.raises(ContractError, match="fields that this version of Helios does not know"):
        PreparedContract.from_core(serving, manifest)
