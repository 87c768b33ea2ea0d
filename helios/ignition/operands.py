"""What operations work on: weights, state, rows and activations, and the bytes that rows take in each form.

It knows the sizes that kernels write (`cuda_src/kernels.h` is the reference), no kernel and no model. Rows are temporaries of the
program that is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from helios.errors import InternalError
from helios.ignition.capture import ProgramCapture, Tensor
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import Layout, RowForm

_WORD = 4  # bytes of an int32 or float
_BLOCK = 32  # numbers of a block of 8-bit or bf16 rows
_Q12_DEPTH, _Q12_GROUP = 64, 512  # numbers of a tile's row, and of a group with one scale
_Q12_TILE_ROWS = 16

Inputs = Mapping[str, Tensor]  # the device side of staging, by destination name


@dataclass(frozen=True, slots=True)
class Weight:
    """A linear map in a kernel layout."""

    tensor: Tensor
    layout: Layout
    n_in: int
    n_out: int


@dataclass(frozen=True, slots=True)
class State:
    """The device-owned rows, by request slot."""

    requests: Tensor
    sampling: Tensor
    bias: Tensor
    histogram: Tensor
    page_table: Tensor
    continuation: Tensor  # by state row


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows an operation works on: a live count in device memory, and the most it can be."""

    count: Tensor
    capacity: int


@dataclass(frozen=True, slots=True)
class Activation:
    """`capacity` rows of `width` numbers."""

    tensor: Tensor
    capacity: int
    width: int
    form: RowForm = RowForm.FLOAT


@dataclass(frozen=True, slots=True)
class RowTable:
    """What `row_table` writes: one entry a packed token, and which of them are sampled."""

    counts: Tensor
    token: Tensor
    position: Tensor
    slot: Tensor
    identity: Tensor
    lane_first: Tensor
    sample_row: Tensor
    sample_lane: Tensor
    rows: Rows
    samples: Rows


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads, how a layer keeps their keys and values, and how long a page of all layers is."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    kv_format: KvFormat
    page_nbytes: int


def floats(program: ProgramCapture, rows: Rows, width: int) -> Activation:
    """A temporary of float rows."""
    return Activation(program.scratch(rows.capacity * width * _WORD), rows.capacity, width)


def rows_in(form: RowForm, program: ProgramCapture, rows: Rows, width: int) -> Activation:
    """A temporary of rows in that form."""
    if form == RowForm.FLOAT:
        return floats(program, rows, width)
    unit = _Q12_DEPTH if form == RowForm.Q12 else _BLOCK
    if width % unit:
        raise InternalError(f"{form} rows of {width} numbers are not whole blocks of {unit}")
    return Activation(program.scratch(_ROWS_NBYTES[form](rows.capacity, width)), rows.capacity, width, form)


def _q12_rows_nbytes(n_rows: int, width: int) -> int:
    """Two bytes a number in whole tiles, one again with 8 for a block, and a float for each group."""
    n_tiled = -(-n_rows // _Q12_TILE_ROWS) * _Q12_TILE_ROWS
    return n_tiled * width * 2 + n_rows * (width * 5 // 4 + -(-width // _Q12_GROUP) * _WORD)


_ROWS_NBYTES: Mapping[RowForm, Callable[[int, int], int]] = {
    RowForm.Q8: lambda n_rows, width: n_rows * width * 3 // 2,  # a byte each and 16 for a block
    RowForm.Q12: _q12_rows_nbytes,
    RowForm.BF16: lambda n_rows, width: n_rows * width * 2 + n_rows * width // 8,  # two bytes each and 4 for a block
}
