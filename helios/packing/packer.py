"""Value bindings resolved once into a flat plan of array writes; packing a round then only copies numbers.

It knows destinations and bindings, nothing about requests. Invariants: a write never leaves its destination (values that are too
long raise before anything is written), and a source that a round does not supply leaves the staged bytes as they are (CON-7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.errors import ContractError, InternalError


@dataclass(frozen=True, slots=True)
class _Write:
    source: ValueSource
    buffer_id: int
    target: NDArray[Any]  # [rows][element_words] of the destination, in staging
    start: int
    row_nbytes: int
    offset: int
    padding: int
    pads_to: int  # rows to fill behind the values with `padding`; 0: leave the tail


class Packer:
    """The plan of one program over one frame's staging.

    `staging` maps an input buffer's id to its pinned bytes. `pack` returns, for each input buffer that was written, the number of
    leading bytes that have to be copied to the device.
    """

    def __init__(
        self, graph: Graph, destinations: Mapping[str, Destination], staging: Mapping[int, NDArray[np.uint8]]
    ) -> None:
        self._constants: list[_Write] = []
        self._writes: list[_Write] = []
        for binding in graph.bindings:
            destination = destinations[binding.destination]
            write = _resolve(graph, binding, destination, staging[destination.buffer_id])
            if binding.source is ValueSource.CONSTANT:
                write.target[: max(write.pads_to, 1)] = binding.constant + binding.offset
                self._constants.append(write)
            else:
                self._writes.append(write)

    def pack(self, values: Mapping[ValueSource, NDArray[Any]]) -> dict[int, int]:
        """Write every supplied value; {buffer id: bytes used from its start}."""
        used = {write.buffer_id: write.start + write.row_nbytes for write in self._constants}
        for write in self._writes:
            value = values.get(write.source)
            if value is None:
                continue
            n_rows = len(value)
            if n_rows > len(write.target):
                raise InternalError(
                    f"{n_rows} values for {write.source.name}, its destination holds {len(write.target)}"
                )
            target = write.target[:n_rows]
            np.copyto(target, value.reshape(target.shape), casting="same_kind")
            if write.offset:
                target += np.asarray(write.offset, target.dtype)
            if write.pads_to > n_rows:
                write.target[n_rows : write.pads_to] = write.padding
                n_rows = write.pads_to
            end = write.start + n_rows * write.row_nbytes
            if end > used.get(write.buffer_id, 0):
                used[write.buffer_id] = end
        return used


def _resolve(graph: Graph, binding: Binding, destination: Destination, staging: NDArray[np.uint8]) -> _Write:
    dtype = np.dtype(destination.dtype)
    n_rows = destination.count // destination.element_words
    row_nbytes = dtype.itemsize * destination.element_words
    end = destination.offset + row_nbytes * n_rows
    if end > len(staging):
        raise ContractError(
            f"graph {graph.name}: destination {destination.name} ends at {end}, its buffer at {len(staging)}"
        )
    target = staging[destination.offset : end].view(dtype).reshape(n_rows, destination.element_words)
    pads_to = graph.batch_capacity if binding.indexing is Indexing.SUBMISSION_ROW else 0
    return _Write(
        binding.source,
        destination.buffer_id,
        target,
        destination.offset,
        row_nbytes,
        binding.offset,
        binding.padding,
        pads_to,
    )
