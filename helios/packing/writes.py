"""The kinds of write that a value binding becomes: values by lane, values by slot, constants, padding of inactive rows.

They know rows of one destination in staging and nothing about its neighbours or about transfers. A write never leaves its
destination: values that do not fit raise before one of them is written, and what it returns are the rows that it wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.errors import ContractError, InternalError
from helios.packing.values import Values

Rows = Sequence[tuple[int, int]]  # [first, last) of a destination, ascending


@dataclass(frozen=True, slots=True)
class Place:
    """A destination in staging. `rows` hold integers where the destination does, bytes otherwise; one axis if a row is one."""

    name: str
    buffer_id: int
    start: int
    row_nbytes: int
    rows: NDArray[Any]

    @classmethod
    def of(cls, destination: Destination, staging: NDArray[np.uint8], graph_name: str) -> Place:
        """Raises ContractError where the destination ends behind its buffer."""
        row_nbytes = destination.element_words * destination.dtype.itemsize
        end = destination.offset + row_nbytes * destination.n_indices
        if end > len(staging):
            raise ContractError(
                f"graph {graph_name}: destination {destination.name} ends at {end}, its buffer at {len(staging)}"
            )
        content = staging[destination.offset : end]
        if destination.element_type.is_integer:
            content = content.view(destination.dtype)
        rows = content.reshape(destination.n_indices, -1)
        return cls(
            destination.name,
            destination.buffer_id,
            destination.offset,
            row_nbytes,
            rows[:, 0] if rows.shape[1] == 1 else rows,
        )

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def row_of(self, number: int, destination: Destination) -> NDArray[Any]:
        """A row that holds `number` in each of its elements; integers wrap to the destination's 32 bits. However wide a row of
        integers is, it takes the memory of one."""
        row = np.broadcast_to(np.array(number, np.int64).astype(destination.dtype), destination.element_words)
        if row.dtype != self.rows.dtype:
            row = np.ascontiguousarray(row).view(self.rows.dtype)
        return row if self.rows.ndim == 2 else row.reshape(())

    def check(self, source: ValueSource | str, value: NDArray[Any]) -> int:
        """The number of rows of `value`. Raises InternalError where it does not fit."""
        n_rows = len(value)
        if n_rows > len(self.rows):
            raise InternalError(f"{n_rows} values for {_name(source)}, its destination holds {len(self.rows)}")
        if value.nbytes != n_rows * self.row_nbytes:
            raise InternalError(f"{value.nbytes} bytes for {n_rows} of {_name(source)}, one has {self.row_nbytes}")
        return n_rows

    def as_rows(self, value: NDArray[Any]) -> NDArray[Any]:
        """`value` in the shape and type of `rows`; a copy only where its bytes are not in order."""
        if value.itemsize != self.rows.itemsize:
            value = np.ascontiguousarray(value).view(self.rows.dtype)
        return value if value.ndim == self.rows.ndim else value.reshape(len(value), *self.rows.shape[1:])


class Write(Protocol):
    """One binding at work. `has_free_tail`: nobody relies on the rows behind those that were written."""

    @property
    def place(self) -> Place: ...

    @property
    def has_free_tail(self) -> bool: ...

    def put(self, values: Values) -> Rows:
        """Write what a round supplies; the rows that it wrote, none where it supplies nothing."""
        ...


@dataclass(frozen=True, slots=True)
class LaneValues:
    """Value i goes to row i: scalars, lanes, packed tokens. With `pads_to`, the rows behind the values get `padding`."""

    place: Place
    source: ValueSource | str
    offset: NDArray[Any] | None
    padding: NDArray[Any]
    pads_to: int
    has_free_tail: bool = True

    def put(self, values: Values) -> Rows:
        value = values.get(self.source)
        if value is None:
            return ()
        place = self.place
        n_rows = place.check(self.source, value)
        target = place.rows[:n_rows]
        target[...] = place.as_rows(value)
        if self.offset is not None:
            target += self.offset
        if self.pads_to > n_rows:
            place.rows[n_rows : self.pads_to] = self.padding
            n_rows = self.pads_to
        return ((0, n_rows),) if n_rows else ()


@dataclass(frozen=True, slots=True)
class SlotValues:
    """Lane i's value goes to the row of its slot; the rows of all other slots stay as they are, on the device too."""

    place: Place
    source: ValueSource | str
    offset: NDArray[Any] | None
    has_free_tail: bool = False

    def put(self, values: Values) -> Rows:
        value = values.get(self.source)
        if value is None:
            return ()
        place, slots = self.place, _slots(values, self.place)
        if place.check(self.source, value) != len(slots):
            raise InternalError(f"{len(value)} values of {_name(self.source)} for {len(slots)} slots")
        place.rows[slots] = place.as_rows(value)
        if self.offset is not None:
            place.rows[slots] += self.offset
        return _runs(slots)


@dataclass(frozen=True, slots=True)
class Constant:
    """The declared number in every row that the indexing names. Written anew each time: another program may share the place."""

    place: Place
    indexing: Indexing
    row: NDArray[Any]
    batch_capacity: int

    @property
    def has_free_tail(self) -> bool:
        return self.indexing is not Indexing.PHYSICAL_REQUEST_ROW

    def put(self, values: Values) -> Rows:
        rows = self._rows(values)
        for first, last in rows:
            self.place.rows[first:last] = self.row
        return rows

    def _rows(self, values: Values) -> Rows:
        if self.indexing is Indexing.SCALAR:
            return ((0, 1),)
        if self.indexing is Indexing.SUBMISSION_ROW:
            return ((0, self.batch_capacity),)
        if self.indexing is Indexing.PHYSICAL_REQUEST_ROW:
            return _runs(_slots(values, self.place))
        n_live = _live_rows(values, self.place)
        return ((0, n_live),) if n_live else ()


@dataclass(frozen=True, slots=True)
class InactivePadding:
    """`row` in every row behind the live ones; the live rows stay as they are."""

    place: Place
    row: NDArray[Any]
    batch_capacity: int
    has_free_tail: bool = True

    def put(self, values: Values) -> Rows:
        n_live = _live_rows(values, self.place)
        self.place.rows[n_live : self.batch_capacity] = self.row
        return ((n_live, self.batch_capacity),) if n_live < self.batch_capacity else ()


def resolve(graph: Graph, binding: Binding, destination: Destination, staging: NDArray[np.uint8]) -> Write:
    """The write of one binding. Raises ContractError where it cannot stay inside the buffer."""
    place = Place.of(destination, staging, graph.name)
    by_lane = binding.indexing is Indexing.SUBMISSION_ROW
    if by_lane and graph.batch_capacity > place.n_rows:
        raise ContractError(
            f"graph {graph.name}: destination {place.name} has {place.n_rows} rows, {graph.batch_capacity} are padded"
        )
    if binding.source is ValueSource.CONSTANT:
        row = place.row_of(binding.constant + binding.offset, destination)
        return Constant(place, binding.indexing, row, graph.batch_capacity)
    padding = place.row_of(binding.padding, destination)
    if binding.source is ValueSource.INACTIVE_PADDING:
        return InactivePadding(place, padding, graph.batch_capacity)
    offset = place.row_of(binding.offset, destination) if binding.offset else None
    source = binding.image_tensor if binding.source is ValueSource.IMAGE_TENSOR else binding.source
    if binding.indexing is Indexing.PHYSICAL_REQUEST_ROW:
        return SlotValues(place, source, offset)
    return LaneValues(place, source, offset, padding, graph.batch_capacity if by_lane else 0)


def _name(source: ValueSource | str) -> str:
    return source.name if isinstance(source, ValueSource) else f"image tensor {source!r}"


def _slots(values: Values, place: Place) -> NDArray[Any]:
    """The lanes' slots, each of them a row of `place`."""
    slots = values.get(ValueSource.SLOT)
    if slots is None:
        raise InternalError(f"{place.name} is laid out by slot, the round names no slots")
    if len(slots) and not 0 <= slots.min() <= slots.max() < place.n_rows:
        raise InternalError(f"slots {slots.min()} to {slots.max()} for {place.name}, it has {place.n_rows} rows")
    return slots


def _live_rows(values: Values, place: Place) -> int:
    count = values.get(ValueSource.LIVE_ROW_COUNT)
    if count is None or not 0 <= count[0] <= place.n_rows:
        raise InternalError(f"{place.name} has {place.n_rows} rows, the round's count of live ones is {count}")
    return int(count[0])


def _runs(slots: NDArray[Any]) -> Rows:
    """Neighbouring slots as one run of rows."""
    runs: list[tuple[int, int]] = []
    for slot in sorted(slots.tolist()):
        if runs and runs[-1][1] == slot:
            runs[-1] = (runs[-1][0], slot + 1)
        else:
            runs.append((slot, slot + 1))
    return runs
