"""`helios inspect`: what a core or a GGUF checkpoint holds, for people or as JSON.

It describes a file as plain data first and prints that. It decides nothing about trust: the publisher of a core is shown, not
accepted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from helios.cli.core_description import Description, core_tree, describe_core, sums_by
from helios.cli.model_file import ModelFormat, format_of
from helios.cli.text import printable
from helios.cli.tree import table_lines, tree_lines
from helios.corefile.contents import read_contents
from helios.corefile.reader import open_core
from helios.ignition.checkpoints.gguf import Gguf, open_gguf

_SHOWN_VALUES = 8  # of a list in a checkpoint's metadata
_SHOWN_CHARACTERS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and how to show it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a .core or a .gguf")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Describe the file on standard output."""
    if format_of(arguments.file) is ModelFormat.GGUF:
        with open_gguf(arguments.file) as checkpoint:
            description = _describe_gguf(checkpoint)
            lines = _gguf_lines(description)
    else:
        with open_core(arguments.file) as core:
            description = describe_core(core, read_contents(core))
            lines = tree_lines(core_tree(description))
    print(json.dumps(description, indent=2) if arguments.json else "\n".join(map(printable, lines)))
    return 0


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
    yield ""
    yield f"{len(checkpoint['metadata'])} metadata entries"
    for key, value in checkpoint["metadata"].items():
        shown = f"{value['length']:,} values" if isinstance(value, dict) else repr(value)
        yield f"  {key} = {shown[:_SHOWN_CHARACTERS]}"
    yield ""
    yield f"{len(checkpoint['tensors'])} tensors"
    yield from (
        f"  {line}" for line in table_lines(["layout", "count", "bytes"], sums_by(checkpoint["tensors"], "layout"))
    )
