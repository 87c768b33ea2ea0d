"""The Python enumerations equal the schema's."""

from __future__ import annotations

import enum

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from helios.contract import enums
from helios.contract.schema import contract_pb2, execution_pb2

PAIRS = [
    (enums.Operation, execution_pb2.Operation, "OPERATION_"),
    (enums.BufferKind, execution_pb2.BufferKind, "BUFFER_KIND_"),
    (enums.ElementType, execution_pb2.ElementType, "ELEMENT_TYPE_"),
    (enums.ValueSource, contract_pb2.ValueSource, "VALUE_SOURCE_"),
    (enums.Indexing, contract_pb2.Indexing, "INDEXING_"),
    (enums.Access, contract_pb2.Access, "ACCESS_"),
    (enums.RegionKind, contract_pb2.RegionKind, "REGION_KIND_"),
    (enums.ToolSyntax, contract_pb2.ToolSyntax, "TOOL_SYNTAX_"),
    (enums.ReasoningSyntax, contract_pb2.ReasoningSyntax, "REASONING_SYNTAX_"),
    (enums.ImagePreparation, contract_pb2.ImagePreparation, "IMAGE_PREPARATION_"),
    (enums.ImageLayout, contract_pb2.ImageLayout, "IMAGE_LAYOUT_"),
    (enums.MessageRole, contract_pb2.MessageRole, "MESSAGE_ROLE_"),
    (enums.RenderingConstraint, contract_pb2.RenderingConstraint, "RENDERING_CONSTRAINT_"),
]


@pytest.mark.parametrize(("python", "schema", "prefix"), PAIRS)
def test_members_and_numbers_are_those_of_the_schema(
    python: type[enum.IntEnum], schema: EnumTypeWrapper, prefix: str
) -> None:
    """CON-4: every enum has an unspecified zero, and it alone has no member."""
    numbers = {name.removeprefix(prefix): number for name, number in schema.items()}
    assert numbers.pop("UNSPECIFIED") == 0
    assert {member.name: member.value for member in python} == numbers


def test_every_element_type_has_a_dtype_of_its_size() -> None:
    sizes = {element.name: element.dtype.itemsize for element in enums.ElementType}
    assert sizes == {"I32": 4, "U32": 4, "F32": 4, "U8": 1, "U64": 8, "F16": 2, "BF16": 2}
