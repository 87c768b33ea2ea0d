"""A zipapp of a few small files with the real launcher, for the tests of both: its `main` prints where it runs from."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.building.project import Project, running_python
from scripts.building.steps import Progress
from scripts.building.zipapp import write_zipapp

MAIN = """
import sys, outside
def main():
    print(sys.path[0], sys.path[1], outside.NAME, *sys.argv[1:], flush=True)
    if "wait" in sys.argv:
        sys.stdin.read()
    return 7 if "fail" in sys.argv else 0
"""
OWN_TAG = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-"


def make_wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    """A wheel, as far as the builder looks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


def make_project(root: Path, note: str = "") -> Project:
    """A checkout whose package is one `main`; another `note` makes another content hash."""
    for name, text in {
        "helios/__init__.py": f'"""{note}"""\n',
        "helios/cli/__init__.py": "",
        "helios/cli/main.py": MAIN,
        "helios/cli/__pycache__/main.pyc": "not wanted",
        "build/native/libhelios_cudart.so": "\0GLIBC_2.17\0",
        "build/native/libhelios_cuda.so": "\0GLIBC_2.17\0",
        "build/native/libhelios_kernels.simt.so": "\0GLIBC_2.17\0",
        "LICENSE": "terms",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Project(root, "0.1.0", (), {}, ())


def make_zipapp(
    root: Path,
    note: str = "",
    pythons: Sequence[str] = (running_python(),),
    wheel_files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write it below `root`."""
    project = make_project(root, note)
    wheel = make_wheel(root / "wheels" / "outside.whl", {"outside.py": b"NAME = 'outside'\n", **(wheel_files or {})})
    output = root / f"helios{note}.pyz"
    write_zipapp(project, [wheel], pythons, None, output, Progress("zipapp"))
    return output
