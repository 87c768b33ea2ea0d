"""`helios inspect`: what a core or a GGUF checkpoint holds, for people or as JSON.

It describes a file as plain data first and prints that. It decides nothing about trust: the publisher of a core is shown, not
accepted.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helios.contract.enums import BufferKind
from helios.contract.schema import core_pb2
from helios.corefile.contents import CoreContents, read_contents
from helios.corefile.keys import fingerprint
from helios.corefile.layout import MAGIC
from helios.corefile.origin import describe_rebuild_manifest, describe_weight_catalogs
from helios.corefile.reader import Core, open_core
from helios.errors import ArtifactError, MissingFileError
from helios.ignition.checkpoints.gguf import Gguf, open_gguf

_GGUF_MAGIC = b"GGUF"
_SHOWN_VALUES = 8  # of a list in a checkpoint's metadata
_SHOWN_CHARACTERS = 100

Description = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and how to show it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a .core or a .gguf")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Describe the file on standard output."""
    magic = _magic(arguments.file)
    if magic.startswith(_GGUF_MAGIC):
        with open_gguf(arguments.file) as checkpoint:
            description = _describe_gguf(checkpoint)
            lines = _gguf_lines(description)
    elif magic == MAGIC:
        with open_core(arguments.file) as core:
            description = _describe_core(core, read_contents(core))
            lines = _core_lines(description)
    else:
        raise ArtifactError(f"{arguments.file} is neither a core nor a GGUF checkpoint")
    print(json.dumps(description, indent=2) if arguments.json else "\n".join(lines))
    return 0


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC))
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from error


# Cores ----------------------------------------------------------------------------------------------------------------


def _describe_core(core: Core, contents: CoreContents) -> Description:
    index, contract = core.index, contents.contract
    return {
        "file": str(core.path),
        "format": f"core {index.format.value}",
        "size_bytes": core.size_bytes,
        "publisher": {
            "namespace": core.namespace,
            "key": fingerprint(core.public_key),
            "model_license": index.model_license,
        },
        "contract": {
            "version": contract.version,
            "served_id": contract.served_id,
            "aliases": list(contract.aliases),
            "context_tokens": contract.context_tokens,
            "prefill_tokens": contract.prefill_tokens,
            "concurrency": contract.concurrency,
            "vocabulary": contract.vocabulary,
            "input_vocabulary": contract.input_vocabulary,
            "page_tokens": contract.page_tokens,
            "eos_tokens": list(contract.frontend.eos_tokens),
            "tool_syntax": contract.frontend.tool_syntax.name.lower(),
            "reasoning_syntax": contract.frontend.reasoning_syntax.name.lower(),
            "cache_identity": contract.cache_identity.hex(),
        },
        "target": contract.target,
        "abi_label": contract.abi_label,
        "programs": _programs(contents),
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
            }
            for resource in index.resources
        ],
        "tensors": [{"id": tensor.id, "layout": tensor.layout, "bytes": tensor.nbytes} for tensor in index.tensors],
        "weight_catalogs": describe_weight_catalogs(index),
        "rebuild_manifest": describe_rebuild_manifest(index),
    }


def _programs(contents: CoreContents) -> list[Description]:
    return [
        {
            "name": graph.name,
            "operation": graph.operation.name.lower(),
            "batch_capacity": graph.batch_capacity,
            "draft_tokens": graph.draft_tokens,
            "token_capacity": graph.token_capacity,
            "packed_token_capacity": graph.packed_token_capacity,
            "nodes": len(program.nodes),
            "bindings": len(graph.bindings),
        }
        for graph, program in zip(contents.contract.graphs, contents.manifest.programs, strict=True)
    ]


def _core_lines(core: Description) -> Iterable[str]:
    contract, publisher = core["contract"], core["publisher"]
    yield f"{core['file']}: {core['format']}, {core['size_bytes']:,} bytes"
    yield f"  publisher    {publisher['namespace']}, key {publisher['key']}"
    yield f"  licence      {publisher['model_license'] or 'not stated'}"
    yield f"  model        {', '.join([contract['served_id'], *contract['aliases']])}"
    yield (
        f"  contract     version {contract['version']}, {contract['context_tokens']:,} tokens of context, "
        f"{contract['concurrency']:,} requests at once, prefill chunks of up to {contract['prefill_tokens']:,}"
    )
    yield f"  vocabulary   {contract['vocabulary']:,} tokens, ends {contract['eos_tokens']}"
    yield f"  target       {core['target']}, {core['abi_label']}"
    yield f"\n{len(core['programs'])} programs (B requests, D drafts, W tokens of one, P tokens in all)"
    extents = ("batch_capacity", "draft_tokens", "token_capacity", "packed_token_capacity", "nodes")
    rows = [[entry["name"], entry["operation"], *(entry[name] for name in extents)] for entry in core["programs"]]
    yield from _table(["name", "operation", "B", "D", "W", "P", "nodes"], rows)
    yield f"\n{len(core['buffers'])} buffers"
    yield from _table(["kind", "count", "bytes"], _by(core["buffers"], "kind"))
    for buffer in core["buffers"]:
        if buffer["kind"] == BufferKind.CACHE_PLANE.name.lower():
            yield f"  {buffer['name']}: {buffer['page_bytes']:,} bytes a page of {contract['page_tokens']} tokens"
    yield f"\n{len(core['resources'])} resources"
    rows = [[entry["id"], entry["stored_bytes"], entry["decoded_bytes"]] for entry in core["resources"]]
    yield from _table(["id", "stored", "decoded"], rows)
    yield f"\n{len(core['tensors'])} tensors"
    yield from _table(["layout", "count", "bytes"], _by(core["tensors"], "layout"))


# Checkpoints ----------------------------------------------------------------------------------------------------------


def _describe_gguf(checkpoint: Gguf) -> Description:
    return {
        "file": str(checkpoint.path),
        "format": f"GGUF {checkpoint.version}",
        "size_bytes": checkpoint.size_bytes,
        "metadata": {key: _plain(value) for key, value in checkpoint.metadata.items()},
        "tensors": [
            {"id": name, "layout": tensor.type.name.lower(), "shape": list(tensor.shape), "bytes": tensor.size_bytes}
            for name, tensor in checkpoint.tensors.items()
        ],
    }


def _plain(value: object) -> object:
    """A metadata value as JSON; of a long list, its length and beginning."""
    entries = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(entries, list) and len(entries) > _SHOWN_VALUES:
        return {"length": len(entries), "first": entries[:_SHOWN_VALUES]}
    return entries


def _gguf_lines(checkpoint: Description) -> Iterable[str]:
    yield f"{checkpoint['file']}: {checkpoint['format']}, {checkpoint['size_bytes']:,} bytes"
    yield f"\n{len(checkpoint['metadata'])} metadata entries"
    for key, value in checkpoint["metadata"].items():
        shown = f"{value['length']:,} values" if isinstance(value, dict) else repr(value)
        yield f"  {key} = {shown[:_SHOWN_CHARACTERS]}"
    yield f"\n{len(checkpoint['tensors'])} tensors"
    yield from _table(["layout", "count", "bytes"], _by(checkpoint["tensors"], "layout"))


# Both -----------------------------------------------------------------------------------------------------------------


def _by(entries: Sequence[Description], key: str) -> list[list[object]]:
    """[value of `key`, how many entries have it, their bytes], most bytes first."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        counts[entry[key]][0] += 1
        counts[entry[key]][1] += entry["bytes"]
    rows: list[list[object]] = [[value, count, nbytes] for value, (count, nbytes) in counts.items()]
    return sorted(rows, key=lambda row: (-counts[str(row[0])][1], str(row[0])))


def _table(head: list[str], rows: Iterable[list[object]]) -> Iterable[str]:
    """Columns as wide as their widest cell: text to the left, numbers to the right."""
    table = [head, *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    is_text = [not row.replace(",", "").isdigit() for row in table[-1]]
    for row in table:
        cells = (
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, is_text, strict=True)
        )
        yield "  " + "  ".join(cells).rstrip()
