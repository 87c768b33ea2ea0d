"""Bytes to Protobuf messages and back, and the check that a message holds nothing this version of Helios does not know.

It knows the schema only through its descriptors, and no meaning. A message that passes the check carries no unknown field and every
enum in it has a known number that is not the unspecified zero (CON-4). A serving contract inside another message is left to
`PreparedContract`, which first reads it by its version.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from helios.errors import ContractError, CoreError

_Message = TypeVar("_Message", bound=Message)

# How an error names a message: (noun, the field that holds its name). Others are named by their field and index.
_NAMES = {
    "GraphContract": ("graph", "program"),
    "ValueBinding": ("binding", "destination"),
    "StateAccess": ("access", "view"),
    "Program": ("program", "name"),
    "Buffer": ("buffer", "name"),
    "Destination": ("destination", "name"),
    "ExecutableResource": ("resource", "id"),
}
_VERSIONED = "ServingContract"


def decode_message(kind: type[_Message], data: bytes, what: str) -> _Message:
    """Decode one message and no more; `what` names it in errors. Raises CoreError."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise CoreError(f"{what} is not a valid {kind.DESCRIPTOR.name} message") from None
    return message


def serialize(message: Message) -> bytes:
    """The canonical bytes: fields in order of number, maps in order of key."""
    return message.SerializeToString(deterministic=True)


def check_message(message: Message, what: str) -> None:
    """Refuse unknown fields, and enums that are unspecified or unknown, anywhere inside. Raises ContractError."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() != message.ByteSize():
        raise ContractError(f"{what} has fields that this version of Helios does not know", hint="use a newer Helios")
    for problem in _enum_problems(message):
        raise ContractError(f"{what}: {problem}")


def _enum_problems(message: Message) -> Iterator[str]:
    """Names are spelled only for a problem: there are thousands of nodes, and as a rule no problem."""
    for field in _fields_with_enums(message.DESCRIPTOR):
        if field.enum_type is not None:
            number = getattr(message, field.name)
            if number == 0 or number not in field.enum_type.values_by_number:
                says = "is unspecified" if number == 0 else f"has the unknown number {number}"
                yield f"field {field.name!r} {says}"
        elif field.is_repeated:
            for index, part in enumerate(getattr(message, field.name)):
                for problem in _enum_problems(part):
                    yield f"{_name(part, field.name, index)}, {problem}"
        elif message.HasField(field.name):
            for problem in _enum_problems(getattr(message, field.name)):
                yield f"{field.name}, {problem}"


def _name(message: Message, field_name: str, index: int) -> str:
    noun, name_field = _NAMES.get(message.DESCRIPTOR.name, ("", ""))
    return f"{noun} {getattr(message, name_field)!r}" if noun else f"{field_name}[{index}]"


@functools.cache
def _fields_with_enums(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields that are enums, or messages with enums somewhere inside: most nodes of a program hold none."""
    return tuple(
        field
        for field in descriptor.fields
        if field.enum_type is not None
        or (
            field.message_type is not None
            and field.message_type.name != _VERSIONED
            and _fields_with_enums(field.message_type)
        )
    )
