"""How a core keeps keys and values: the element of its cache, the size of a page, and the kernels that read it.

It knows sizes and names (`cuda_src/kernels.h` has the layouts), no model and no device. A core has one format for all its
layers; it is part of what cached prefixes are known by.
"""

from __future__ import annotations

from enum import StrEnum

from helios.contract.schema import execution_pb2 as pb
from helios.ignition.preparation.geometry import PAGE_TOKENS

_SCALES_NBYTES = 8  # of one position of a head in 8-bit pages: a scale for its keys, one for its values


class KvFormat(StrEnum):
    """The element: 16-bit floats of either kind, or 8-bit whole numbers with a scale a position and head."""

    F16 = "f16"
    BF16 = "bf16"
    Q8 = "q8"

    def page_nbytes(self, n_kv_heads: int, head_dim: int) -> int:
        """Keys and values of one page in one layer."""
        position_nbytes = 2 * head_dim + _SCALES_NBYTES if self is KvFormat.Q8 else 4 * head_dim
        return n_kv_heads * position_nbytes * PAGE_TOKENS

    def kernel(self, name: str) -> str:
        """The registered name of a kernel over pages of this format: `name` is without its version."""
        return f"{name}.1" if self is KvFormat.F16 else f"{name}.{self}.1"


def usual_kv_format(target_name: str) -> KvFormat:
    """What a target's attention is fastest with at full precision."""
    return KvFormat.BF16 if target_name == "cuda" else KvFormat.F16


_BY_KERNEL = {format_.kernel(name): format_ for name in ("attention", "attention_split") for format_ in KvFormat}


def kv_format_of(manifest: pb.ExecutionManifest) -> KvFormat:
    """What the attention kernels of its programs read; f16 where there are none."""
    kernels = (node.kernel.kernel for program in manifest.programs for node in program.nodes)
    return next((_BY_KERNEL[kernel] for kernel in kernels if kernel in _BY_KERNEL), KvFormat.F16)
