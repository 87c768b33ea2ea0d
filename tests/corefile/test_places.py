"""Where stored bytes may be: in this file, in files beside it, behind a URL; and nowhere else."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from helios.contract.schema import core_pb2
from helios.corefile.layout import CoreFormat
from helios.corefile.places import resolve
from helios.corefile.reader import open_core
from helios.corefile.writer import Container
from helios.errors import ChunkHashError, CoreError, LocationError
from tests.corefile.range_server import cut, drop, serving
from tests.corefile.sample_core import (
    CONTAINERS,
    CORE_KEY,
    TENSOR,
    read_everything,
    relocate,
    sample_core,
    split,
    stored_of,
)


@pytest.fixture(autouse=True)
def _core_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CORE_KEY", CORE_KEY.hex())


def spread(path: Path, file: str, prefix: bytes = b"") -> core_pb2.LocationSet:
    """Put everything stored into `file` beside the core, one after the other behind `prefix`; the locations say so."""
    _, stored = stored_of(path.read_bytes())
    content, locations = bytearray(prefix), core_pb2.LocationSet()
    for id_, part in stored.items():
        locations.locations.add(id=id_, offset=len(content), file=file)
        content += part
    target = path.parent / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return locations


@pytest.mark.parametrize("name", ["payload", "index", "sealed"])
def test_a_relative_file_may_hold_any_part(tmp_path: Path, name: str) -> None:
    """CORE-1: locations are unsigned; what they point to is checked by its signed hashes."""
    path = sample_core(tmp_path / "sample.core", container=CONTAINERS[name])
    expected = read_everything(path)
    relocate(path, spread(path, "parts/all.bin", b"something else first"))
    assert read_everything(path) == expected
    with open_core(path) as core:
        assert core.size_bytes > path.stat().st_size


def test_a_changed_byte_elsewhere_is_found(tmp_path: Path) -> None:
    """CORE-4: wherever it lies."""
    path = sample_core(tmp_path / "sample.core")
    relocate(path, spread(path, "all.bin"))
    content = bytearray((tmp_path / "all.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "all.bin").write_bytes(content)
    with open_core(path) as core, pytest.raises(ChunkHashError):
        core.verify_tensors()


@pytest.mark.parametrize("offset", [1 << 20, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_an_offset_behind_the_file_is_a_typed_error(tmp_path: Path, offset: int) -> None:
    path = sample_core(tmp_path / "sample.core")
    locations = spread(path, "all.bin")
    for location in locations.locations:
        location.offset = offset
    relocate(path, locations)
    with open_core(path) as core, pytest.raises(CoreError):
        core.verify_tensors()


@pytest.mark.parametrize("fault", ["missing", "short", "long", "a directory", "a pipe", "a link in a circle"])
def test_a_resource_file_that_is_wrong_is_a_typed_error(tmp_path: Path, fault: str) -> None:
    """Issue 3: never another exception, and never a wait."""
    path = sample_core(tmp_path / "sample.core", container=CONTAINERS["split"])
    (file,) = tmp_path.glob("sample.*/embedding")
    content = file.read_bytes()
    file.unlink()
    if fault == "short":
        file.write_bytes(content[:-1])
    elif fault == "long":
        file.write_bytes(content + b"x")
    elif fault == "a directory":
        file.mkdir()
    elif fault == "a pipe":
        os.mkfifo(file)
    elif fault == "a link in a circle":
        file.symlink_to(file)
    with open_core(path) as core:
        for read in (core.verify_tensors, lambda: core.tensor("embedding")):
            with pytest.raises(CoreError) as caught:
                read()
            assert "embedding" in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "../up",
        "a/../../up",
        "/etc/passwd",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "c:x",
        "nul\0",
        "x" * 1001,
        " ",
        "a/ /b",
        "...",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, text: str) -> None:
    """CORE-1: an unsigned location names nothing outside the core's directory."""
    location = core_pb2.Location(id="a", file=text)
    with pytest.raises(CoreError, match="no path below the core's directory"):
        resolve(core_pb2.LocationSet(locations=[location]), {"a": 1}, tmp_path)
    with pytest.raises(CoreError, match="no path below the core's directory"):
        resolve(core_pb2.LocationSet(directory=text), {"a": 1}, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://host/a", "file:///etc/passwd", "http://", "http:///a", "host/a", "http://u:p@host/a", "http://h/a b"),
        *(
            "http://h/a#b",
            "http://h:0/",
            "http://h:99999/",
            "http://[::1/",
            "http://h/\u00e9",
            "https://h/" + "x" * 1000,
        ),
    ],
)
def test_what_is_no_http_url_is_refused(tmp_path: Path, text: str) -> None:
    """CORE-1: no other scheme, no credentials, nothing that a request could be smuggled in."""
    with pytest.raises(CoreError, match="no HTTP URL"):
        resolve(core_pb2.LocationSet(locations=[core_pb2.Location(id="a", url=text)]), {"a": 1}, tmp_path)
    with pytest.raises(CoreError, match="no HTTP URL"):
        sample_core(tmp_path / "sample.core", container=Container(is_split=True, url=text))


def test_a_location_is_one_place(tmp_path: Path) -> None:
    """CORE-1: what is stored for an id is in one place, and the location set says which."""
    both = core_pb2.Location(id="a", file="x", url="http://host/x")
    with pytest.raises(CoreError, match="both a file and a URL"):
        resolve(core_pb2.LocationSet(locations=[both]), {"a": 1}, tmp_path)
    twice = [core_pb2.Location(id="a", offset=offset) for offset in (4096, 8192)]
    with pytest.raises(CoreError, match="resource 'a' has two locations"):
        resolve(core_pb2.LocationSet(locations=twice), {"a": 1}, tmp_path)
    with pytest.raises(CoreError, match="has two locations"):
        resolve(core_pb2.LocationSet(directory="x", url="http://host/x"), {"a": 1}, tmp_path)
    with pytest.raises(CoreError, match="has no location"):
        resolve(core_pb2.LocationSet(), {"a": 1}, tmp_path)


@pytest.mark.parametrize("id_", ["a/b", ".hidden", "..", "", "a b", "a\\b", "\u00e9"])
def test_an_id_that_is_no_file_name_needs_a_location(tmp_path: Path, id_: str) -> None:
    with pytest.raises(CoreError, match="cannot be the name of a file"):
        resolve(core_pb2.LocationSet(directory="d"), {id_: 1}, tmp_path)


def test_a_location_set_larger_than_any_honest_one_is_not_decoded(tmp_path: Path) -> None:
    """CORE-1: it is unsigned, so its size is bounded by what is signed."""
    path = sample_core(tmp_path / "sample.core")
    locations = core_pb2.LocationSet(locations=[core_pb2.Location(id="x")] * 20_000)
    with pytest.raises(CoreError, match="locations of 100,000 bytes are more than"):
        open_core(relocate(path, locations))


def test_own_and_foreign_places_mix(tmp_path: Path) -> None:
    """CORE-1: what is not in this file leaves no hole in it."""
    path = sample_core(tmp_path / "sample.core")
    expected, (_, stored) = read_everything(path), stored_of(path.read_bytes())
    locations = spread(path, "all.bin")
    first = locations.locations[0]
    first.ClearField("file")
    with pytest.raises(CoreError, match="overlaps what is before it"):
        open_core(relocate(path, locations))
    first.offset = 4096
    header = relocate(path, locations).read_bytes()
    assert len(header) < first.offset
    path.write_bytes(header + bytes(first.offset - len(header)) + stored[first.id])
    assert read_everything(path) == expected
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(CoreError, match="follow the last resource"):
        open_core(path)


# -- HTTP --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", CoreFormat)
def test_a_core_reads_its_resources_from_a_server(tmp_path: Path, format_: CoreFormat) -> None:
    """CORE-1, CORE-2: HTTP range reads, with faults on the way."""
    core_key = CORE_KEY if format_ is CoreFormat.SEALED_INDEX else None
    with serving({}) as server:
        container = Container(format_, core_key=core_key, is_split=True, url=f"{server.url}/model")
        path = sample_core(tmp_path / "sample.core", container=container)
        (directory,) = (entry for entry in tmp_path.iterdir() if entry.is_dir())
        for file in directory.iterdir():
            server.files[f"/model/{file.name}"] = file.read_bytes()
            file.unlink()
        server.faults = [cut(10), drop]
        found = read_everything(path)
        assert found["embedding"] == TENSOR
        with open_core(path):
            n_requests = len(server.requests)
        assert len(server.requests) == n_requests  # opening asks for nothing: trust comes first
        server.files["/model/embedding"] = server.files["/model/embedding"][::-1]
        with open_core(path) as core, pytest.raises(ChunkHashError):
            core.verify_tensors()
        server.files["/model/embedding"] = b"short"
        with open_core(path) as core, pytest.raises(LocationError):
            core.verify_tensors()


def test_a_url_and_an_offset_name_a_part_of_a_file(tmp_path: Path) -> None:
    """CORE-1: a whole core on a server, its signed header here."""
    path = sample_core(tmp_path / "sample.core")
    data = path.read_bytes()
    expected = read_everything(path)
    _, locations = split(data)
    with serving({"/sample.core": data}) as server:
        for location in locations.locations:
            location.url = f"{server.url}/sample.core"
        assert read_everything(relocate(path, locations)) == expected


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3: every wait has an end."""
    monkeypatch.setattr("helios.corefile.remote_file._TIMEOUT_S", 0.02)
    monkeypatch.setattr("helios.corefile.remote_file._FIRST_PAUSE_S", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        path = sample_core(tmp_path / "sample.core", container=Container(is_split=True, url=url))
        with open_core(path) as core, pytest.raises(LocationError, match="timed out"):
            core.tensor("embedding")
