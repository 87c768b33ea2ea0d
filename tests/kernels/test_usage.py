"""What the assembler gave each CUDA kernel on each architecture: read from the report of the build, where there was a compiler."""

from __future__ import annotations

import pytest

from helios.device import libraries
from helios.device.kernel_table import KernelTable
from scripts.building.cuda import ARCHITECTURES, usage_reports
from scripts.building.project import Project
from scripts.building.ptxas import KernelUsage, read_usage
from tests.device.compiling import ROOT
from tests.kernels.formats import BF16_ROWS
from tests.kernels.harness import Library, load

# Of a multiprocessor (CUDA programming guide, compute capabilities): bytes of shared memory, of which each block takes 1 KB more.
SHARED_KB = {"80": 164, "86": 100, "89": 100, "90a": 228, "100": 228, "120": 100}
N_REGISTERS, N_REGISTERS_UNIT = 65_536, 8

Usage = dict[tuple[str, str], KernelUsage]


@pytest.fixture(scope="module")
def usage() -> Usage:
    reports = usage_reports(Project.load(ROOT))
    if not reports:
        pytest.skip("the CUDA kernels were not built: there was no nvcc")
    return read_usage(reports)


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
    return min(N_REGISTERS // (n_registers * n_threads), by_shared)


@pytest.mark.parametrize("layout", BF16_ROWS)
@pytest.mark.parametrize("kernel", ["linear", "linear_add", "linear_silu_gate"])
def test_linear_maps_have_the_occupancy_of_their_head_comment(usage: Usage, layout: str, kernel: str) -> None:
    """CARD-3: linear_g16.h."""
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
