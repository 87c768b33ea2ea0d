"""What capture knows of a target: its name, and the argument struct of each kernel that it has.

It knows no library and no address. Two libraries with equal tables are one target, so a core does not depend on which
build of the kernels was at hand when it was prepared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helios.device.device import Device
from helios.device.kernels import KernelField


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """One kernel of the vocabulary and the struct that it takes by value."""

    name: str
    args_nbytes: int
    fields: tuple[KernelField, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """`name` is the program family ("host", "cuda") that an execution manifest names."""

    name: str
    signatures: Mapping[str, KernelSignature]


def target_of(device: Device) -> Target:
    """The target that an open device runs."""
    known = device.kernels.signatures.values()
    return Target(device.target, {s.name: KernelSignature(s.name, s.args_size_bytes, s.fields) for s in known})
