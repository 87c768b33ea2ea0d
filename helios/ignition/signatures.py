"""What capture knows of a target: its name, the argument struct of each kernel that it has, and how a kernel is launched.

It knows no device and no address. Two libraries with equal tables are one target, so a core does not depend on which
build of the kernels was at hand when it was prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from helios.device.device import Device
from helios.device.kernel_table import Geometry, KernelField, KernelTable


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """One kernel of the vocabulary and the struct that it takes by value."""

    name: str
    args_nbytes: int
    fields: tuple[KernelField, ...]


def host_geometry(_kernel: str, _arguments: bytes) -> Geometry:
    """How every host kernel is launched: it makes its own tasks."""
    return Geometry()


@dataclass(frozen=True, slots=True)
class Target:
    """`name` is the program family ("host", "cuda") that an execution manifest names; `geometry` is the launch of a kernel for its
    argument struct, whose pointers do not count."""

    name: str
    signatures: Mapping[str, KernelSignature]
    geometry: Callable[[str, bytes], Geometry] = host_geometry


def host_target() -> Target:
    """The kernels of the CPU device. Raises DeviceError when they have not been built."""
    with Device.open("cpu", n_threads=1) as device:
        return Target(device.target, _signatures(device.kernels.table))


def cuda_target(path: Path) -> Target:
    """The kernels of a GPU, out of the library at `path`; no GPU is needed. DeviceError when it is no such library."""
    table = KernelTable.load(path)
    return Target("cuda", _signatures(table), table.geometry)


def _signatures(table: KernelTable) -> dict[str, KernelSignature]:
    return {s.name: KernelSignature(s.name, s.args_size_bytes, s.fields) for s in table.signatures.values()}
