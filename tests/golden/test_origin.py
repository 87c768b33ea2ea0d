"""Where a core came from never changes how it is served: rebuild manifest and weight catalogs, there, missing, or foreign."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios.contract.messages import serialize
from helios.contract.prepared import PreparedContract
from helios.contract.schema import core_pb2
from helios.corefile.contents import read_contents
from helios.corefile.reader import open_core
from tests.corefile.sample_core import Stored, index_of, resign
from tests.golden.golden import SIGNING_KEY, Golden, ask, core_path, start

FORMATS = ["payload2-contract3", "index6-contract3", "index4-contract3"]
UNKNOWN_FIELD = b"\x9a\x7d\x03new"  # field 2003, three bytes


def manifest(version: int, **inputs: str) -> bytes:
    return serialize(core_pb2.RebuildManifest(version=version, inputs=inputs))


def catalog(version: int, rank: int, tensor: str = "token_embd") -> bytes:
    view = core_pb2.StoredView(tensor=tensor, offset=1 << 40, nbytes=7, sources=["nothing of this kind"])
    return serialize(core_pb2.WeightCatalog(version=version, rank=rank, views=[view]))


REBUILD_MANIFESTS = {
    "none": b"",
    "of an unknown version": manifest(99, source_sha256="00") + UNKNOWN_FIELD,
    "that contradicts the core": manifest(1, architecture="mamba", abi="helios.kernels.0", context_tokens="16"),
    "that is no message": b"\xff\xff\xff",
}
WEIGHT_CATALOGS = {
    "none": [],
    "of an unknown version": [catalog(99, 0) + UNKNOWN_FIELD],
    "for ranks that there are not": [catalog(1, rank) for rank in (5, 5, 1 << 20)],
    "of tensors that there are not": [catalog(1, 0, "no such tensor")],
    "that is no message": [b"\xff\xff\xff", b""],
}


def served(path: Path, golden: Golden) -> tuple[object, ...]:
    """All that a client can see: description, names, limits, defaults and tokens."""
    with start(path) as engine:
        answers = ask(engine, [case.to_request(candidates=3) for case in golden.cases])
        return (
            engine.description,
            (engine.served_id, engine.aliases, engine.context_tokens, engine.vocabulary),
            (engine.eos_tokens, engine.chat_template, engine.sampling_defaults),
            answers,
        )


def prepared(path: Path) -> PreparedContract:
    with open_core(path) as core:
        return read_contents(core).contract


def changed(name: str, directory: Path, change: Callable[[Any], object]) -> Path:
    """A golden core with other origin data, signed again; every stored byte and the contract are as they were."""
    path = directory / f"{name}.core"
    shutil.copy(core_path(name), path)

    def apply(signed: Any, stored: Stored) -> None:
        change(index_of(signed))

    return resign(path, apply, SIGNING_KEY)


@pytest.mark.parametrize("name", FORMATS)
def test_a_core_carries_both(name: str) -> None:
    """What is left out below was there."""
    with open_core(core_path(name)) as core:
        assert core_pb2.RebuildManifest.FromString(core.index.rebuild_manifest).inputs["source_sha256"]
        (only,) = core.index.weight_catalogs
        views = core_pb2.WeightCatalog.FromString(only).views
        assert views
        assert {view.tensor for view in views} <= {tensor.id for tensor in core.index.tensors}


@pytest.mark.parametrize("kind", REBUILD_MANIFESTS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_rebuild_manifest_changes_nothing(name: str, kind: str, tmp_path: Path) -> None:
    """CORE-8: present, missing, of an unknown version or plainly wrong, it never selects serving behaviour."""

    def change(index: Any) -> None:
        index.rebuild_manifest = REBUILD_MANIFESTS[kind]

    check_unchanged(name, changed(name, tmp_path, change))


@pytest.mark.parametrize("kind", WEIGHT_CATALOGS)
@pytest.mark.parametrize("name", FORMATS)
def test_weight_catalogs_change_nothing(name: str, kind: str, tmp_path: Path) -> None:
    """CORE-8: likewise the catalogs of each rank."""

    def change(index: Any) -> None:
        del index.weight_catalogs[:]
        index.weight_catalogs.extend(WEIGHT_CATALOGS[kind])

    check_unchanged(name, changed(name, tmp_path, change))


def check_unchanged(name: str, path: Path) -> None:
    golden = Golden.load(name)
    with open_core(path) as new, open_core(core_path(name)) as old:
        assert (new.index.rebuild_manifest, list(new.index.weight_catalogs)) != (
            old.index.rebuild_manifest,
            list(old.index.weight_catalogs),
        )
    assert prepared(path) == prepared(core_path(name))
    assert served(path, golden) == served(core_path(name), golden)
