"""A core as plain data, for `helios inspect --json`, and as a tree, for people.

It knows what a core says and decides nothing: the publisher is shown, not accepted. The tree is drawn from the plain data alone, so
that both show the same.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from helios.cli.tree import Branch, table_lines
from helios.contract.prepared import Cache, Graph, PreparedContract
from helios.contract.schema import core_pb2, execution_pb2
from helios.corefile.contents import CoreContents
from helios.corefile.keys import fingerprint
from helios.corefile.layout import CoreFormat
from helios.corefile.origin import describe_rebuild_manifest, describe_weight_catalogs
from helios.corefile.reader import Core

Description = dict[str, Any]

_CONTAINERS = {
    CoreFormat.PAYLOAD: "payload core",
    CoreFormat.SEALED_INDEX: "encrypted logical-resource core",
    CoreFormat.INDEX: "logical-resource core",
}
_EXTENTS = ("batch_capacity", "draft_tokens", "token_capacity", "packed_token_capacity")


def describe_core(core: Core, contents: CoreContents) -> Description:
    """Everything, in JSON's types."""
    index, contract = core.index, contents.contract
    return {
        "file": str(core.path),
        "format": f"core {index.format.value}",
        "container": _CONTAINERS[index.format],
        "size_bytes": core.size_bytes,
        "publisher": {
            "namespace": core.namespace,
            "key": fingerprint(core.public_key),
            "model_license": index.model_license,
        },
        "contract": _contract(contract),
        "target": contract.target,
        "abi_label": contract.abi_label,
        "ranks": contract.n_ranks,
        "programs": [_program(*pair) for pair in zip(contract.graphs, contents.manifest.programs, strict=True)],
        "tuning_programs": [program.name for program in contents.manifest.tuning_programs],
        "buffers": [
            {
                "name": buffer.name,
                "kind": buffer.kind.name.lower(),
                "bytes": buffer.nbytes,
                "page_bytes": buffer.page_nbytes,
            }
            for buffer in contract.buffers
        ],
        "resources": [
            {
                "id": resource.id,
                "kind": core_pb2.ResourceKind.Name(resource.kind).removeprefix("RESOURCE_KIND_").lower(),
                "stored_bytes": resource.stored.nbytes,
                "decoded_bytes": resource.decoded_nbytes,
                "place": _place(core, resource.id),
            }
            for resource in index.resources
        ],
        "tensors": [
            {"id": tensor.id, "layout": tensor.layout, "bytes": tensor.nbytes, "place": _place(core, tensor.id)}
            for tensor in index.tensors
        ],
        "rebuild_manifest": describe_rebuild_manifest(index),
        "weight_catalogs": describe_weight_catalogs(index),
    }


def _contract(contract: PreparedContract) -> Description:
    return {
        "version": contract.version,
        "served_id": contract.served_id,
        "aliases": list(contract.aliases),
        "cache_identity": contract.cache_identity.hex(),
        "context_tokens": contract.context_tokens,
        "prefill_tokens": contract.prefill_tokens,
        "page_count": contract.page_count,
        "snapshot_count": contract.snapshot_count,
        "concurrency": contract.concurrency,
        "speculative_widths": list(contract.speculative_widths),
        "vocabulary": contract.vocabulary,
        "input_vocabulary": contract.input_vocabulary,
        "sampling": _plain(contract.sampling),
        "vision": _plain(contract.vision),
        "frontend": _plain(contract.frontend),
        "cache": _cache(contract.cache, contract),
    }


def _cache(cache: Cache, contract: PreparedContract) -> Description:
    names = {buffer.id: buffer.name for buffer in contract.buffers}
    return {
        "page_tokens": cache.page_tokens,
        "regions": [
            {
                "kind": region.kind.name.lower(),
                "planes": [names[plane] for plane in region.planes],
                "tokens_per_record": region.tokens_per_record,
                "window_tokens": region.window_tokens,
                "views": [view.name for view in region.views],
            }
            for region in cache.regions
        ],
        "page_tables": [
            {"buffer": names[table.buffer_id], "page_offset": table.page_offset} for table in cache.page_tables
        ],
        "draft_cursor": None
        if cache.draft_cursor is None
        else {"view": cache.draft_cursor.view.name, "lag_tokens": cache.draft_cursor.lag_tokens},
    }


def _program(graph: Graph, program: execution_pb2.Program) -> Description:
    return {
        "name": graph.name,
        "operation": graph.operation.name.lower(),
        **{extent: getattr(graph, extent) for extent in _EXTENTS},
        "nodes": len(program.nodes),
        "bindings": [
            {
                "destination": binding.destination,
                "source": binding.source.name.lower(),
                "indexing": binding.indexing.name.lower(),
            }
            for binding in graph.bindings
        ],
        "accesses": [{"view": view.name, "access": access.name.lower()} for view, access in graph.accesses],
    }


def _place(core: Core, id_: str) -> str:
    place = core.place(id_)
    return place.url or (str(place.file) if place.file else "this file")


def _plain(value: Any) -> Any:
    """A frozen part of the contract in JSON's types; enums by name."""
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


# -- for people --------------------------------------------------------------------------------------------------------


def core_tree(core: Description) -> Branch:
    """The description without what only a program wants to know."""
    publisher = core["publisher"]
    head = f"{core['file']}: {core['format']}, {core['container']}, {core['size_bytes']:,} bytes"
    origin = ", ".join(f"{key} {value}" for key, value in core["rebuild_manifest"].items())
    ranks = "" if core["ranks"] == 1 else f", {core['ranks']} ranks"
    return Branch(
        head,
        [
            Branch(f"publisher    {publisher['namespace']}, key {publisher['key']}"),
            Branch(f"licence      {publisher['model_license'] or 'not stated'}"),
            Branch(f"made from    {origin or 'not stated'}"),
            Branch(f"target       {core['target']}, {core['abi_label']}{ranks}"),
            _contract_branch(core["contract"]),
            _programs_branch(core["programs"], core["tuning_programs"]),
            _buffers_branch(core["buffers"], core["contract"]["cache"]["page_tokens"]),
            _resources_branch(core["resources"]),
            Branch(
                f"{len(core['tensors'])} tensors",
                _rows(["layout", "count", "bytes"], sums_by(core["tensors"], "layout")),
            ),
        ],
    )


def _contract_branch(contract: Description) -> Branch:
    frontend, cache = contract["frontend"], contract["cache"]
    sampling = ", ".join(f"{name} {value:g}" for name, value in contract["sampling"].items() if value is not None)
    lines = [
        f"model        {', '.join([contract['served_id'], *contract['aliases']])}",
        f"capacities   {contract['context_tokens']:,} tokens of context, {contract['concurrency']:,} requests at once, "
        f"prefill chunks of up to {contract['prefill_tokens']:,}",
        f"vocabulary   {contract['vocabulary']:,} tokens, ends {frontend['eos_tokens']}",
        f"frontend     tools {frontend['tool_syntax']}, reasoning {frontend['reasoning_syntax']}",
        f"sampling     {sampling or 'no defaults'}",
    ]
    if contract["speculative_widths"]:
        lines.append(f"speculation  widths {contract['speculative_widths']}")
    if contract["vision"]:
        lines.append(f"vision       {frontend['image_preparation']}, {frontend['image_layout']}")
    regions = [
        Branch(f"{region['kind']}: {', '.join(region['planes'] + region['views']) or 'nothing'}")
        for region in cache["regions"]
    ]
    cache_branch = Branch(f"cache        pages of {cache['page_tokens']:,} tokens", regions)
    return Branch(f"contract     version {contract['version']}", [*map(Branch, lines), cache_branch])


def _programs_branch(programs: Sequence[Description], tuning_programs: Sequence[str]) -> Branch:
    names = ["name", "operation", "B", "D", "W", "P", "nodes", "bindings"]
    rows: list[list[object]] = [
        [
            entry["name"],
            entry["operation"],
            *(entry[extent] for extent in _EXTENTS),
            entry["nodes"],
            len(entry["bindings"]),
        ]
        for entry in programs
    ]
    tuning = [Branch(f"at start-up: {', '.join(tuning_programs)}")] if tuning_programs else []
    head = f"{len(programs)} programs (B requests, D drafts, W tokens of one, P tokens in all)"
    return Branch(head, [*_rows(names, rows), *tuning])


def _buffers_branch(buffers: Sequence[Description], page_tokens: int) -> Branch:
    planes = [
        Branch(f"{buffer['name']}: {buffer['page_bytes']:,} bytes a page of {page_tokens} tokens")
        for buffer in buffers
        if buffer["page_bytes"]
    ]
    return Branch(f"{len(buffers)} buffers", [*_rows(["kind", "count", "bytes"], sums_by(buffers, "kind")), *planes])


def _resources_branch(resources: Sequence[Description]) -> Branch:
    rows: list[list[object]] = [
        [entry["place"], entry["id"], entry["stored_bytes"], entry["decoded_bytes"]] for entry in resources
    ]
    return Branch(f"{len(resources)} resources", _rows(["place", "id", "stored", "decoded"], rows))


def _rows(head: list[str], rows: Iterable[list[object]]) -> list[Branch]:
    return [Branch(line) for line in table_lines(head, rows)]


def sums_by(entries: Sequence[Description], key: str) -> list[list[object]]:
    """[value of `key`, how many entries have it, their bytes], most bytes first."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        counts[entry[key]][0] += 1
        counts[entry[key]][1] += entry["bytes"]
    rows: list[list[object]] = [[value, count, nbytes] for value, (count, nbytes) in counts.items()]
    return sorted(rows, key=lambda row: (-counts[str(row[0])][1], str(row[0])))
