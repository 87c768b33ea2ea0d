"""The native build on small sources: every target, nothing twice, nothing stale, libraries that need only glibc."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path

import pytest

from scripts.building.native import TARGETS, build_emulator, build_native
from scripts.building.project import Project
from scripts.building.steps import BuildError

SOURCE = """
#include "kernels.h"
#include <string>
extern "C" __attribute__((visibility("default"))) const char* target() {
  static const std::string text = std::string(HELIOS_TARGET) + SUFFIX;
  return text.c_str();
}
"""
# Answers what the emulator's kernels are compiled to report.
EMULATOR = 'extern "C" void __ubsan_handle_type_mismatch_v1(const void*, unsigned long) {}\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A checkout with a source or two a library."""
    for name in ("cudart", "host", "cuda", "simt"):
        (tmp_path / "cuda_src" / name).mkdir(parents=True)
    (tmp_path / "cuda_src" / "kernels.h").write_text('#pragma once\n#define SUFFIX ""\n')
    (tmp_path / "cuda_src" / "cudart" / "a.cpp").write_text('extern "C" int zero() { return 0; }\n')
    (tmp_path / "cuda_src" / "host" / "b.cpp").write_text(SOURCE)
    (tmp_path / "cuda_src" / "host" / "table.cpp").write_text("int not_in_the_emulator();\n")
    (tmp_path / "cuda_src" / "cuda" / "c.cu").write_text('extern "C" int two() { return 2; }\n')
    (tmp_path / "cuda_src" / "simt" / "d.cpp").write_text(EMULATOR)
    return Project(tmp_path, "0", (), {}, ())


def target_of(path: Path) -> str:
    """What a library of SOURCE says it is."""
    function = ctypes.CDLL(str(path)).target
    function.argtypes, function.restype = [], ctypes.c_char_p
    text = function()
    assert isinstance(text, bytes)
    return text.decode()


def test_there_is_a_kernel_library_for_each_level_and_one_runtime(project: Project) -> None:
    """Issue 2, item 2."""
    build_native(project)
    targets = TARGETS[platform.machine()]
    served = {"libhelios_cudart.so", *(f"libhelios_kernels.{target}.so" for target in targets)}
    assert {path.name for path in project.native.iterdir()} == served
    build_emulator(project)
    assert {path.name for path in project.native.iterdir()} == {*served, "libhelios_kernels.simt.so"}
    baseline = next(iter(targets))
    assert target_of(project.native / f"libhelios_kernels.{baseline}.so") == baseline


def test_libraries_do_not_need_the_compilers_runtime(project: Project) -> None:
    """Issue 2, item 2: they travel inside the zipapp to machines without a compiler."""
    build_native(project)
    for path in project.native.iterdir():
        assert b"libstdc++.so" not in path.read_bytes()


def test_only_what_changed_is_compiled_again(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Design 1."""

    def lines() -> list[str]:
        build_native(project)
        build_emulator(project)
        # A step that takes long, as on a busy machine, says now and then how far it is.
        said = capsys.readouterr().out.splitlines()
        return [line for line in said if not re.search(r" (compiling|linking) ", line)]

    def assert_compiled(n_served: int, n_emulated: int) -> None:
        served, emulated = lines()
        assert f"{n_served} sources" in served
        assert f"{n_emulated} sources" in emulated

    n_targets = len(TARGETS[platform.machine()])  # each has both of the host's sources
    n_served, n_emulated = 1 + 2 * n_targets, 3  # the emulator's library has one of them, and two of its own
    assert_compiled(n_served, n_emulated)
    assert all("up to date" in line for line in lines())
    (project.root / "cuda_src" / "host" / "b.cpp").write_text(SOURCE + "\n")
    assert_compiled(n_targets, 1)
    (project.root / "cuda_src" / "kernels.h").write_text('#pragma once\n#define SUFFIX "!"\n')
    assert_compiled(n_targets, 1)  # what includes it
    (project.root / "cuda_src" / "host" / "b.h").write_text("// nobody's\n")
    assert all("up to date" in line for line in lines())
    for target in list(TARGETS[platform.machine()])[:1]:
        assert target_of(project.native / f"libhelios_kernels.{target}.so") == f"{target}!"


def test_a_source_that_does_not_compile_is_one_sentence(project: Project) -> None:
    """Design 1."""
    (project.root / "cuda_src" / "host" / "b.cpp").write_text("int x = y;\n")
    with pytest.raises(BuildError, match=r"compiling failed: cuda_src/host/b\.cpp:1:9: error: ") as raised:
        build_native(project)
    assert "\n" not in str(raised.value)


def test_a_library_with_a_missing_function_is_not_built(project: Project) -> None:
    """Better here than when a server loads it."""
    (project.root / "cuda_src" / "host" / "b.cpp").write_text("int missing(); int x() { return missing(); }\n")
    with pytest.raises(BuildError, match="missing"):
        build_native(project)
    assert not list(project.native.glob("libhelios_kernels*"))


def test_a_checkout_without_sources_is_one_sentence(project: Project) -> None:
    """Design 1."""
    for source in (project.root / "cuda_src" / "host").iterdir():
        source.unlink()
    with pytest.raises(BuildError, match="no C\\+\\+ sources in "):
        build_native(project)
