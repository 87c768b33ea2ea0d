"""The header of a GGUF file, parsed from bytes that nobody vouches for: metadata, tensor entries, places of their data.

It knows the container and nothing of models. Every count, length and offset is compared with the bytes that are really
there before anything of that size is made, so memory and time are bounded by the file; whatever is wrong is one
CheckpointError that names the field. Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from helios.errors import CheckpointError
from helios.ignition.checkpoints.ggml_types import GgmlType, block_elements, row_bytes

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_METADATA = 1 << 16
_MAX_TENSORS = 1 << 16
_MAX_ARRAY = 1 << 24
_MAX_STRING_BYTES = 1 << 24
_MAX_KEY_BYTES = 65_535  # the format's own limit, as are the 64 bytes and the 4 dimensions below
_MAX_NAME_BYTES = 64
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 16
_LEAST_METADATA_BYTES = 8 + 1 + 4 + 1  # key length, one byte of key, type, one byte of value
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name length, one byte of name, dimensions, one of them, type, offset

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_BOOL = 7
_STRING = 8
_ARRAY = 9
_UINT32 = 4
# Value type -> struct and numpy code of the numbers.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_DTYPES = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_STRUCTS = {type_: struct.Struct("<" + code) for type_, code in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor's place in the file. `shape` is in numpy order: the contiguous dimension last."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF says before its data. Offsets of `tensors` count from the start of the file."""

    version: int
    metadata: dict[str, Any]
    tensors: tuple[TensorEntry, ...]


def parse_header(data: mmap.mmap, file_name: str) -> GgufHeader:
    """Parse and check everything but the tensors' values."""
    cursor = _Cursor(data, file_name)
    version, n_tensors, n_metadata = _parse_preamble(cursor)
    metadata: dict[str, Any] = {}
    for index in range(n_metadata):
        key, value = _parse_metadata(cursor, index)
        if key in metadata:
            cursor.fail(f"metadata key {key[:100]!r} appears twice")
        metadata[key] = value
    alignment = _alignment(cursor, metadata)
    entries = [_parse_tensor(cursor, index, alignment) for index in range(n_tensors)]
    start = -(-cursor.position // alignment) * alignment
    return GgufHeader(version, metadata, _place(cursor, entries, start))


class _Cursor:
    """A position in the header that moves forward over checked fields."""

    __slots__ = ("data", "file_name", "position", "size_bytes")

    def __init__(self, data: mmap.mmap, file_name: str) -> None:
        self.data = data
        self.file_name = file_name
        self.position = 0
        self.size_bytes = len(data)

    def fail(self, problem: str) -> NoReturn:
        raise CheckpointError(f"{self.file_name} is not a valid GGUF file: {problem}")

    @property
    def remaining_bytes(self) -> int:
        return self.size_bytes - self.position

    def advance(self, n_bytes: int, field: str) -> int:
        """The offset of the next `n_bytes`, which are passed over."""
        if n_bytes > self.remaining_bytes:
            self.fail(f"{field} needs {n_bytes:,} bytes at offset {self.position:,}, {self.remaining_bytes:,} are left")
        offset = self.position
        self.position += n_bytes
        return offset

    def number(self, layout: struct.Struct, field: str) -> Any:
        return layout.unpack_from(self.data, self.advance(layout.size, field))[0]

    def text(self, field: str, max_bytes: int) -> str:
        size_bytes = self.number(_U64, f"the length of {field}")
        if size_bytes > max_bytes:
            self.fail(f"{field} says it has {size_bytes:,} bytes, the limit is {max_bytes:,}")
        offset = self.advance(size_bytes, field)
        try:
            return self.data[offset : offset + size_bytes].decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{field} is not UTF-8 at byte {error.start:,}")

    def count(self, field: str, least_bytes: int, limit: int) -> int:
        """A u64 count of things that take at least `least_bytes` each."""
        n_items: int = self.number(_U64, field)
        most = min(limit, self.remaining_bytes // least_bytes)
        if n_items > most:
            self.fail(f"{field} is {n_items:,}, at most {most:,} can be there")
        return n_items


def _parse_preamble(cursor: _Cursor) -> tuple[int, int, int]:
    """(version, tensor count, metadata count)."""
    offset = cursor.advance(4, "the magic")
    magic = cursor.data[offset : offset + 4]
    if magic != _MAGIC:
        cursor.fail(f"it starts with {magic!r}, not {_MAGIC!r}")
    version: int = cursor.number(_U32, "the version")
    if version not in _VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            cursor.fail("it is big-endian, only little-endian files are read")
        cursor.fail(f"its version is {version:,}, versions 2 and 3 are read")
    # The tensor entries come after the metadata, so this bound is loose; each entry is bounded again when it is read.
    n_tensors = cursor.count("the tensor count", _LEAST_TENSOR_BYTES, _MAX_TENSORS)
    return version, n_tensors, cursor.count("the metadata count", _LEAST_METADATA_BYTES, _MAX_METADATA)


def _parse_metadata(cursor: _Cursor, index: int) -> tuple[str, Any]:
    key = cursor.text(f"metadata key {index:,}", _MAX_KEY_BYTES)
    if not key:
        cursor.fail(f"metadata key {index:,} is empty")
    field = f"metadata {key[:100]!r}"
    type_ = cursor.number(_U32, f"the type of {field}")
    if key == "general.alignment" and type_ != _UINT32:
        cursor.fail(f"{field} has value type {type_:,}, it must be {_UINT32} (uint32)")
    if type_ == _ARRAY:
        return key, _parse_array(cursor, field)
    return key, _parse_value(cursor, type_, field)


def _parse_value(cursor: _Cursor, type_: int, field: str) -> Any:
    if type_ == _STRING:
        return cursor.text(field, _MAX_STRING_BYTES)
    if type_ == _BOOL:
        byte = cursor.data[cursor.advance(1, field)]
        if byte > 1:
            cursor.fail(f"{field} is a bool of value {byte}")
        return byte == 1
    if type_ not in _NUMBERS:
        cursor.fail(f"{field} has the unknown value type {type_:,}")
    return cursor.number(_STRUCTS[type_], field)


def _parse_array(cursor: _Cursor, field: str) -> Any:
    """A list of str, a list of bool, or a numpy array of the stored type."""
    type_ = cursor.number(_U32, f"the element type of {field}")
    if type_ == _ARRAY:
        cursor.fail(f"{field} is an array of arrays, which is not read")
    if type_ == _STRING:
        return _parse_texts(cursor, field, cursor.count(f"the length of {field}", 8, _MAX_ARRAY))
    if type_ == _BOOL:
        n_elements = cursor.count(f"the length of {field}", 1, _MAX_ARRAY)
        offset = cursor.advance(n_elements, field)
        values = cursor.data[offset : offset + n_elements]
        if values.translate(None, b"\x00\x01"):
            cursor.fail(f"{field} is an array of bool with a value above 1")
        return [value == 1 for value in values]
    if type_ not in _NUMBERS:
        cursor.fail(f"{field} is an array of the unknown value type {type_:,}")
    dtype = np.dtype(_DTYPES[type_])
    n_elements = cursor.count(f"the length of {field}", dtype.itemsize, _MAX_ARRAY)
    offset = cursor.advance(n_elements * dtype.itemsize, field)
    return np.frombuffer(cursor.data[offset : cursor.position], dtype=dtype)


def _parse_texts(cursor: _Cursor, field: str, n_texts: int) -> list[str]:
    """The strings of a vocabulary, up to half a million: `_Cursor.text` without its calls."""
    data, size_bytes, position = cursor.data, cursor.size_bytes, cursor.position
    unpack = _U64.unpack_from
    texts: list[str] = []
    for index in range(n_texts):
        start = position + 8
        if start > size_bytes:
            cursor.fail(f"{field} ends inside the length of element {index:,}")
        (n_bytes,) = unpack(data, position)
        if n_bytes > _MAX_STRING_BYTES or n_bytes > size_bytes - start:
            cursor.fail(
                f"element {index:,} of {field} says it has {n_bytes:,} bytes, the file has {size_bytes - start:,} left"
            )
        position = start + n_bytes
        try:
            texts.append(data[start:position].decode("utf-8"))
        except UnicodeDecodeError as error:
            cursor.fail(f"element {index:,} of {field} is not UTF-8 at byte {error.start:,}")
    cursor.position = position
    return texts


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    alignment: int = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if alignment & (alignment - 1) or not 8 <= alignment <= _MAX_ALIGNMENT:
        cursor.fail(f"general.alignment is {alignment:,}, it must be a power of two from 8 to {_MAX_ALIGNMENT:,}")
    return alignment


def _parse_tensor(cursor: _Cursor, index: int, alignment: int) -> TensorEntry:
    """One entry, its offset still counted from the start of the data section."""
    name = cursor.text(f"the name of tensor {index:,}", _MAX_NAME_BYTES)
    if not name:
        cursor.fail(f"the name of tensor {index:,} is empty")
    field = f"tensor {name!r}"
    n_dimensions = cursor.number(_U32, f"the number of dimensions of {field}")
    if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
        cursor.fail(f"{field} has {n_dimensions:,} dimensions, it must have 1 to {_MAX_DIMENSIONS}")
    dimensions = [cursor.number(_U64, f"dimension {axis} of {field}") for axis in range(n_dimensions)]
    if 0 in dimensions:
        cursor.fail(f"dimension {dimensions.index(0)} of {field} is 0")
    number = cursor.number(_U32, f"the type of {field}")
    try:
        type_ = GgmlType(number)
    except ValueError:
        cursor.fail(f"{field} has the unknown type {number:,}")
    if dimensions[0] % block_elements(type_):
        cursor.fail(
            f"rows of {field} have {dimensions[0]:,} elements, not whole {type_.name} blocks of {block_elements(type_)}"
        )
    offset = cursor.number(_U64, f"the offset of {field}")
    if offset % alignment:
        cursor.fail(f"{field} is at offset {offset:,}, not a multiple of the alignment {alignment:,}")
    size_bytes = row_bytes(type_, dimensions[0]) * math.prod(dimensions[1:])  # Python integers: the product cannot wrap
    return TensorEntry(name, type_, tuple(reversed(dimensions)), offset, size_bytes)


def _place(cursor: _Cursor, entries: list[TensorEntry], start: int) -> tuple[TensorEntry, ...]:
    """The entries with offsets in the file, once they are known to be distinct, inside it and apart."""
    available_bytes = max(0, cursor.size_bytes - start)
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            cursor.fail(f"tensor {entry.name!r} appears twice")
        seen.add(entry.name)
        if entry.offset + entry.size_bytes > available_bytes:
            cursor.fail(
                f"tensor {entry.name!r} takes {entry.size_bytes:,} bytes from offset {entry.offset:,}, "
                f"the data section has {available_bytes:,}"
            )
    in_order = sorted(entries, key=lambda entry: entry.offset)
    for first, second in itertools.pairwise(in_order):
        if first.offset + first.size_bytes > second.offset:
            cursor.fail(f"tensors {first.name!r} and {second.name!r} overlap at offset {second.offset:,}")
    return tuple(
        TensorEntry(entry.name, entry.type, entry.shape, start + entry.offset, entry.size_bytes) for entry in entries
    )
