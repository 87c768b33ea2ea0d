"""What capture knows of a target: its name, the argument struct of each kernel that it has, and how a kernel is launched.

It knows no device and no address. Two libraries with equal tables are one target, so a core does not depend on which
build of the kernels was at hand when it was prepared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helios import settings
from helios.device import libraries
from helios.device.device import Device, why_no_cuda
from helios.device.kernel_table import Geometry, KernelField, KernelTable
from helios.errors import SettingError
from helios.ignition.preparation.layouts import RowForm


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
    """`name` is the program family ("host", "cuda") that an execution manifest names; its linear maps are fastest with activations
    in `row_form`; `geometry` is the launch of a kernel for its argument struct, whose pointers do not count; `launches`
    stands for all of that in the key of a prepared core: equal text, equal launches."""

    name: str
    signatures: Mapping[str, KernelSignature]
    row_form: RowForm = RowForm.Q8
    geometry: Callable[[str, bytes], Geometry] = field(default=host_geometry, repr=False)
    launches: str = ""


def target_of(device: str) -> Target:
    """What to prepare for, to serve on a device that is named as in the setting. Only `auto` looks whether there is a GPU."""
    kind = device.partition(":")[0]
    if kind == "auto":
        kind = "cpu" if why_no_cuda() else "cuda"
    if kind == "cpu":
        return host_target()
    return cuda_target(libraries.simt_kernel_library() if kind == "simt" else libraries.cuda_kernel_library())


def host_target() -> Target:
    """The kernels of the CPU device. Raises DeviceError when they have not been built.

    Activations are q8: they take the fewest operations a weight, which is what decoding asks for. With a matrix unit q12 makes
    long prompts faster, but up to 16 streams slower, and bf16 is more exact (docs/performance.md).
    """
    with Device.open("cpu", n_threads=1) as device:
        return Target(device.target, _signatures(device.kernels.table), _host_row_form())


def _host_row_form() -> RowForm:
    chosen = settings.activations()
    forms = [RowForm.Q8, RowForm.Q12, RowForm.BF16]
    if chosen is not None and chosen not in forms:
        raise SettingError(f"HELIOS_ACTIVATIONS is {chosen!r}, it must be {', '.join(forms[:-1])} or {forms[-1]}")
    return RowForm(chosen) if chosen else RowForm.Q8


def cuda_target(path: Path) -> Target:
    """The kernels of a GPU, out of the library at `path`; no GPU is needed. DeviceError when it is no such library."""
    table = KernelTable.load(path)
    launches = hashlib.sha256(path.read_bytes()).hexdigest()  # a tuned kernel may be launched in another way
    return Target("cuda", _signatures(table), RowForm.BF16, table.geometry, launches)


def _signatures(table: KernelTable) -> dict[str, KernelSignature]:
    return {s.name: KernelSignature(s.name, s.args_size_bytes, s.fields) for s in table.signatures.values()}
