"""A look at a serialised message before it is decoded: has it so many small parts that decoding would blow it up?

It knows the wire format and the schema's descriptors, and no meaning. Two bytes of an empty part become a hundred in memory;
what passes here takes a few times its own bytes. What is not well formed passes: the decoder says what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from helios.errors import CoreError

_MOST_SMALL_PARTS = 50_000  # a contract of fifty programs has a fifth of this
_PART_NBYTES = 32  # beyond them, one part for so many bytes: a chunk's hash takes 34

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_parts(kind: type[Message], data: bytes, what: str) -> None:
    """Raise CoreError when `data` has more fields, at any depth, than an honest message of its size."""
    limit = _MOST_SMALL_PARTS + len(data) // _PART_NBYTES
    if _count(kind.DESCRIPTOR, data, 0, len(data), limit) > limit:
        raise CoreError(f"{what} has more than {limit:,} parts in {len(data):,} bytes")


def _count(descriptor: Any, data: bytes, position: int, end: int, limit: int) -> int:
    """Fields between `position` and `end`; counting stops above `limit` and where the form ends. `descriptor` is a
    message's, of which each implementation of Protobuf has a type of its own."""
    n_fields = 0
    while position < end and n_fields <= limit:
        tag, position = _varint(data, position, end)
        n_fields += 1
        kind = tag & 7
        if kind == _VARINT:
            _, position = _varint(data, position, end)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        elif kind == _BYTES:
            nbytes, position = _varint(data, position, end)
            field = descriptor.fields_by_number.get(tag >> 3)
            if field is not None and field.message_type is not None and position + nbytes <= end:
                n_fields += _count(field.message_type, data, position, position + nbytes, limit - n_fields)
            position += nbytes
        else:
            break
    return n_fields


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number at `position` and where the next thing is; a number that does not end leads to the end."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, end
