"""Rules over what a model keeps between rounds: state views, cache regions, state rows, page tables.

They know buffers, no programs. Views that pass lie inside persistent buffers, and two of them are either apart or one is a
part of the other's rows.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from helios.contract.enums import Operation, RegionKind
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import contract_pb2 as contract
from helios.contract.schema import execution_pb2 as execution

_SNAPSHOT_OPERATIONS = (execution.OPERATION_SNAPSHOT, execution.OPERATION_RESTORE)
MAX_VIEWS = 256
MAX_VIEW_ROWS = 1 << 18  # over all views


@rule("view-names", "accesses find their view by name")
def view_names(subject: Subject) -> Violations:
    names = [view.name for view in subject.model.state_views]
    if "" in names:
        yield f"state view {names.index('')}, field 'name' is empty"
    for name in repeated(names):
        yield f"state view {name!r} is declared twice"


@rule("view-places", "a state view is a window on a persistent buffer")
def view_places(subject: Subject) -> Violations:
    for view in subject.model.state_views:
        where = f"state view {view.name!r}"
        buffer = subject.buffer(view.buffer)
        if buffer is None or buffer.kind != execution.BUFFER_KIND_STATE:
            yield f"{where}, field 'buffer' is {view.buffer}, which is no state buffer"
            continue
        if not view.rows or not view.row_nbytes:
            yield f"{where} has {view.rows:,} rows of {view.row_nbytes:,} bytes"
        if view.rows > 1 and view.row_stride < view.row_nbytes:
            yield f"{where}, field 'row_stride' is {view.row_stride:,}, a row has {view.row_nbytes:,} bytes"
        end = view.offset + (view.rows - 1) * view.row_stride + view.row_nbytes
        if end > buffer.nbytes:
            yield f"{where} ends at byte {end:,}, its buffer {buffer.name!r} at {buffer.nbytes:,}"
    n_rows = sum(view.rows for view in subject.model.state_views)
    n_views = len(subject.model.state_views)
    if n_views > MAX_VIEWS or n_rows > MAX_VIEW_ROWS:
        yield f"{n_views:,} state views have {n_rows:,} rows, at most {MAX_VIEWS:,} and {MAX_VIEW_ROWS:,} are served"


@rule("view-overlap", "a part of a row may have a view of its own; other bytes with two names would hide a dependency")
def view_overlap(subject: Subject) -> Violations:
    by_buffer: dict[int, list[contract.StateView]] = defaultdict(list)
    for view in subject.model.state_views:
        by_buffer[view.buffer].append(view)
    for views in by_buffer.values():
        for level in _levels(views):
            yield from _shared_bytes(level)


def _levels(views: list[contract.StateView]) -> list[list[contract.StateView]]:
    """The views that are part of no other, then those that are part of these alone, and so on."""
    depths: list[int] = []
    largest_first = sorted(views, key=lambda view: -view.row_nbytes)
    levels: dict[int, list[contract.StateView]] = defaultdict(list)
    for view in largest_first:
        wholes = (depth for other, depth in zip(largest_first, depths, strict=False) if _is_part(view, other))
        depths.append(1 + max(wholes, default=-1))
        levels[depths[-1]].append(view)
    return list(levels.values())


def _is_part(part: contract.StateView, whole: contract.StateView) -> bool:
    """Whether each row of `part` lies inside the same row of `whole`, which is larger."""
    start = part.offset - whole.offset
    is_inside = start >= 0 and start + part.row_nbytes <= whole.row_nbytes and part.row_nbytes < whole.row_nbytes
    return is_inside and part.rows == whole.rows and part.row_stride == whole.row_stride


def _shared_bytes(views: list[contract.StateView]) -> Violations:
    starts = np.concatenate([view.offset + np.arange(view.rows) * view.row_stride for view in views])
    ends = starts + np.repeat([view.row_nbytes for view in views], [view.rows for view in views])
    owners = np.repeat(np.arange(len(views)), [view.rows for view in views])
    order = np.argsort(starts, kind="stable")
    overlaps = np.flatnonzero(starts[order][1:] < ends[order][:-1])
    if len(overlaps):
        first, second = (views[owners[order[overlaps[0] + i]]].name for i in (0, 1))
        yield f"state views {first!r} and {second!r} share byte {starts[order][overlaps[0] + 1]:,} of their buffer"


@rule("cache-regions", "pages are allocated for the planes that the regions name")
def cache_regions(subject: Subject) -> Violations:
    cache = subject.model.cache
    if not cache.regions:
        yield "cache, field 'regions' is empty"
    for index, region in enumerate(cache.regions):
        where, kind = f"cache region {index}", RegionKind(region.kind)
        yield from _paged_region(subject, where, region) if kind.is_paged else _row_region(subject, where, region)
        if (kind is RegionKind.SLIDING_WINDOW) != (region.window_tokens > 0):
            yield f"{where}, field 'window_tokens' is {region.window_tokens:,} for {kind.name}"
    named = [plane for region in cache.regions for plane in region.planes]
    for plane in repeated(named):
        yield f"cache plane {plane} belongs to two regions"
    planes = set(named)
    for buffer in subject.manifest.buffers:
        if buffer.kind == execution.BUFFER_KIND_CACHE_PLANE and buffer.id not in planes:
            yield f"buffer {buffer.name!r} is a cache plane of no region"


def _paged_region(subject: Subject, where: str, region: contract.CacheRegion) -> Violations:
    page_tokens = subject.model.cache.page_tokens
    if not region.planes:
        yield f"{where}, field 'planes' is empty"
    if not region.tokens_per_record or page_tokens % region.tokens_per_record:
        yield f"{where}, field 'tokens_per_record' is {region.tokens_per_record}, no divisor of {page_tokens}"
    for plane in region.planes:
        buffer = subject.buffer(plane)
        if buffer is None or buffer.kind != execution.BUFFER_KIND_CACHE_PLANE:
            yield f"{where}, field 'planes' names buffer {plane}, which is no cache plane"
    if region.views:
        yield f"{where}, field 'views' names {region.views[0]!r}, it is paged"


def _row_region(subject: Subject, where: str, region: contract.CacheRegion) -> Violations:
    if region.planes or region.tokens_per_record:
        yield f"{where}, field {'planes' if region.planes else 'tokens_per_record'!r} is given, it is kept in rows"
    if not region.views:
        yield f"{where}, field 'views' is empty"
    for name in region.views:
        if name not in subject.views:
            yield f"{where}, field 'views' names {name!r}, which is no state view"


@rule("state-rows", "every request has its rows of recurrent and continuation state (CON-11)")
def state_rows(subject: Subject) -> Violations:
    views = [name for region in subject.model.cache.regions for name in region.views]
    for name in repeated(views):
        yield f"state view {name!r} belongs to two cache regions"
    per_request = max((graph.state_rows_per_request for graph in subject.model.graphs), default=0)
    needed = per_request * subject.manifest.request_slots
    for name in views:
        if not per_request:
            yield f"state view {name!r} belongs to a cache region, no graph has 'state_rows_per_request'"
        elif subject.views[name].rows < needed:
            yield f"state view {name!r}, field 'rows' is {subject.views[name].rows:,}, the slots need {needed:,}"


@rule("snapshots", "a snapshot is saved, restored, and has a state row behind those of the slots (CACHE-5, CON-11)")
def snapshots(subject: Subject) -> Violations:
    operations = {graph.operation for graph in subject.model.graphs}
    present = [operation for operation in _SNAPSHOT_OPERATIONS if operation in operations]
    if len(present) == 1:
        missing = next(operation for operation in _SNAPSHOT_OPERATIONS if operation not in operations)
        yield f"a graph has the operation {Operation(present[0]).name}, none has {Operation(missing).name}"
    views = [subject.views[name] for region in subject.model.cache.regions for name in region.views]
    per_request = max((graph.state_rows_per_request for graph in subject.model.graphs), default=0)
    n_spare = min((view.rows for view in views), default=0) - per_request * subject.manifest.request_slots
    if subject.serving.snapshot_count > max(n_spare, 0):
        yield f"field 'snapshot_count' is {subject.serving.snapshot_count:,}, the slots leave {max(n_spare, 0):,} state rows"


@rule("page-tables", "a page table holds the pages of every slot")
def page_tables(subject: Subject) -> Violations:
    manifest = subject.manifest
    nbytes = 4 * manifest.request_slots * manifest.pages_per_slot
    for index, view in enumerate(subject.model.cache.page_tables):
        buffer = subject.buffer(view.buffer)
        if buffer is None or buffer.kind != execution.BUFFER_KIND_STATE:
            yield f"page table {index}, field 'buffer' is {view.buffer}, which is no state buffer"
        elif buffer.nbytes < nbytes:
            yield (
                f"page table {index} needs {nbytes:,} bytes ({manifest.request_slots:,} slots of "
                f"{manifest.pages_per_slot:,} pages), its buffer {buffer.name!r} has {buffer.nbytes:,}"
            )
        if view.page_offset >= manifest.pages_per_slot:
            yield f"page table {index}, field 'page_offset' is {view.page_offset:,} of {manifest.pages_per_slot:,} pages"
    for buffer_id in repeated(view.buffer for view in subject.model.cache.page_tables):
        yield f"buffer {buffer_id} is a page table twice"


RULES: tuple[Rule, ...] = (view_names, view_places, view_overlap, cache_regions, state_rows, snapshots, page_tables)
