"""The CUDA build on small sources: code for each architecture, nothing twice, a library that loads where there is no CUDA."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from helios.device.kernel_table import Geometry, KernelTable
from scripts.building.cuda import (
    ARCHITECTURES,
    CUDA_LIBRARY,
    NVCC_FLAGS,
    PTX_ARCHITECTURE,
    Nvcc,
    build_cuda,
    find_nvcc,
    parse_architectures,
    usage_reports,
)
from scripts.building.native import run_compiler
from scripts.building.project import Project
from scripts.building.ptxas import KernelUsage, parse_usage, read_usage
from scripts.building.steps import BuildError
from tests.repo.sources import ROOT

KERNELS_H = '#define HELIOS_fill_1(F) F(W, to) F(I, n)\n#define HELIOS_KERNELS(X) X(fill, "fill.1", HELIOS_fill_1)\n'
FILL = """
#include "kernel.h"
__device__ float seven() { return 7.f; }
HELIOS_CUDA_KERNEL_WITH(fill, 64, 2, (a.n + 63) / 64, a.n * 4, {
  HELIOS_DYNAMIC_SHARED(float, shared);
  for (int i = int(threadIdx.x); i < a.n; i += 64) shared[i] = seven();
  __syncthreads();
  for (int i = int(threadIdx.x); i < a.n; i += 64) static_cast<float*>(a.to)[i] = shared[i];
})
"""
HOST = """
#include "host.h"
namespace helios {
static uint64_t extent(const void*, uint32_t) { return 28; }
extern const Kernel host_fill = {extent};
}
"""
HOST_H = """
#pragma once
#include <stddef.h>
#include "kernels.h"
namespace helios { struct Kernel { uint64_t (*extent)(const void*, uint32_t); }; extern const Kernel host_fill; }
"""


@pytest.fixture(scope="module")
def nvcc() -> Nvcc:
    found = find_nvcc(Project.load(ROOT))
    if found is None:
        pytest.skip("there is no nvcc here")
    return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A checkout of one kernel, with the real headers around it."""
    source = tmp_path / "cuda_src"
    for name in ("cuda", "host", "simt"):
        (source / name).mkdir(parents=True)
    text = (ROOT / "cuda_src" / "kernels.h").read_text()
    start, end = text.index("// Every kernel of the vocabulary"), text.index("// Argument structs, generated")
    (source / "kernels.h").write_text(text[:start] + KERNELS_H + text[end:])
    names = ("kernel.h", "launch.h", "instructions.h", "warpgroup.h", "images.h", "table.cpp")
    for name in (
        *(f"cuda/{name}" for name in names),
        "kernel_table.h",
        "simt/cuda.h",
        "simt/instructions.h",
        "simt/warpgroup.h",
        "simt/emulator.h",
    ):
        shutil.copy(ROOT / "cuda_src" / name, source / name)
    (source / "cuda" / "fill.cu").write_text(FILL)
    (source / "host" / "host.h").write_text(HOST_H)
    (source / "host" / "fill.cpp").write_text(HOST)
    return Project(tmp_path, "0", (), {}, ())


def test_the_library_says_how_its_kernels_are_launched_and_carries_their_code(project: Project, nvcc: Nvcc) -> None:
    """CARD-3: it loads here, where there is no CUDA runtime and no GPU."""
    build_cuda(project, nvcc, ["90a"])
    path = project.native / CUDA_LIBRARY
    assert b"libcudart" not in path.read_bytes()
    table = KernelTable.load(path)
    (image,) = table.images
    fill = table.signatures["fill.1"]
    assert (table.target, image.name) == ("cuda", "cuda_src/cuda/fill.cu")
    assert (fill.image, fill.symbol, fill.waits) == (image.name, "helios_fill", True)
    arguments = bytes(8) + (100).to_bytes(4, "little") + bytes(4)
    assert table.geometry("fill.1", arguments) == Geometry(2, 64, 400)
    assert table.extents("fill.1", arguments) == (28, 0)
    usage = read_usage(usage_reports(project))
    assert usage.keys() == {("fill", "90a")}
    assert usage["fill", "90a"].n_registers > 0


@pytest.mark.parametrize(("architecture", "waits"), [("80", False), (PTX_ARCHITECTURE, True)])
def test_a_kernel_waits_for_the_one_before_it_touches_memory(
    project: Project, nvcc: Nvcc, architecture: str, waits: bool
) -> None:
    """CARD-3: programmatic edges. What is before sm_90 has no such instruction, and no such edge."""
    source = project.root / "cuda_src" / "cuda" / "fill.cu"
    ptx = project.root / "fill.ptx"
    run_compiler(
        project,
        "ptx",
        [str(nvcc.path), *NVCC_FLAGS, "-ptx", f"-arch=compute_{architecture}", str(source), "-o", str(ptx)],
    )
    instructions = re.findall(r"griddepcontrol\.\w+|(?:ld|st)\.(?:global|shared)", ptx.read_text())
    assert instructions[:2] == (
        ["griddepcontrol.wait", "griddepcontrol.launch_dependents"] if waits else ["st.shared"] * 2
    )
    assert {"st.shared", "ld.shared", "st.global"} <= set(instructions)


def test_only_what_changed_is_compiled_again(project: Project, nvcc: Nvcc, capsys: pytest.CaptureFixture[str]) -> None:
    """Design 1."""

    def said(architecture: str) -> str:
        build_cuda(project, nvcc, [architecture])
        return capsys.readouterr().out

    assert "1 sources compiled for sm_80" in said("80")
    assert said("80").count("up to date") == 2
    (project.root / "cuda_src" / "cuda" / "fill.cu").write_text(FILL.replace("7.f", "8.f"))
    assert "1 sources compiled for sm_80" in said("80")
    assert "1 sources compiled for sm_120" in said("120")
    (project.root / "cuda_src" / "cuda" / "images.h").write_text("#error not for device code\n")
    with pytest.raises(BuildError, match="not for device code"):  # but for the table
        said("120")
    assert "cuda kernels up to date" in capsys.readouterr().out
    assert len(usage_reports(project)) == 1


def test_a_warning_is_an_error_and_is_named(project: Project, nvcc: Nvcc) -> None:
    """Issue 7: no warnings."""
    unused = FILL.replace("HELIOS_DYNAMIC_SHARED", "int unused = 1; HELIOS_DYNAMIC_SHARED")
    (project.root / "cuda_src" / "cuda" / "fill.cu").write_text(unused)
    with pytest.raises(BuildError, match=r"unused.*all of it is in .*cuda-fill\.cu\.log"):
        build_cuda(project, nvcc, ["80"])


def test_architectures_are_chosen_by_number() -> None:
    assert parse_architectures("all") == ARCHITECTURES
    assert parse_architectures("sm_90a,120") == ("90a", "120")
    with pytest.raises(BuildError, match=r"there is no code for sm_75; choose among 80,86,89,90a,100,120"):
        parse_architectures("75")


def test_the_assemblers_report_is_read_whole() -> None:
    """Issue 7: registers, spills and local bytes come from the compiler's report."""
    text = """ptxas info    : Compiling entry function 'helios_embed_f16' for 'sm_90a'
ptxas info    : Function properties for helios_embed_f16
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 39 registers, used 1 barriers, 16 bytes cumulative stack size, 4608 bytes smem, 456 bytes cmem[0]
ptxas info    : Compile time = 3.000 ms
ptxas info    : Compiling entry function 'helios_fill' for 'sm_120'
ptxas info    : Function properties for helios_fill
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""
    assert parse_usage(text) == {
        ("embed_f16", "90a"): KernelUsage(39, 16, 8, 12, 4608),
        ("fill", "120"): KernelUsage(12, 0, 0, 0, 0),
    }
    with pytest.raises(ValueError, match="does not describe fill for sm_120"):
        parse_usage(text[: text.rindex("ptxas info")])
