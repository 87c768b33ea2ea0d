"""Writes `dist/helios.pyz`: the package, its third-party wheels and the native libraries in one runnable zip.

It knows zip files and wheels, not what is in them. The same inputs give the same bytes: names are sorted, dates and permissions
fixed. Extension modules carry their Python version in their names, so the wheels of several versions share one tree.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from scripts.building.native import SIMT_LIBRARY
from scripts.building.project import Project
from scripts.building.steps import BuildError, Progress, digest, files_below, run_logged, run_step

HERE = Path(__file__).parent
SHEBANG = b"#!/usr/bin/env python3\n"
DATE = (1980, 1, 1, 0, 0, 0)

# What wheels carry and a program does not need: tests, headers, type stubs, sources of extension modules.
DROPPED_SUFFIXES = {".pyi", ".h", ".hpp", ".c", ".pxd", ".pyx", ".a", ".typed"}
DROPPED_FOLDERS = {"tests", "testing", "_pyinstaller", "f2py", "include", "sboms"}
# Extension modules that only tests, or only other Python implementations, import.
DROPPED_MODULES = {
    "_cffi",
    "_multiarray_tests",
    "_operand_flag_tests",
    "_rational_tests",
    "_simd",
    "_struct_ufunc_tests",
    "_umath_tests",
}
KEPT_OF_DIST_INFO = {"METADATA", "licenses"}  # a licence must go where the code goes
# Wheels of different Pythons may differ here: it says how numpy was compiled, and only `numpy.show_config` reads it.
MAY_DIFFER = {"numpy/__config__.py"}


@dataclass(frozen=True)
class Entry:
    """A file of the zip: its name there, where it is from, and how to read it."""

    name: str
    origin: Path
    read: Callable[[], bytes]


def build_zipapp(project: Project, pythons: Sequence[str], model: Path | None) -> None:
    """Fetch the wheels for these Pythons and write the file, if anything in it has changed. A file that is up to date and
    serves every Python of the project serves these as well, and stays."""
    stamp = project.build / "stamps" / "zipapp"
    if stamp.is_file() and stamp.read_text() == _inputs(project, project.pythons, model):
        pythons = project.pythons
    wheels = [wheel for python in pythons for wheel in _fetch_wheels(project, python)]
    run_step(
        "zipapp",
        stamp,
        _inputs(project, pythons, model),
        [project.zipapp],
        lambda progress: write_zipapp(project, wheels, pythons, model, project.zipapp, progress),
    )


def _inputs(project: Project, pythons: Sequence[str], model: Path | None) -> str:
    sources = [project.root / "helios", project.root / "LICENSE", project.native, HERE]
    return digest(*pythons, *project.requirements, project.version, [*sources, *([model] if model else [])])


def _fetch_wheels(project: Project, python: str) -> list[Path]:
    directory = project.build / "wheels" / python
    machine, tag = platform.machine(), "cp" + python.replace(".", "")
    command: list[str | Path] = [
        project.python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
        "--no-deps",
    ]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    command += [word for abi in (tag, "abi3", "none") for word in ("--abi", abi)]
    for tag in ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_31"):  # what llguidance was built for
        command += ["--platform", f"{tag}_{machine}"]

    def work(progress: Progress) -> str:
        shutil.rmtree(directory, ignore_errors=True)
        log = project.build / "log" / "wheels.log"
        run_logged([*command, "-d", directory, *project.requirements], f"fetching for Python {python}", log, progress)
        return f"{len(project.requirements)} for Python {python}"

    stamp = project.build / "stamps" / f"wheels-{python}"
    run_step("wheels", stamp, digest(*project.requirements, machine, python), [directory], work)
    return sorted(directory.glob("*.whl"))


def write_zipapp(
    project: Project,
    wheels: Sequence[Path],
    pythons: Sequence[str],
    model: Path | None,
    output: Path,
    progress: Progress,
) -> str:
    """Write the zip to `output`. Reads nothing but what is named here."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_suffix(".part")
    with ExitStack() as stack:
        entries = _own_entries(project, model)
        for wheel in wheels:
            entries += _wheel_entries(wheel, stack.enter_context(zipfile.ZipFile(wheel)))
        file = stack.enter_context(unfinished.open("wb"))
        file.write(SHEBANG)
        archive = stack.enter_context(zipfile.ZipFile(file, "w"))
        manifest = _add_entries(archive, _merged(entries), progress)
        manifest |= {"machine": platform.machine(), "pythons": list(pythons), "version": project.version}
        _add(archive, "manifest.json", json.dumps(manifest, indent=1, sort_keys=True).encode())
        _add(archive, "launcher.py", (HERE / "launcher.py").read_bytes())
        _add(archive, "__main__.py", (HERE / "stub.py").read_bytes())
    unfinished.chmod(0o755)
    unfinished.replace(output)
    size_mb = output.stat().st_size / 1e6
    return f"{output.name}, {size_mb:.0f} MB, for Python {', '.join(pythons)} and glibc {manifest['glibc']}"


def _add_entries(archive: zipfile.ZipFile, entries: Sequence[Entry], progress: Progress) -> dict[str, object]:
    """Add them in the order of their names. What the launcher must know of them: their hash, the oldest glibc that all
    libraries accept, and one library to try whether libraries can be mapped."""
    hasher, glibc, probe = hashlib.sha256(), (2, 17), ""
    for n_done, entry in enumerate(sorted(entries, key=lambda entry: entry.name)):
        progress.show(f"{n_done} of {len(entries)} files")
        data = entry.read()
        hasher.update(f"{entry.name}\0{len(data)}\0".encode() + data)
        if entry.name.endswith(".so"):
            glibc, probe = max(glibc, _glibc_needed(data)), probe or entry.name
        _add(archive, entry.name, data)
    return {"glibc": ".".join(map(str, glibc)), "hash": hasher.hexdigest()[:16], "probe": probe}


def _own_entries(project: Project, model: Path | None) -> list[Entry]:
    package = project.root / "helios"
    files = {
        f"helios/{path.relative_to(package).as_posix()}": path
        for path in files_below(package)
        if path.suffix not in {".proto", ".pyi"}
    }
    libraries = (path for path in project.native.glob("*.so") if path.name != SIMT_LIBRARY)
    files |= {f"native/{path.name}": path for path in libraries}
    files["LICENSE"] = project.root / "LICENSE"
    if model:
        files[f"model/{model.name}"] = model
    return [Entry(f"app/{name}", path, path.read_bytes) for name, path in files.items()]


def _wheel_entries(path: Path, wheel: zipfile.ZipFile) -> list[Entry]:
    names = (name for name in wheel.namelist() if not name.endswith("/") and _is_needed(PurePosixPath(name)))
    return [Entry(f"site/{name}", path, partial(wheel.read, name)) for name in names]


def _is_needed(name: PurePosixPath) -> bool:
    top = name.parts[0]
    if top.endswith(".dist-info"):
        return len(name.parts) > 1 and name.parts[1] in KEPT_OF_DIST_INFO
    if top.endswith(".data"):
        return False  # commands, headers
    if name.suffix == ".so" and name.name.split(".")[0] in DROPPED_MODULES:
        return False
    return name.suffix not in DROPPED_SUFFIXES and DROPPED_FOLDERS.isdisjoint(name.parts[:-1])


def _merged(entries: Sequence[Entry]) -> list[Entry]:
    """One entry a name. Files of one name must be the same file, or one Python would run another's code."""
    merged: dict[str, Entry] = {}
    for entry in entries:
        first = merged.setdefault(entry.name, entry)
        if first is entry or ".dist-info/" in entry.name or entry.name.removeprefix("site/") in MAY_DIFFER:
            continue
        if first.read() != entry.read():
            raise BuildError(
                f"{entry.name} differs between {first.origin.name} and {entry.origin.name}; one file cannot serve both"
            )
    return list(merged.values())


def _glibc_needed(library: bytes) -> tuple[int, int]:
    return max((2, int(minor)) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", library) or [b"17"])


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, DATE)
    info.create_system = 3  # Unix, whatever builds it
    info.external_attr = 0o100644 << 16
    stored = name.endswith(".core")  # compressed already
    archive.writestr(info, data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED, compresslevel=6)
