"""The number of a message's fields, told from its bytes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from helios.server.grpc.parsing import MAX_FIELDS, bounded_parser, has_more_fields
from helios.server.grpc.schema import control_pb2, inference_pb2
from tests.server.grpc.conftest import GenerateRequest, request_of

N = 300
LIST = {"a": list(range(N))}  # in a Struct: a number in a Value in a ListValue for each
DESCRIPTOR = GenerateRequest.DESCRIPTOR


@pytest.mark.parametrize(
    ("fields", "n_fields"),
    [
        ({"text": "word " * N}, 1),
        ({"token_ids": {"ids": range(N)}}, 2),
        ({"text": "a", "temperature": 0.5, "priority": -1, "sampling": {"top_k": N, "seed": -5}}, 6),
        ({"media": [{}] * N}, N),
        ({"media": [{"features": {"is_embed": [True] * N}}] * 2}, 6),
        ({"stopping": {"stop_strings": ["ab"] * N}}, 1 + N),
        ({"decoding": {"choice": {"choices": [""] * N}}}, 2 + N),
        ({"decoding": {"logit_bias": dict.fromkeys(range(N), 1.0)}}, 1 + 3 * N),
        ({"kv_hints": {"actions": [{"action_id": "x"}] * N}}, 1 + 2 * N),
        ({"kv": {"kv_transfer_params": LIST}}, 2 + 1 + 3 + 2 * N),
    ],
)
def test_fields_are_counted_with_those_of_messages_within(fields: dict[str, Any], n_fields: int) -> None:
    data = GenerateRequest(**fields).SerializeToString()
    assert has_more_fields(data, DESCRIPTOR, n_fields - 1)
    assert not has_more_fields(data, DESCRIPTOR, n_fields)


def test_fields_that_are_not_packed_or_not_known_are_counted_each() -> None:
    for data, n_fields in (
        (b"\x22\x08" + b"\x08\x05" * 4, 5),
        (b"\xfb\x07\xfd\x07abcd\xf9\x07abcdefgh\xfc\x07" * 3, 12),
    ):
        GenerateRequest.FromString(data)
        assert has_more_fields(data, DESCRIPTOR, n_fields - 1)
        assert not has_more_fields(data, DESCRIPTOR, n_fields)


@given(st.binary(max_size=200))
def test_of_bytes_that_are_no_message_none_is_counted_twice(data: bytes) -> None:
    assert not has_more_fields(data, DESCRIPTOR, len(data))


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (GenerateRequest, b"\x72\0"),
        (control_pb2.AbortRequest, b"\x0a\0"),
        (inference_pb2.GenerateRequest, b"\xc8\x0a\0"),
    ],
)
def test_a_message_of_too_many_fields_is_not_parsed(kind: type[Any], field: bytes) -> None:
    """GRPC-4: what is held of a message is bounded by its bytes."""
    parse = bounded_parser(kind)
    assert parse(field * MAX_FIELDS) == kind.FromString(field * MAX_FIELDS)
    with pytest.raises(DecodeError, match="more than 65,536 fields"):
        parse(field * (MAX_FIELDS + 1))


def test_a_large_message_is_parsed() -> None:
    for request in (request_of("word " * 500_000), request_of(list(range(500_000)))):
        assert bounded_parser(GenerateRequest)(request.SerializeToString()) == request
