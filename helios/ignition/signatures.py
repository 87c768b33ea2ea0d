"""What capture knows of a kernel: the name, offset and kind of each field of its argument struct.

It knows no library and no ctypes; `prepare` takes these from the kernel library of the target. The kinds have the
numbers of HELIOS_KIND_* in `cuda_src/kernels.h`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FieldKind(enum.IntEnum):
    """What a field holds: a pointer and what is done through it, or a scalar."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2
    I32 = 3
    I64 = 4
    U32 = 5
    F32 = 6

    @property
    def is_pointer(self) -> bool:
        return self <= FieldKind.READ_WRITE

    @property
    def writes(self) -> bool:
        return self in (FieldKind.WRITE, FieldKind.READ_WRITE)

    @property
    def reads(self) -> bool:
        return self in (FieldKind.READ, FieldKind.READ_WRITE)


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """One field of an argument struct."""

    name: str
    offset: int
    kind: FieldKind


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """One kernel of the vocabulary and the struct that it takes by value."""

    name: str
    args_nbytes: int
    fields: tuple[ArgumentField, ...]
