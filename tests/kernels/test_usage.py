"""What the assembler gave each CUDA kernel on each architecture: read from the report of the build, where there was a compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helios.device import libraries
from helios.device.kernel_table import Geometry, KernelTable
from scripts.building.cuda import ARCHITECTURES, usage_reports
from scripts.building.project import Project
from scripts.building.ptxas import KernelUsage, read_usage
from tests.device.compiling import ROOT
from tests.kernels.formats import BF16_ROWS
from tests.kernels.harness import Library, load

# Of a multiprocessor (CUDA programming guide, compute capabilities): bytes of shared memory, of which each block takes 1 KB more.
SHARED_KB = {"80": 164, "86": 100, "89": 100, "90a": 228, "100": 228, "120": 100}
N_THREADS = {"80": 2048, "86": 1536, "89": 1536, "90a": 2048, "100": 2048, "120": 1536}
N_REGISTERS, N_REGISTERS_UNIT = 65_536, 8

AS_BUILT = re.compile(
    r"As built: up to ([\d,]+) registers a thread and ([\d,]+) bytes of shared memory, (\d+) blocks? a multiprocessor"
)

Usage = dict[tuple[str, str], KernelUsage]


def built_reports() -> list[Path]:
    """What the compiler said of every kernel."""
    reports = usage_reports(Project.load(ROOT))
    if not reports:
        pytest.skip("the CUDA kernels were not built: there was no nvcc")
    return reports


@pytest.fixture(scope="module")
def usage() -> Usage:
    return read_usage(built_reports())


def test_every_kernel_is_described_for_every_architecture(usage: Usage) -> None:
    """CARD-3."""
    architectures = {architecture for _, architecture in usage}
    identifiers = {identifier for identifier, _ in usage}
    assert architectures <= set(ARCHITECTURES)
    assert set(usage) == {(identifier, architecture) for identifier in identifiers for architecture in architectures}
    assert len(identifiers) == len(KernelTable.load(libraries.simt_kernel_library()).signatures)


def test_no_kernel_spills_or_has_local_memory(usage: Usage) -> None:
    """CARD-3."""
    wasteful = {
        key: each for key, each in usage.items() if each.stack_bytes or each.spill_store_bytes or each.spill_load_bytes
    }
    assert wasteful == {}


def n_resident(used: KernelUsage, architecture: str, n_threads: int, shared_nbytes: int) -> int:
    """Blocks that a multiprocessor has room for."""
    n_registers = -(-used.n_registers // N_REGISTERS_UNIT) * N_REGISTERS_UNIT
    by_shared = SHARED_KB[architecture] * 1024 // (shared_nbytes + used.shared_bytes + 1024)
    return min(N_REGISTERS // (n_registers * n_threads), N_THREADS[architecture] // n_threads, by_shared)


def geometry_of(identifier: str) -> Geometry:
    """The launch of a kernel whose scalars are all 1, but for heads of 128 dimensions."""
    table = KernelTable.load(libraries.cuda_kernel_library())
    (name,) = (name for name, each in table.signatures.items() if each.symbol == f"helios_{identifier}")
    scalars = {field: 128 if field == "head_dim" else 1 for field, _, _ in load("simt")[name].fields}
    return table.geometry(name, bytes(load("simt")[name].pack(**scalars)))


@pytest.mark.parametrize(
    "source",
    [
        "attention",
        "distribution",
        "elementwise",
        "embed",
        "linear_blocks",
        "linear_float",
        "linear_g16",
        "linear_w12",
        "norm",
        "page_copy",
        "rope",
        "rows_q12",
        "sample",
        "score",
        "state",
    ],
)
def test_kernels_take_what_the_head_comment_of_their_file_says(source: str) -> None:
    """CARD-3: the most of any kernel of the file on any architecture, and the fewest blocks."""
    reports = [each for each in built_reports() if each.name.startswith(f"{source}-")]
    head = (ROOT / "cuda_src" / "cuda" / f"{source}.cu").read_text().split("\n#include", maxsplit=1)[0]
    (stated,) = AS_BUILT.findall(head.replace("\n// ", " "))
    used = read_usage(reports)
    launch = {identifier: geometry_of(identifier) for identifier, _ in used}
    found = (
        max(each.n_registers for each in used.values()),
        max(each.shared_bytes + launch[key[0]].shared_bytes for key, each in used.items()),
        min(
            n_resident(each, key[1], launch[key[0]].n_threads, launch[key[0]].shared_bytes)
            for key, each in used.items()
        ),
    )
    registers, shared_bytes, n_blocks = (int(number.replace(",", "")) for number in stated)
    assert registers - 2 * N_REGISTERS_UNIT < found[0] <= registers, "a compiler's next version may do a little better"
    assert found[1:] == (shared_bytes, n_blocks)


@pytest.mark.parametrize("layout", BF16_ROWS)
@pytest.mark.parametrize("kernel", ["linear", "linear_add", "linear_silu_gate"])
def test_linear_maps_have_the_occupancy_of_their_head_comment(usage: Usage, layout: str, kernel: str) -> None:
    """CARD-3: linear_g16.cu."""
    library: Library = load("simt")
    arguments = library[f"{kernel}.{layout}.1"].pack(rows_capacity=512, n_in=576, n_out=576, y_stride=576)
    table = KernelTable.load(libraries.simt_kernel_library())
    geometry = table.geometry(f"{kernel}.{layout}.1", bytes(arguments))
    assert geometry.n_threads == 256
    found = 0
    for architecture, shared_kb in SHARED_KB.items():
        used = usage.get((f"{kernel}_{layout.split('.', maxsplit=1)[0]}_g16", architecture))
        if used:
            found += 1
            expected = 2 if shared_kb > 100 else 1
            assert n_resident(used, architecture, geometry.n_threads, geometry.shared_bytes) >= expected
    assert found
