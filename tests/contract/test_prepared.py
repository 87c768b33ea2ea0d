"""A valid contract becomes one frozen view, and every rule refuses the contract that breaks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from helios.contract.enums import Access, BufferKind, Indexing, Operation, ToolSyntax, ValueSource
from helios.contract.prepared import PreparedContract
from helios.contract.rules import RULES
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.errors import ContractError
from tests.contract import sample
from tests.contract.sample import DECODE, INITIALIZE, MIXED, PREFILL, sample_contract, sample_manifest

Serving = pb.ServingContract
Manifest = execution.ExecutionManifest
Break = Callable[[Serving, Manifest], object]


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


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_one_to_three_load(version: int) -> None:
    """CON-3: three versions of the contract are known."""
    serving = sample_contract()
    serving.model.version = version
    assert PreparedContract.from_core(serving, sample_manifest()).version == version


def test_the_abi_label_selects_nothing() -> None:
    """CORE-7: ABI labels never gate loading."""
    manifest = sample_manifest()
    manifest.abi_label = "from the future"
    assert PreparedContract.from_core(sample_contract(), manifest).abi_label == "from the future"


# -- every rule has contracts that break it and it alone ---------------------------------------------------------------


def graph(serving: Serving, name: str) -> pb.GraphContract:
    return next(graph for graph in serving.model.graphs if graph.program == name)


def binding(serving: Serving, name: str, destination: str) -> pb.ValueBinding:
    return next(binding for binding in graph(serving, name).bindings if binding.destination == destination)


def destination(manifest: Manifest, name: str) -> execution.Destination:
    return next(destination for destination in manifest.destinations if destination.name == name)


def program(manifest: Manifest, name: str) -> execution.Program:
    return next(program for program in manifest.programs if program.name == name)


def put(message: object, **fields: object) -> None:
    for name, value in fields.items():
        setattr(message, name, value)


def drop_graph(serving: Serving, name: str) -> None:
    serving.model.graphs.remove(graph(serving, name))


def drop_program(serving: Serving, manifest: Manifest, name: str) -> None:
    drop_graph(serving, name)
    manifest.programs.remove(program(manifest, name))


def drop_pending(serving: Serving, name: str) -> None:
    graph(serving, name).ClearField("pending_view")


def drop_accesses(serving: Serving, name: str, keep: int = 0) -> None:
    del graph(serving, name).accesses[keep:]


def make_speculative(serving: Serving, manifest: Manifest, *, draft: int = 3, width: int = 4, packed: int = 16) -> None:
    """Turn the mixed program into a speculative one that is valid but for what the arguments say."""
    graph(serving, MIXED).operation = execution.OPERATION_SPECULATIVE
    put(
        program(manifest, MIXED),
        operation=execution.OPERATION_SPECULATIVE,
        draft_tokens=draft,
        token_capacity=width,
        packed_token_capacity=packed,
    )


def two_length_sources(serving: Serving, manifest: Manifest) -> None:
    make_speculative(serving, manifest)
    manifest.destinations.add(
        name="limits", buffer=sample.ADMISSION, offset=60000, element_type=sample.I32, count=4, element_words=1
    )
    graph(serving, MIXED).bindings.add(
        destination="limits", source=pb.VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT, indexing=sample.ROW
    )


def no_length_source(serving: Serving, manifest: Manifest) -> None:
    make_speculative(serving, manifest)
    bindings = graph(serving, MIXED).bindings
    bindings.remove(binding(serving, MIXED, "lane_query_length"))


def host_owned_pending(serving: Serving, source: int) -> None:
    decode = graph(serving, DECODE)
    decode.pending_destination = "lane_query_length"
    binding(serving, DECODE, "lane_query_length").source = source


def collective(manifest: Manifest, count: int) -> None:
    node = program(manifest, DECODE).nodes.add().collective
    node.operation, node.buffer, node.count = execution.COLLECTIVE_OPERATION_SUM, sample.SCRATCH, count
    node.element_type = execution.ELEMENT_TYPE_F32


BREAKS: list[tuple[str, str, Break]] = [
    ("version", "version 4 is unknown", lambda s, m: put(s.model, version=4)),
    ("version", "version 0 is unknown", lambda s, m: put(s.model, version=0)),
    ("identity", "served name ''", lambda s, m: put(s, served_id="")),
    ("identity", "printable", lambda s, m: put(s, served_id="a\nb")),
    ("identity", "'sample' is given twice", lambda s, m: s.aliases.append("sample")),
    ("identity", "'cache_identity' has 31 bytes", lambda s, m: put(s, cache_identity=bytes(31))),
    ("vocabulary", "'vocabulary' is 0", lambda s, m: put(s.model, vocabulary=0)),
    ("vocabulary", "'input_vocabulary' is 95", lambda s, m: put(s.model, input_vocabulary=95)),
    ("capacities", "'request_slots' is 0", lambda s, m: put(m, request_slots=0)),
    ("capacities", "'concurrency' is 5", lambda s, m: put(s, concurrency=5)),
    ("capacities", "'page_tokens' is 0", lambda s, m: put(s.model.cache, page_tokens=0)),
    ("capacities", "'context_tokens' is 129", lambda s, m: put(s, context_tokens=129)),
    ("capacities", "'prefill_tokens' is 0", lambda s, m: put(s, prefill_tokens=0)),
    ("frontend", "'frontend' is missing", lambda s, m: s.model.ClearField("frontend")),
    ("frontend", "has token 96", lambda s, m: s.model.frontend.eos_tokens.append(96)),
    ("frontend", "has token 5 twice", lambda s, m: s.model.frontend.eos_tokens.append(5)),
    ("frontend", "has 18 tokens", lambda s, m: s.model.frontend.eos_tokens.extend(range(10, 26))),
    ("sampling-defaults", "'temperature' is -1", lambda s, m: put(s.sampling, temperature=-1)),
    ("sampling-defaults", "'temperature' is nan", lambda s, m: put(s.sampling, temperature=float("nan"))),
    ("sampling-defaults", "'top_p' is 0", lambda s, m: put(s.sampling, top_p=0)),
    ("sampling-defaults", "'min_p' is 2", lambda s, m: put(s.sampling, min_p=2)),
    ("sampling-defaults", "'repetition_penalty' is 0", lambda s, m: put(s.sampling, repetition_penalty=0)),
    ("sampling-defaults", "'top_k' is", lambda s, m: put(s.sampling, top_k=1 << 30)),
    ("buffer-ids", "'id' is 9", lambda s, m: put(m.buffers[1], id=9)),
    ("buffer-ids", "'inputs' is declared twice", lambda s, m: put(m.buffers[2], name="inputs")),
    ("buffer-ids", "'name' is empty", lambda s, m: put(m.buffers[2], name="")),
    ("buffer-sizes", "buffer 'inputs', field 'nbytes' is 0", lambda s, m: put(m.buffers[sample.INPUTS], nbytes=0)),
    ("buffer-sizes", "field 'nbytes' is", lambda s, m: put(m.buffers[sample.SCRATCH], nbytes=1 << 50)),
    ("buffer-sizes", "'kv', field 'page_nbytes' is 0", lambda s, m: put(m.buffers[sample.KV], page_nbytes=0)),
    ("buffer-sizes", "'kv', field 'nbytes' is 1", lambda s, m: put(m.buffers[sample.KV], nbytes=1)),
    ("buffer-resources", "is empty, it is a weight", lambda s, m: put(m.buffers[sample.WEIGHT], resource="")),
    ("buffer-resources", "it is no weight", lambda s, m: put(m.buffers[sample.SCRATCH], resource="x")),
    ("program-names", "program 'decode.b4' is declared twice", lambda s, m: put(m.programs[3], name=DECODE)),
    ("program-names", "'name' is empty", lambda s, m: put(m.programs[3], name="")),
    ("program-names", "tuning catalog", lambda s, m: put(m.programs[3], operation=execution.OPERATION_TUNE)),
    (
        "program-names",
        "is not TUNE",
        lambda s, m: m.tuning_programs.add(name="t", operation=execution.OPERATION_DECODE),
    ),
    ("program-extents", "'batch_capacity' is 5", lambda s, m: put(program(m, MIXED), batch_capacity=5)),
    ("program-extents", "'batch_capacity' is 0", lambda s, m: put(program(m, INITIALIZE), batch_capacity=0)),
    ("program-extents", "without speculation", lambda s, m: put(program(m, DECODE), draft_tokens=1)),
    ("program-extents", "'packed_token_capacity' is 0", lambda s, m: put(program(m, PREFILL), packed_token_capacity=0)),
    ("program-extents", "'token_capacity' is 33", lambda s, m: put(program(m, PREFILL), token_capacity=33)),
    ("program-extents", "a decode feeds 1", lambda s, m: put(program(m, DECODE), token_capacity=2)),
    ("program-extents", "pending token each", lambda s, m: put(program(m, DECODE), packed_token_capacity=3)),
    ("program-extents", "more than 4 x 4", lambda s, m: make_speculative(s, m, packed=17)),
    ("node-order", "names node 2", lambda s, m: program(m, DECODE).nodes[1].depends_on.append(2)),
    ("node-order", "names node 1", lambda s, m: program(m, DECODE).nodes[1].depends_on.append(1)),
    ("node-order", "node 3 does nothing", lambda s, m: program(m, DECODE).nodes.add()),
    ("relocations", "names buffer 8", lambda s, m: put(program(m, DECODE).nodes[0].kernel.relocations[0], buffer=8)),
    (
        "relocations",
        "points to byte 5,000",
        lambda s, m: put(program(m, DECODE).nodes[0].kernel.relocations[0], offset=5000),
    ),
    ("node-ranges", "names buffer 8", lambda s, m: put(program(m, DECODE).nodes[2].fill, destination=8)),
    ("node-ranges", "touches 1,025 bytes", lambda s, m: put(program(m, DECODE).nodes[2].fill, nbytes=1025)),
    ("node-ranges", "touches 129 bytes", lambda s, m: put(program(m, DECODE).nodes[1].copy, nbytes=129)),
    ("node-ranges", "touches 0 bytes", lambda s, m: put(program(m, DECODE).nodes[2].fill, nbytes=0)),
    ("node-ranges", "a weight", lambda s, m: put(program(m, DECODE).nodes[2].fill, destination=sample.WEIGHT)),
    ("node-ranges", "touches 1,028 bytes", lambda s, m: collective(m, 257)),
    ("fill-values", "'value' is 256", lambda s, m: put(program(m, DECODE).nodes[2].fill, value=256)),
    ("destination-names", "'lane_slot' is declared twice", lambda s, m: put(m.destinations[3], name="lane_slot")),
    ("destination-names", "'name' is empty", lambda s, m: put(m.destinations[3], name="")),
    ("destination-places", "no input buffer", lambda s, m: put(m.destinations[0], buffer=sample.SCRATCH)),
    ("destination-places", "no input buffer", lambda s, m: put(m.destinations[0], buffer=99)),
    ("destination-places", "no multiple", lambda s, m: put(destination(m, "mask"), count=13)),
    ("destination-places", "no multiple", lambda s, m: put(destination(m, "mask"), element_words=0)),
    ("destination-places", "'offset' is 18", lambda s, m: put(destination(m, "submission"), offset=18)),
    ("destination-places", "before it ends at 4", lambda s, m: put(destination(m, "submission"), offset=0)),
    ("destination-places", "its buffer 'inputs' at 4,096", lambda s, m: put(destination(m, "mask"), offset=4092)),
    ("completion-layout", "is missing", lambda s, m: m.ClearField("completion")),
    ("completion-layout", "no completion buffer", lambda s, m: put(m.completion, buffer=sample.SCRATCH)),
    ("completion-layout", "216 a lane", lambda s, m: put(m.completion, lane_nbytes=216)),
    ("completion-layout", "'lanes_capacity' is 3", lambda s, m: put(m.completion, lanes_capacity=3)),
    ("completion-layout", "needs 1,152 bytes", lambda s, m: put(m.completion, lanes_capacity=5)),
    ("view-names", "'requests' is declared twice", lambda s, m: put(s.model.state_views[1], name="requests")),
    ("view-names", "'name' is empty", lambda s, m: put(s.model.state_views[1], name="")),
    ("view-places", "no state buffer", lambda s, m: put(s.model.state_views[1], buffer=sample.KV)),
    ("view-places", "0 rows", lambda s, m: put(s.model.state_views[1], rows=0)),
    ("view-places", "'row_stride' is 2", lambda s, m: put(s.model.state_views[1], row_stride=2)),
    ("view-places", "ends at byte 136", lambda s, m: put(s.model.state_views[0], offset=8)),
    ("view-overlap", "share byte 28", lambda s, m: put(s.model.state_views[1], offset=28, row_nbytes=8, rows=3)),
    ("view-overlap", "share byte 0", lambda s, m: put(s.model.state_views[1], row_nbytes=32)),
    ("view-overlap", "share byte 0", lambda s, m: put(s.model.state_views[1], row_stride=16)),
    (
        "view-overlap",
        "share byte 2",
        lambda s, m: s.model.state_views.add(name="x", buffer=3, offset=2, row_stride=32, row_nbytes=4, rows=4),
    ),
    ("cache-regions", "'regions' is empty", lambda s, m: s.model.cache.ClearField("regions")),
    ("cache-regions", "'planes' is empty", lambda s, m: s.model.cache.regions[0].ClearField("planes")),
    ("cache-regions", "'tokens_per_record' is 3", lambda s, m: put(s.model.cache.regions[0], tokens_per_record=3)),
    ("cache-regions", "'window_tokens' is 8", lambda s, m: put(s.model.cache.regions[0], window_tokens=8)),
    ("cache-regions", "names buffer 6", lambda s, m: s.model.cache.regions[0].planes.append(sample.SCRATCH)),
    ("cache-regions", "two regions", lambda s, m: s.model.cache.regions[0].planes.append(sample.KV)),
    (
        "cache-regions",
        "plane of no region",
        lambda s, m: m.buffers.add(id=8, name="kv2", kind=execution.BUFFER_KIND_CACHE_PLANE, page_nbytes=1),
    ),
    ("page-tables", "no state buffer", lambda s, m: put(s.model.cache.page_tables[0], buffer=sample.KV)),
    ("page-tables", "needs 160 bytes", lambda s, m: put(m, pages_per_slot=10)),
    ("page-tables", "'page_offset' is 8", lambda s, m: put(s.model.cache.page_tables[0], page_offset=8)),
    ("page-tables", "twice", lambda s, m: s.model.cache.page_tables.add(buffer=sample.PAGE_TABLE)),
    ("draft-cursor", "names 'x'", lambda s, m: put(s.model.cache.draft_cursor, view="x")),
    ("graph-programs", "names no program", lambda s, m: put(graph(s, MIXED), program="other")),
    ("graph-programs", "declared twice", lambda s, m: s.model.graphs.append(graph(s, MIXED))),
    ("graph-programs", "'mixed.b4' has no graph", lambda s, m: drop_graph(s, MIXED)),
    ("graph-operations", "is MIXED", lambda s, m: put(graph(s, DECODE), operation=execution.OPERATION_MIXED)),
    ("required-operations", "INITIALIZE", lambda s, m: drop_program(s, m, INITIALIZE)),
    ("required-operations", "PREFILL", lambda s, m: drop_program(s, m, PREFILL)),
    ("required-operations", "DECODE", lambda s, m: drop_program(s, m, DECODE)),
    ("prefill-extent", "'prefill_tokens' is 33", lambda s, m: put(s, prefill_tokens=33)),
    (
        "decode-extent",
        "'concurrency' is 4",
        lambda s, m: put(program(m, DECODE), batch_capacity=2, packed_token_capacity=2),
    ),
    ("speculative-widths", "has 4, no speculative", lambda s, m: s.speculative_widths.append(4)),
    (
        "speculative-widths",
        "has 4 twice",
        lambda s, m: (make_speculative(s, m), s.speculative_widths.extend([4, 4])),
    ),
    ("binding-destinations", "names no dest", lambda s, m: put(binding(s, DECODE, "mask"), destination="other")),
    ("binding-destinations", "bound twice", lambda s, m: put(binding(s, DECODE, "mask"), destination="lane_slot")),
    (
        "binding-shapes",
        "'indexing' is SCALAR",
        lambda s, m: put(binding(s, DECODE, "lane_slot"), indexing=sample.SCALAR),
    ),
    (
        "binding-shapes",
        "'indexing' is PACKED",
        lambda s, m: put(binding(s, DECODE, "lane_slot"), indexing=sample.TOKEN),
    ),
    ("binding-shapes", "is F32", lambda s, m: put(m.destinations[2], element_type=execution.ELEMENT_TYPE_F32)),
    ("binding-shapes", "room for 3 values", lambda s, m: put(destination(m, "lane_slot"), count=3)),
    ("binding-shapes", "room for 31 values", lambda s, m: put(destination(m, "prompt_tokens"), count=31)),
    ("binding-shapes", "room for 5 values", lambda s, m: put(destination(m, "page_updates"), count=10)),
    ("binding-shapes", "room for 3 values", lambda s, m: put(destination(m, "submission"), count=3)),
    ("binding-shapes", "8 bytes of one", lambda s, m: put(destination(m, "mask"), count=8, element_words=2)),
    (
        "binding-shapes",
        "252 bytes",
        lambda s, m: put(destination(m, "admission_sampling"), count=126, element_words=63),
    ),
    (
        "binding-shapes",
        "380 bytes",
        lambda s, m: put(destination(m, "admission_histogram"), count=190, element_words=95),
    ),
    (
        "binding-shapes",
        "IMAGE_TENSOR, which this version",
        lambda s, m: put(binding(s, DECODE, "mask"), source=pb.VALUE_SOURCE_IMAGE_TENSOR),
    ),
    ("binding-values", "'constant' is 7", lambda s, m: put(binding(s, DECODE, "lane_slot"), constant=7)),
    ("binding-values", "'image_tensor' is 'x'", lambda s, m: put(binding(s, DECODE, "lane_slot"), image_tensor="x")),
    ("binding-values", "not fit 32 bits", lambda s, m: put(binding(s, DECODE, "lane_slot"), offset=1 << 40)),
    ("length-source", "binds 2 length", two_length_sources),
    ("length-source", "binds 0 length", no_length_source),
    ("access-views", "names no state view", lambda s, m: put(graph(s, DECODE).accesses[0], view="other")),
    ("access-views", "declared twice", lambda s, m: put(graph(s, DECODE).accesses[0], view="pending")),
    ("pending-token", "DECODE consumes it", lambda s, m: drop_pending(s, DECODE)),
    ("pending-token", "MIXED consumes it", lambda s, m: drop_pending(s, MIXED)),
    ("pending-token", "no state view", lambda s, m: put(graph(s, DECODE), pending_view="other")),
    ("pending-token", "not bound", lambda s, m: host_owned_pending(s, pb.VALUE_SOURCE_QUERY_LENGTH)),
    ("pending-accesses", "does not read", lambda s, m: put(graph(s, DECODE).accesses[1], access=pb.ACCESS_WRITE)),
    ("pending-accesses", "does not write", lambda s, m: put(graph(s, PREFILL).accesses[1], access=pb.ACCESS_READ)),
    ("pending-accesses", "does not write", lambda s, m: drop_accesses(s, INITIALIZE)),
    (
        "pending-accesses",
        "lacks a write of 'pending'",
        lambda s, m: (drop_pending(s, PREFILL), drop_accesses(s, PREFILL, keep=1)),
    ),
    ("tuned-bindings", "no state buffer", lambda s, m: graph(s, DECODE).tuned_bindings.add(buffer=0, producer="t")),
    ("tuned-bindings", "no tuning program", lambda s, m: graph(s, DECODE).tuned_bindings.add(buffer=3, producer="t")),
]


@pytest.mark.parametrize(("rule_id", "says", "break_it"), BREAKS)
def test_a_broken_contract_is_refused_by_its_rule(rule_id: str, says: str, break_it: Break) -> None:
    """CON-4, CON-5, CON-7, CON-8, CON-10, SPEC-3: the error names the rule, the graph, the binding and the field."""
    serving, manifest = sample_contract(), sample_manifest()
    break_it(serving, manifest)
    with pytest.raises(ContractError) as caught:
        PreparedContract.from_core(serving, manifest)
    assert says in caught.value.message
    assert f"rule {rule_id}:" in str(caught.value)


def test_every_rule_has_a_contract_that_breaks_it() -> None:
    """A rule without a failing contract may never have run."""
    assert {rule.id for rule in RULES} == {rule_id for rule_id, _, _ in BREAKS}
    assert len({rule.id for rule in RULES}) == len(RULES)


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

ENUM_BREAKS: list[tuple[str, Break]] = [
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
def test_unspecified_and_unknown_enum_numbers_are_refused(says: str, break_it: Break) -> None:
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
