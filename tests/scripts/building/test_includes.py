"""What a source is made of: all that a compiler reads of the checkout, for every source there is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.building.cuda import find_nvcc
from scripts.building.includes import with_headers
from scripts.building.native import find_compiler
from scripts.building.project import Project
from tests.repo.sources import ROOT

INCLUDE_ROOT = ROOT / "cuda_src"
SOURCES = sorted([*INCLUDE_ROOT.rglob("*.cpp"), *INCLUDE_ROOT.rglob("*.cu")])


def read_by(command: list[str], sources: list[Path]) -> dict[Path, set[Path]]:
    """What the compiler says that it reads of the checkout for each source."""
    result = subprocess.run(
        [*command, "-std=c++17", f"-I{INCLUDE_ROOT}", *map(str, sources)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    rules = result.stdout.replace("\\\n", " ").splitlines()
    names = [rule.split(": ", maxsplit=1)[1].split() for rule in rules if ": " in rule]
    read = [[path for name in each if (path := Path(os.path.normpath(name))).is_relative_to(ROOT)] for each in names]
    return {paths[0]: set(paths) for paths in read}


def test_what_the_compiler_reads_of_a_source_is_known() -> None:
    """Design 1: so an object is named by all that goes into it, and compiled again only when some of it changes."""
    compiler = find_compiler(Project.load(ROOT))
    read = read_by([*compiler.command, "-MM", '-DHELIOS_TARGET="simt"', "-x", "c++"], SOURCES)
    assert sorted(read) == SOURCES
    for source, paths in read.items():
        assert paths <= set(with_headers(source, INCLUDE_ROOT)), source


def test_what_nvcc_reads_of_a_source_is_known() -> None:
    nvcc = find_nvcc(Project.load(ROOT))
    if nvcc is None:
        pytest.skip("there is no nvcc here")
    for source in (INCLUDE_ROOT / "cuda" / f"{name}.cu" for name in ("linear_g16", "attention", "sample")):
        (read,) = read_by([str(nvcc.path), "-MM"], [source]).values()
        assert read <= set(with_headers(source, INCLUDE_ROOT))
        assert source.with_name("kernel.h") in read


def test_headers_of_headers_count_and_those_of_nobody_do_not(tmp_path: Path) -> None:
    """A header beside the file that names it hides one of the same name below the root; rings end."""
    texts = {
        "cuda/a.cu": '#include "one.h"\n# include "host/two.h" // and more\n#include <system.h>\n#include "missing.h"\n',
        "cuda/one.h": '#include "../top.h"\n#include "one.h"\n',
        "one.h": "",
        "top.h": '#include "cuda/one.h"\n',
        "host/two.h": "",
        "host/three.h": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = with_headers(tmp_path / "cuda" / "a.cu", tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["cuda/a.cu", "cuda/one.h", "host/two.h", "top.h"]
