"""What the zipapp writer puts in, leaves out, refuses, and that it does so to the byte."""

from __future__ import annotations

import json
import os
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.building import zipapp
from scripts.building.project import Project, running_python
from scripts.building.steps import BuildError, Progress
from scripts.building.zipapp import write_zipapp
from tests.repo.sources import ROOT
from tests.scripts.building.small_zipapp import make_project, make_wheel, make_zipapp


def write(project: Project, wheels: list[Path], model: Path | None = None) -> Path:
    """The zipapp of `project` with `wheels`."""
    output = project.root / "out.pyz"
    write_zipapp(project, wheels, (running_python(),), model, output, Progress("zipapp"))
    return output


def manifest_of(path: Path) -> Any:
    """The manifest inside."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("manifest.json"))


def names_in(path: Path) -> set[str]:
    """Every name inside."""
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_two_builds_are_identical_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 2, item 2: whatever the checkout's place, the file dates, permissions, or the clock."""
    first = make_zipapp(tmp_path / "first").read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    make_project(tmp_path / "second")
    for path in (tmp_path / "second").rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700)
    assert make_zipapp(tmp_path / "second").read_bytes() == first


def test_the_hash_follows_the_contents(tmp_path: Path) -> None:
    """An unpacked tree is named by it and never changed."""
    hashes = {manifest_of(make_zipapp(tmp_path / str(n), note))["hash"] for n, note in enumerate(["", "a", "b", "a"])}
    assert len(hashes) == 3


def test_it_is_a_program(tmp_path: Path) -> None:
    """It can be run by its name."""
    path = make_zipapp(tmp_path)
    assert path.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert os.access(path, os.X_OK)


def test_wheels_lose_tests_stubs_and_headers_and_keep_their_licences(tmp_path: Path) -> None:
    """Issue 2, item 2."""
    kept = ["a.py", "a/b.so", "a/data.txt", "a-1.dist-info/METADATA", "a-1.dist-info/licenses/LICENSE"]
    dropped = [
        "a/b.pyi",
        "a/tests/test_b.py",
        "a/include/a.h",
        "a-1.dist-info/RECORD",
        "a-1.data/scripts/a",
        "_cffi.x.so",
    ]
    wheel = make_wheel(tmp_path / "a.whl", dict.fromkeys([*kept, *dropped], b""))
    found = names_in(write(make_project(tmp_path), [wheel]))
    assert {name for name in found if name.startswith("site/")} == {f"site/{name}" for name in kept}
    assert not any("__pycache__" in name for name in found)
    assert {"app/helios/cli/main.py", "app/native/libhelios_cudart.so", "app/LICENSE", "__main__.py"} <= found
    # Issue 7, item 2: the CUDA kernels go in, the emulator does not.
    assert "app/native/libhelios_cuda.so" in found
    assert "app/native/libhelios_kernels.simt.so" not in found


def test_wheels_of_two_pythons_share_what_is_the_same_and_may_not_differ(tmp_path: Path) -> None:
    """Research, feasibility 5: extension modules carry the version in their names, everything else must be one file."""
    project = make_project(tmp_path)
    one = make_wheel(tmp_path / "a-cp311.whl", {"a.py": b"1", "b.cpython-311-x86_64-linux-gnu.so": b"1"})
    two = make_wheel(tmp_path / "a-cp312.whl", {"a.py": b"1", "b.cpython-312-x86_64-linux-gnu.so": b"2"})
    assert len([name for name in names_in(write(project, [one, two])) if name.startswith("site/")]) == 3
    other = make_wheel(tmp_path / "a-cp313.whl", {"a.py": b"2"})
    with pytest.raises(BuildError, match=r"site/a\.py differs between a-cp311\.whl and a-cp313\.whl"):
        write(project, [one, two, other])


def test_the_glibc_floor_is_the_highest_that_any_library_asks_for(tmp_path: Path) -> None:
    """The launcher says it in one line instead of the loader saying it deep in an import."""
    wheel = make_wheel(tmp_path / "a.whl", {"a.so": b"x\0GLIBC_2.9\0GLIBC_2.28\0GLIBC_2.3.4\0"})
    assert manifest_of(write(make_project(tmp_path), [wheel]))["glibc"] == "2.28"


def test_a_model_inside_is_stored_as_it_is(tmp_path: Path) -> None:
    """Issue 2, item 2: `--with-model`. A core is compressed already."""
    model = tmp_path / "default.core"
    model.write_bytes(b"core" * 1000)
    with zipfile.ZipFile(write(make_project(tmp_path), [], model)) as archive:
        info = archive.getinfo("app/model/default.core")
        assert (info.compress_type, archive.read(info)) == (zipfile.ZIP_STORED, model.read_bytes())


def test_a_file_for_every_python_stays_when_one_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build.py test` after `build.py all` must not take away from the file."""
    monkeypatch.setattr(zipapp, "_fetch_wheels", lambda project, python: [])
    project = replace(make_project(tmp_path), pythons=("3.11", "3.12"))

    def pythons_after(*asked: str) -> list[str]:
        zipapp.build_zipapp(project, asked, None)
        pythons: list[str] = manifest_of(project.zipapp)["pythons"]
        return pythons

    assert pythons_after("3.11") == ["3.11"]
    assert pythons_after("3.11", "3.12") == ["3.11", "3.12"]
    assert pythons_after("3.11") == ["3.11", "3.12"]
    make_project(tmp_path, "changed")
    assert pythons_after("3.11") == ["3.11"]


def test_every_dependency_is_named_with_one_exact_version() -> None:
    """Two builds of one commit carry the same wheels."""
    project = Project.load(ROOT)
    requirements = [*project.requirements, *(word for group in project.groups.values() for word in group)]
    assert all(requirement.count("==") == 1 for requirement in requirements)
