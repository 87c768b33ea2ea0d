"""Tensors of a checkpoint taken into weight buffers: checked, laid out for the kernels, and accounted for.

It knows shapes and layouts, no architecture. Every buffer is produced on demand, so that at most one weight is in memory
at a time, and a checkpoint with a tensor that nobody took is refused rather than half computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from helios.contract.schema import execution_pb2 as pb
from helios.errors import CheckpointError
from helios.ignition.capture import Capture, Tensor
from helios.ignition.checkpoints.ggml_types import dequantize
from helios.ignition.checkpoints.gguf import Gguf, GgufTensor
from helios.ignition.operands import Weight
from helios.ignition.preparation.layouts import Bytes, Layout, layout_for

PLAIN_LAYOUT = "f32"  # vectors and tables, as they are


@dataclass(frozen=True, slots=True)
class WeightResource:
    """The content of one weight buffer; `produce` makes its bytes, `sources` are the tensors that they come from."""

    id: str
    layout: str
    nbytes: int
    produce: Callable[[], Bytes]
    sources: tuple[str, ...] = ()


class WeightBook:
    """Declares weight buffers on a capture and remembers which tensors they came from."""

    def __init__(self, checkpoint: Gguf, capture: Capture) -> None:
        self.resources: list[WeightResource] = []
        self._checkpoint = checkpoint
        self._capture = capture
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.tensors

    def n_rows(self, name: str) -> int:
        return self._checkpoint.tensor(name).n_rows

    def share_type(self, *names: str) -> bool:
        """Whether the matrices can be packed as one."""
        return len({self._checkpoint.tensor(name).type for name in names}) == 1

    def can_interleave(self, gate: str, up: str, n_out: int, n_in: int) -> bool:
        """Whether the matrices can be one map that alternates by groups of rows."""
        return self.share_type(gate, up) and n_out % self._layout(self._checkpoint.tensor(gate), n_in).group == 0

    def matrix(
        self,
        role: str,
        parts: Sequence[tuple[str, int]],
        n_in: int,
        *,
        n_used: int | None = None,
        is_embedding: bool = False,
    ) -> Weight:
        """The rows of the named tensors (name, rows) one after the other; only the first `n_used` where given."""
        tensors = [self._take(name, (n_out, n_in)) for name, n_out in parts]
        n_out = sum(n for _, n in parts) if n_used is None else n_used
        layout = self._layout(tensors[0], n_in, is_embedding=is_embedding)

        def produce() -> Bytes:
            return layout.pack([tensor.raw[:n_used] for tensor in tensors])

        return self._weight(role, layout, n_in, n_out, produce, tuple(name for name, _ in parts))

    def interleaved(self, role: str, gate: str, up: str, n_out: int, n_in: int) -> Weight:
        """Two matrices of the same type and shape, alternating by groups of rows."""
        first, second = self._take(gate, (n_out, n_in)), self._take(up, (n_out, n_in))
        layout = self._layout(first, n_in)

        def produce() -> Bytes:
            return layout.pack([layout.interleave(first.raw, second.raw)])

        return self._weight(role, layout, n_in, 2 * n_out, produce, (gate, up))

    def vector(self, role: str, parts: Sequence[tuple[str, int]]) -> Tensor:
        """Float vectors (name, length) one after the other; one that the checkpoint lacks is zero."""
        found = {name: self._take(name, (length,)) for name, length in parts if name in self}

        def produce() -> Bytes:
            values = [
                dequantize(found[name]) if name in found else np.zeros(length, np.float32) for name, length in parts
            ]
            return np.concatenate(values).view(np.uint8)

        return self._plain(role, 4 * sum(length for _, length in parts), produce, tuple(found))

    def table(self, role: str, n_floats: int, compute: Callable[[], npt.NDArray[np.float32]]) -> Tensor:
        """A constant that the recipe computes."""
        return self._plain(role, 4 * n_floats, lambda: compute().reshape(-1).view(np.uint8))

    def values(self, name: str, length: int) -> npt.NDArray[np.float32]:
        """A vector that the recipe reads at preparation."""
        return dequantize(self._take(name, (length,)))

    def check_all_taken(self) -> None:
        """Raises CheckpointError for a tensor that nothing used: the model does something that the recipe does not."""
        left = sorted(self._checkpoint.tensors.keys() - self._taken)
        if left:
            raise CheckpointError(f"tensor {left[0]!r} and {len(left) - 1:,} more are not part of this architecture")

    def _take(self, name: str, shape: tuple[int, ...]) -> GgufTensor:
        self._taken.add(name)
        return self._checkpoint.tensor(name, shape)

    def _layout(self, tensor: GgufTensor, n_in: int, *, is_embedding: bool = False) -> Layout:
        return layout_for(tensor.type, n_in, self._capture.row_form, is_embedding=is_embedding)

    def _weight(
        self, role: str, layout: Layout, n_in: int, n_out: int, produce: Callable[[], Bytes], sources: tuple[str, ...]
    ) -> Weight:
        nbytes = layout.packed_nbytes(n_out, n_in)
        self.resources.append(WeightResource(role, layout.name, nbytes, produce, sources))
        return Weight(self._buffer(role, nbytes), layout, n_in, n_out)

    def _plain(self, role: str, nbytes: int, produce: Callable[[], Bytes], sources: tuple[str, ...] = ()) -> Tensor:
        self.resources.append(WeightResource(role, PLAIN_LAYOUT, nbytes, produce, sources))
        return self._buffer(role, nbytes)

    def _buffer(self, role: str, nbytes: int) -> Tensor:
        return self._capture.buffer(role, pb.BUFFER_KIND_WEIGHT, nbytes, resource=role)
