"""The validated contract of one core: the single thing that runtime, packing and scheduler read about a model.

It holds frozen values and no Protobuf message, and it knows no file and no device; the nodes of the programs stay in the
execution manifest for the loader alone. Whoever holds a `PreparedContract` may rely on every rule of `rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from helios.contract.enums import (
    Access,
    BufferKind,
    ElementType,
    Indexing,
    Operation,
    RegionKind,
    ValueSource,
)
from helios.contract.frontend import Frontend
from helios.contract.messages import check_message
from helios.contract.rule import Subject
from helios.contract.rules import check
from helios.contract.schema import contract_pb2, execution_pb2
from helios.contract.versions import upgrade


@dataclass(frozen=True, slots=True)
class Buffer:
    """A physical buffer. `id` is its index; a cache plane has `page_nbytes` for each page and no `nbytes` of its own.

    `producer` is the tuning program that fills it at start-up, empty for all others.
    """

    id: int
    name: str
    kind: BufferKind
    nbytes: int
    page_nbytes: int
    resource: str
    producer: str


@dataclass(frozen=True, slots=True)
class Destination:
    """A place in an input buffer for host values: `count` elements of `dtype`, `element_words` for one index."""

    name: str
    buffer_id: int
    offset: int
    element_type: ElementType
    count: int
    element_words: int

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.element_type.dtype

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def n_indices(self) -> int:
        """How many rows, tokens or pairs fit."""
        return self.count // self.element_words


@dataclass(frozen=True, slots=True)
class Binding:
    """One host value of a graph: `source` goes to the destination of that name, laid out by `indexing`, plus `offset`."""

    destination: str
    source: ValueSource
    indexing: Indexing
    offset: int
    padding: int
    constant: int
    image_tensor: str


@dataclass(frozen=True, slots=True)
class StateView:
    """Row i is bytes [offset + i*row_stride, + row_nbytes) of a persistent buffer, for i < rows."""

    name: str
    buffer_id: int
    offset: int
    row_stride: int
    row_nbytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured program and its contract. `index` counts in the manifest; the four extents are B, D, W, P of SPEC-2.

    `tuned_buffer_ids` are filled by tuning programs before the graph is exposed (CON-8).
    """

    name: str
    index: int
    operation: Operation
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    bindings: tuple[Binding, ...]
    accesses: tuple[tuple[StateView, Access], ...]
    pending_view: StateView | None
    pending_destination: str | None
    state_rows_per_request: int
    confidence_width: int = 0
    tuned_buffer_ids: frozenset[int] = frozenset()

    def binds(self, source: ValueSource) -> bool:
        return any(binding.source is source for binding in self.bindings)


@dataclass(frozen=True, slots=True)
class CacheRegion:
    """One attention history: paged regions name the planes that hold them, the others views with a row for each state row."""

    kind: RegionKind
    planes: tuple[int, ...]
    tokens_per_record: int
    window_tokens: int
    views: tuple[StateView, ...]


@dataclass(frozen=True, slots=True)
class PageTableView:
    """int32[request_slots][pages_per_slot] at the start of a buffer; entry i holds logical page i + `page_offset`."""

    buffer_id: int
    page_offset: int


@dataclass(frozen=True, slots=True)
class CompletionCursor:
    """Committed draft state that lags `lag_tokens` behind the target's consumption."""

    view: StateView
    lag_tokens: int


@dataclass(frozen=True, slots=True)
class Cache:
    """The storage contract of attention histories (CACHE-1)."""

    page_tokens: int
    regions: tuple[CacheRegion, ...]
    page_tables: tuple[PageTableView, ...]
    draft_cursor: CompletionCursor | None


@dataclass(frozen=True, slots=True)
class Vision:
    """Image capacities: a feature slot holds `window_features`, of `patches_per_feature` patches each (CON-12)."""

    feature_slots: int
    window_features: int
    patches_per_feature: int
    patch_capacities: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The core's defaults for what a request leaves out (CON-2); None: the core has no opinion."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class CompletionLayout:
    """The completion record: one header, and a record of `lane_nbytes` for each submitted lane. From `scores_offset` on a score for
    each packed token of a scored prefill, from `distributions_offset` on a row of logits for each sampled lane that asks for it,
    and from `prompt_distributions_offset` on one for each packed token of a scored prefill whose lane asks."""

    buffer_id: int
    header_nbytes: int
    lane_nbytes: int
    lanes_capacity: int
    score_nbytes: int = 0
    scores_capacity: int = 0
    distribution_nbytes: int = 0
    distributions_capacity: int = 0
    prompt_distributions_capacity: int = 0

    @property
    def scores_offset(self) -> int:
        return self.header_nbytes + self.lanes_capacity * self.lane_nbytes

    @property
    def distributions_offset(self) -> int:
        return self.scores_offset + self.scores_capacity * self.score_nbytes

    @property
    def prompt_distributions_offset(self) -> int:
        return self.distributions_offset + self.distributions_capacity * self.distribution_nbytes

    @property
    def nbytes(self) -> int:
        return self.prompt_distributions_offset + self.prompt_distributions_capacity * self.distribution_nbytes


@dataclass(frozen=True, slots=True)
class ConfidenceLayout:
    """float32 [2][request slots][`draft_capacity`] by frame index, lane and draft: the whole of a buffer (SPEC-5)."""

    buffer_id: int
    draft_capacity: int


@dataclass(frozen=True, slots=True)
class PreparedContract:
    """Everything that serving knows about a model. Counts are at preparation; load may lower what CON-1 lets it lower."""

    version: int
    served_id: str
    aliases: tuple[str, ...]
    cache_identity: bytes
    context_tokens: int
    prefill_tokens: int
    page_count: int
    snapshot_count: int
    concurrency: int
    speculative_widths: tuple[int, ...]
    sampling: SamplingDefaults
    vocabulary: int
    input_vocabulary: int
    vision: Vision | None
    frontend: Frontend
    cache: Cache
    abi_label: str
    target: str
    request_slots: int
    pages_per_slot: int
    buffers: tuple[Buffer, ...]
    destinations: Mapping[str, Destination]
    views: Mapping[str, StateView]
    graphs: tuple[Graph, ...]
    completion: CompletionLayout
    proposal_confidence: ConfidenceLayout | None
    rank_resources: tuple[Mapping[int, str], ...]

    @classmethod
    def from_core(
        cls, serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest
    ) -> PreparedContract:
        """Validate both messages against every rule, then freeze them. Raises ContractError at the first violation.

        An older contract is read by the meaning of its version (`versions.py`); `version` stays the one that was written.
        """
        serving = upgrade(serving)
        check_message(serving, "the serving contract")
        check_message(manifest, "the execution manifest")
        check(Subject(serving, manifest))
        return _freeze(serving, manifest)

    @property
    def page_tokens(self) -> int:
        return self.cache.page_tokens

    @property
    def state_rows_per_request(self) -> int:
        """The rows that every request needs: the maximum over the graphs (CON-11)."""
        return max(graph.state_rows_per_request for graph in self.graphs)

    @property
    def state_row_views(self) -> tuple[StateView, ...]:
        """The views of all row regions: together their rows i are state row i."""
        return tuple(view for region in self.cache.regions for view in region.views)

    @property
    def first_snapshot_row(self) -> int:
        """State rows before it belong to the slots, from it on to snapshots (CON-11)."""
        return self.request_slots * self.state_rows_per_request

    @property
    def n_snapshot_rows(self) -> int:
        """How many snapshots the device can hold; 0 when the core has no programs that save and restore them."""
        if not self.graphs_of(Operation.SNAPSHOT):  # and then none that restores them
            return 0
        return min(view.rows for view in self.state_row_views) - self.first_snapshot_row

    @property
    def row_nbytes(self) -> int:
        """One state row, over all row regions."""
        return sum(view.row_nbytes for view in self.state_row_views)

    @property
    def page_nbytes(self) -> int:
        """One page, over all planes."""
        return sum(buffer.page_nbytes for buffer in self.buffers)

    @property
    def is_truncatable(self) -> bool:
        """Whether a snapshot also serves shorter endpoints in its last page: no region sums up what it has seen."""
        return all(region.kind.is_paged or region.kind is RegionKind.CONTINUATION for region in self.cache.regions)

    @property
    def n_ranks(self) -> int:
        """How many tensor-parallel ranks the core was prepared for."""
        return len(self.rank_resources)

    def graphs_of(self, operation: Operation) -> tuple[Graph, ...]:
        """The graphs of one operation, smallest extents first."""
        chosen = (graph for graph in self.graphs if graph.operation is operation)
        return tuple(sorted(chosen, key=lambda graph: (graph.batch_capacity, graph.packed_token_capacity)))

    def buffer_named(self, name: str) -> Buffer:
        """The buffer of this name; KeyError when there is none."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)


def _freeze(serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest) -> PreparedContract:
    model = serving.model
    views = {view.name: _view(view) for view in model.state_views}
    destinations = {destination.name: _destination(destination) for destination in manifest.destinations}
    graphs = {graph.program: graph for graph in model.graphs}
    return PreparedContract(
        version=model.version,
        served_id=serving.served_id,
        aliases=tuple(serving.aliases),
        cache_identity=serving.cache_identity,
        context_tokens=serving.context_tokens,
        prefill_tokens=serving.prefill_tokens,
        page_count=serving.page_count,
        snapshot_count=serving.snapshot_count,
        concurrency=serving.concurrency,
        speculative_widths=tuple(serving.speculative_widths),
        sampling=_sampling(serving.sampling),
        vocabulary=model.vocabulary,
        input_vocabulary=model.input_vocabulary,
        vision=_vision(model.vision) if model.HasField("vision") else None,
        frontend=Frontend.from_message(model.frontend),
        cache=_cache(model.cache, views),
        abi_label=manifest.abi_label,
        target=manifest.target,
        request_slots=manifest.request_slots,
        pages_per_slot=manifest.pages_per_slot,
        buffers=tuple(_buffer(buffer) for buffer in manifest.buffers),
        destinations=MappingProxyType(destinations),
        views=MappingProxyType(views),
        graphs=tuple(
            _graph(index, program, graphs[program.name], views) for index, program in enumerate(manifest.programs)
        ),
        completion=_completion(manifest.completion),
        proposal_confidence=(
            ConfidenceLayout(manifest.proposal_confidence.buffer, manifest.proposal_confidence.draft_capacity)
            if manifest.HasField("proposal_confidence")
            else None
        ),
        rank_resources=_rank_resources(manifest),
    )


def _rank_resources(manifest: execution_pb2.ExecutionManifest) -> tuple[Mapping[int, str], ...]:
    """The tensor resource of every weight buffer, for each rank."""
    shared = {buffer.id: buffer.resource for buffer in manifest.buffers if buffer.resource}
    sections = manifest.ranks or [execution_pb2.RankSection()]
    return tuple(
        MappingProxyType({**shared, **{weight.buffer: weight.resource for weight in section.weights}})
        for section in sections
    )


def _vision(message: contract_pb2.VisionContract) -> Vision:
    return Vision(
        message.feature_slots, message.window_features, message.patches_per_feature, tuple(message.patch_capacities)
    )


def _buffer(message: execution_pb2.Buffer) -> Buffer:
    return Buffer(
        id=message.id,
        name=message.name,
        kind=BufferKind(message.kind),
        nbytes=message.nbytes,
        page_nbytes=message.page_nbytes,
        resource=message.resource,
        producer=message.producer,
    )


def _destination(message: execution_pb2.Destination) -> Destination:
    element_type = ElementType(message.element_type)
    return Destination(message.name, message.buffer, message.offset, element_type, message.count, message.element_words)


def _view(message: contract_pb2.StateView) -> StateView:
    return StateView(message.name, message.buffer, message.offset, message.row_stride, message.row_nbytes, message.rows)


def _completion(message: execution_pb2.CompletionLayout) -> CompletionLayout:
    return CompletionLayout(
        message.buffer,
        message.header_nbytes,
        message.lane_nbytes,
        message.lanes_capacity,
        message.score_nbytes,
        message.scores_capacity,
        message.distribution_nbytes,
        message.distributions_capacity,
        message.prompt_distributions_capacity,
    )


def _binding(message: contract_pb2.ValueBinding) -> Binding:
    return Binding(
        destination=message.destination,
        source=ValueSource(message.source),
        indexing=Indexing(message.indexing),
        offset=message.offset,
        padding=message.padding,
        constant=message.constant,
        image_tensor=message.image_tensor,
    )


def _graph(
    index: int,
    program: execution_pb2.Program,
    contract: contract_pb2.GraphContract,
    views: Mapping[str, StateView],
) -> Graph:
    pending = contract.WhichOneof("pending_token")
    return Graph(
        name=program.name,
        index=index,
        operation=Operation(program.operation),
        batch_capacity=program.batch_capacity,
        draft_tokens=program.draft_tokens,
        token_capacity=program.token_capacity,
        packed_token_capacity=program.packed_token_capacity,
        confidence_width=program.confidence_width,
        bindings=tuple(_binding(binding) for binding in contract.bindings),
        accesses=tuple((views[access.view], Access(access.access)) for access in contract.accesses),
        pending_view=views[contract.pending_view] if pending == "pending_view" else None,
        pending_destination=contract.pending_destination if pending == "pending_destination" else None,
        state_rows_per_request=contract.state_rows_per_request,
        tuned_buffer_ids=frozenset(tuned.buffer for tuned in contract.tuned_bindings),
    )


def _cache(message: contract_pb2.CacheContract, views: Mapping[str, StateView]) -> Cache:
    cursor = message.draft_cursor
    return Cache(
        page_tokens=message.page_tokens,
        regions=tuple(
            CacheRegion(
                kind=RegionKind(region.kind),
                planes=tuple(region.planes),
                tokens_per_record=region.tokens_per_record,
                window_tokens=region.window_tokens,
                views=tuple(views[name] for name in region.views),
            )
            for region in message.regions
        ),
        page_tables=tuple(PageTableView(view.buffer, view.page_offset) for view in message.page_tables),
        draft_cursor=(
            CompletionCursor(views[cursor.view], cursor.lag_tokens) if message.HasField("draft_cursor") else None
        ),
    )


def _sampling(message: contract_pb2.SamplingDefaults) -> SamplingDefaults:
    return SamplingDefaults(
        temperature=message.temperature if message.HasField("temperature") else None,
        top_p=message.top_p if message.HasField("top_p") else None,
        top_k=message.top_k if message.HasField("top_k") else None,
        min_p=message.min_p if message.HasField("min_p") else None,
        repetition_penalty=message.repetition_penalty if message.HasField("repetition_penalty") else None,
        frequency_penalty=message.frequency_penalty if message.HasField("frequency_penalty") else None,
        presence_penalty=message.presence_penalty if message.HasField("presence_penalty") else None,
    )
