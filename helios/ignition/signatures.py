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


def host_target() -> Target:
    """The kernels of the CPU device. Raises DeviceError when they have not been built."""
    with Device.open("cpu", n_threads=1) as device:
        known = device.kernels.signatures.values()
        signatures = {s.name: KernelSignature(s.name, s.args_size_bytes, s.fields) for s in known}
        return Target(device.target, signatures)
