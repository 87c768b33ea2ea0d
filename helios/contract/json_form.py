"""The JSON form of the schema's messages, as people write and read it.

It knows the names of fields and enums through the descriptors, and no meaning: who decodes a contract still prepares it. A field or
an enum name that the schema does not have is refused, never skipped (CON-4).
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from helios.errors import ContractError

_Message = TypeVar("_Message", bound=Message)

_MAX_DEPTH = 32  # messages inside messages; the schema has 7
_SHOWN_CHARACTERS = 200


def decode_json(kind: type[_Message], text: str) -> _Message:
    """One message of `kind` from a JSON object. Raises ContractError for anything else, and for unknown fields and names."""
    if not text.lstrip().startswith("{"):
        raise ContractError(f"JSON is no {kind.DESCRIPTOR.name}: it is no object")
    try:
        return json_format.Parse(text, kind(), ignore_unknown_fields=False, max_recursion_depth=_MAX_DEPTH)
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_SHOWN_CHARACTERS]
        raise ContractError(f"JSON is no {kind.DESCRIPTOR.name}: {reason}") from None


def encode_json(message: Message) -> str:
    """The message as indented JSON with the schema's own field names; `decode_json` reads it back."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2)
