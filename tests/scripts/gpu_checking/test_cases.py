"""The launches that gpu_check times: one at least for each kernel, of a size that the kernel accepts, and what each has to move."""

from __future__ import annotations

import pytest

from helios.device import libraries
from helios.device.kernel_table import KernelTable
from scripts.gpu_checking.cases import GPU, TINY, Case, Shapes, cases


@pytest.fixture(scope="module")
def table() -> KernelTable:
    return KernelTable.load(libraries.simt_kernel_library())


@pytest.mark.parametrize("shapes", [GPU, TINY])
def test_every_kernel_is_timed(table: KernelTable, shapes: Shapes) -> None:
    """Issue 7, item 5."""
    found = list(cases(table.signatures, shapes))
    assert {case.name for case in found} == table.signatures.keys()
    for case in found:
        assert case.moved_nbytes(table) > 0
        _, extents = case.arguments(table)
        for name, extent in extents.items():
            assert case.touched.get(name, 0) <= extent, f"{case.name}: {name}"
            content = case.given[name]
            assert getattr(content, "nbytes", extent) >= extent, f"{case.name}: {name}"


def test_a_kernel_moves_what_it_reads_once_and_what_it_changes_twice(table: KernelTable) -> None:
    def moved(name: str) -> int:
        (case,) = cases([name], Shapes((64, 32), (3,), (4, 2, 16), 2, 32, 64))
        return case.moved_nbytes(table)

    x, weight, y = 3 * 32 * 2 + 3 * 4, 4 * 320, 3 * 64 * 4  # kernels.h: bf16 rows, q4_1.g16k8
    assert moved("linear.q4_1.g16k8.1") == 4 + x + weight + y
    assert moved("linear_add.q4_1.g16k8.1") == 4 + x + weight + 2 * y
    page = 2 * 64 * 16
    assert moved("attention.1") == 16 + 3 * 4 * 2 + 2 * 4 + 2 * page + 32 * 4 * 16 * 4 * 2 + (32 - 3) * 8


def test_operations_are_two_a_weight_and_row() -> None:
    (case,) = cases(["linear_silu_gate.bf16.g16k8.1"], TINY)
    assert isinstance(case, Case)
    assert case.operations == 2 * 3 * 64 * 64
