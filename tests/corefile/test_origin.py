"""Where a core came from is told to people and never to serving (CORE-8)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from helios.contract.schema import core_pb2
from helios.corefile.contents import read_contents
from helios.corefile.origin import describe_rebuild_manifest, describe_weight_catalogs
from helios.corefile.reader import open_core
from helios.corefile.writer import Container
from tests.corefile.sample_core import CONTAINERS, index_of, read_everything, resign, sample_core
from tests.repo.sources import ROOT, label, package_imports

CATALOG = core_pb2.WeightCatalog(
    version=1, rank=0, views=[core_pb2.StoredView(tensor="embedding", nbytes=5000, sources=["token_embd.weight"])]
)
UNKNOWN_MANIFEST = core_pb2.RebuildManifest(version=99, inputs={"concurrency": "1"}).SerializeToString()
UNKNOWN_CATALOG = core_pb2.WeightCatalog(version=99, rank=7).SerializeToString()
# What a later Helios might write: fields that this one has no name for, and bytes that are no message at all.
FOREIGN = b"\x08\x02\xf2\x7f\x03abc"
GARBAGE = b"\xff\xff\xff\xff"

PLAIN = [CONTAINERS["payload"], CONTAINERS["index"]]


@pytest.mark.parametrize("container", PLAIN, ids=["payload", "index"])
@pytest.mark.parametrize(
    ("manifest", "catalogs"),
    [
        (b"", []),
        (UNKNOWN_MANIFEST, [UNKNOWN_CATALOG]),
        (FOREIGN, [FOREIGN, b""]),
        (GARBAGE, [GARBAGE] * 3),
        (b"", [CATALOG.SerializeToString()] * 2),
    ],
    ids=["missing", "of an unknown version", "with unknown fields", "no messages", "twice the same rank"],
)
def test_neither_changes_what_is_served(
    tmp_path: Path, container: Container, manifest: bytes, catalogs: list[bytes]
) -> None:
    """CORE-8: missing, unknown or nonsense, the contract, the manifest and every byte stay the same."""
    path = sample_core(tmp_path / "sample.core", container=container, weight_catalogs=[CATALOG])
    with open_core(path) as core:
        expected = read_contents(core)
    everything = read_everything(path)

    def change(signed: object, stored: object) -> None:
        index = index_of(signed)  # type: ignore[arg-type]
        index.rebuild_manifest = manifest
        index.weight_catalogs[:] = catalogs

    with open_core(resign(path, change)) as core:
        assert (core.index.rebuild_manifest, list(core.index.weight_catalogs)) == (manifest, catalogs)
        assert read_contents(core) == expected
    assert read_everything(path) == everything


def test_what_is_written_is_described(tmp_path: Path) -> None:
    """CORE-8: for people and tools."""
    with open_core(sample_core(tmp_path / "sample.core", weight_catalogs=[CATALOG])) as core:
        assert describe_rebuild_manifest(core.index) == {"recipe": "sample", "source": "sample.gguf"}
        view = {"tensor": "embedding", "offset": 0, "bytes": 5000, "sources": ["token_embd.weight"]}
        assert describe_weight_catalogs(core.index) == [{"rank": 0, "views": [view]}]


def test_what_is_unknown_is_described_as_such(tmp_path: Path) -> None:
    path = sample_core(tmp_path / "sample.core")

    def change(signed: object, stored: object) -> None:
        index = index_of(signed)  # type: ignore[arg-type]
        index.rebuild_manifest = UNKNOWN_MANIFEST
        index.weight_catalogs[:] = [UNKNOWN_CATALOG, GARBAGE]

    with open_core(resign(path, change)) as core:
        assert describe_rebuild_manifest(core.index) == {"unknown_version": 99}
        assert describe_weight_catalogs(core.index) == [{"unknown_version": 99}, {"unreadable_bytes": 4}]


def test_nothing_that_serves_reads_them() -> None:
    """CORE-8: only `inspect` imports the module that looks inside, and nothing else names the fields."""
    importers = {label(path) for path, module in package_imports() if module == "helios.corefile.origin"}
    assert importers == {"helios/cli/core_description.py"}
    readers = set()
    for path in (ROOT / "helios").rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if names & {"rebuild_manifest", "weight_catalogs"}:
            readers.add(label(path))
    assert readers == {
        "helios/corefile/index.py",  # carries the bytes
        "helios/corefile/origin.py",
        "helios/corefile/writer.py",
    }
