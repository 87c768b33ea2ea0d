"""Messages from their bytes, where these have no more fields than an honest one: two bytes may be eighty once they are parsed.

It knows the wire's format and descriptors, no field by name. What makes an honest message large is text and packed ids, a field
each, so that counting its fields takes no time; what is malformed is left to the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

MAX_FIELDS = 1 << 16  # those of messages within a message included
_LEAST_NBYTES = 2  # of a field
_VARINT, _EIGHT_BYTES, _LENGTH_DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_FIXED_NBYTES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


def bounded_parser(message: type[Any]) -> Callable[[bytes], Any]:
    """A deserializer of `message`. Raises DecodeError, also for more than MAX_FIELDS fields."""

    def parse(data: bytes) -> Any:
        if len(data) > _LEAST_NBYTES * MAX_FIELDS and has_more_fields(data, message.DESCRIPTOR, MAX_FIELDS):
            raise DecodeError(f"it has more than {MAX_FIELDS:,} fields")
        return message.FromString(data)

    return parse


def has_more_fields(data: bytes, descriptor: Descriptor, n_most: int) -> bool:
    """Whether a message and those within it have more than so many, as far as it is well formed."""
    n_fields = 0
    pending = [(0, len(data), descriptor)]  # messages, where they are
    try:
        while pending:
            at, end, kind = pending.pop()
            while at < end:
                n_fields += 1
                if n_fields > n_most:
                    return True
                tag, at = _read_varint(data, at)
                wire_type = tag & 7
                if wire_type == _LENGTH_DELIMITED:
                    n_bytes, at = _read_varint(data, at)
                    field = kind.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        pending.append((at, min(at + n_bytes, end), field.message_type))
                    at += n_bytes
                elif wire_type == _VARINT:
                    _, at = _read_varint(data, at)
                else:
                    at += _FIXED_NBYTES.get(
                        wire_type, 0
                    )  # where a group begins or ends there is a tag and nothing else
    except IndexError:
        return False
    return False


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. IndexError where there is none."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for i in range(1, 10):
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise IndexError
