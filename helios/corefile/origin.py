"""What a core says about where it came from: its rebuild manifest and weight catalogs, for people and tools (CORE-8).

Nothing that serves imports this module, so nothing that it reads can select how a core is served. What is of an unknown
version or does not decode is reported as such and is no error.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from helios.contract.schema import core_pb2
from helios.corefile.index import CoreIndex
from helios.corefile.writer import REBUILD_MANIFEST_VERSION, WEIGHT_CATALOG_VERSION

Description = dict[str, Any]


def describe_rebuild_manifest(index: CoreIndex) -> Description:
    """Its inputs by name; empty when there is none."""
    if not index.rebuild_manifest:
        return {}
    manifest = core_pb2.RebuildManifest()
    try:
        manifest.ParseFromString(index.rebuild_manifest)
    except DecodeError:
        return {"unreadable_bytes": len(index.rebuild_manifest)}
    if manifest.version != REBUILD_MANIFEST_VERSION:
        return {"unknown_version": manifest.version}
    return dict(sorted(manifest.inputs.items()))


def describe_weight_catalogs(index: CoreIndex) -> list[Description]:
    """One entry for each rank's catalog."""
    return [_describe(data) for data in index.weight_catalogs]


def _describe(data: bytes) -> Description:
    catalog = core_pb2.WeightCatalog()
    try:
        catalog.ParseFromString(data)
    except DecodeError:
        return {"unreadable_bytes": len(data)}
    if catalog.version != WEIGHT_CATALOG_VERSION:
        return {"unknown_version": catalog.version}
    views = [
        {"tensor": view.tensor, "offset": view.offset, "bytes": view.nbytes, "sources": list(view.sources)}
        for view in catalog.views
    ]
    return {"rank": catalog.rank, "views": views}
