"""Kernel signatures and constants read out of `cuda_src/kernels.h` by a parser of its own.

An outside witness of the argument structs: it needs no compiler and no library, so recipes can be captured anywhere.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from helios.device.kernel_table import FieldKind, KernelField
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.signatures import KernelSignature, Target

HEADER = Path(__file__).parents[2] / "cuda_src" / "kernels.h"
_KINDS = {
    "R": (FieldKind.READ, 8),
    "W": (FieldKind.WRITE, 8),
    "X": (FieldKind.READ_WRITE, 8),
    "I": (FieldKind.I32, 4),
    "L": (FieldKind.I64, 8),
    "U": (FieldKind.U32, 4),
    "S": (FieldKind.F32, 4),
}


@functools.cache
def host_target(row_form: RowForm = RowForm.Q8) -> Target:
    """The target that the header describes."""
    return Target("host", kernel_signatures(), row_form)


def kernel_signatures() -> dict[str, KernelSignature]:
    text = HEADER.read_text().replace("\\\n", " ")
    lists = dict(re.findall(r"^#define (HELIOS_\w+_\d)\(F\) (.*)$", text, re.MULTILINE))
    table = re.search(r"^#define HELIOS_KERNELS\(X\)(.*)$", text, re.MULTILINE)
    assert table is not None
    return {
        name: _signature(name, _resolve(lists, fields))
        for name, fields in re.findall(r'X\(\w+, "([^"]+)", (\w+)\)', table.group(1))
    }


def constant(name: str) -> int:
    """An enumerator of the header."""
    found = re.search(rf"\b{name} = (\d+)", HEADER.read_text())
    assert found is not None, name
    return int(found.group(1))


def _resolve(lists: dict[str, str], name: str) -> str:
    alias = re.fullmatch(r"(HELIOS_\w+)\(F\)\s*", lists[name])
    return _resolve(lists, alias.group(1)) if alias else lists[name]


def _signature(name: str, fields: str) -> KernelSignature:
    offset = 0
    found = []
    for letter, sixteen, field in re.findall(r"F\((\w)(16)?, (\w+)\)", fields):
        kind, size = _KINDS[letter]
        alignment = 16 if sixteen else 4 if kind.is_pointer else 0
        offset = -(-offset // size) * size
        found.append(KernelField(field, offset, kind, alignment))
        offset += size
    return KernelSignature(name, -(-offset // 8) * 8, tuple(found))
