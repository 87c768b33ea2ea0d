"""Parts are counted as the decoder would make them."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from helios.contract.schema import core_pb2
from helios.corefile.wire import check_parts
from helios.errors import CoreError
from tests.corefile.sample_core import sample_parts


def test_an_honest_body_passes() -> None:
    """CORE-3: 700 GB of weights have 34 bytes for each 4 MiB."""
    body = core_pb2.CoreBody(deployment=core_pb2.DeploymentBody(contract=sample_parts().contract))
    body.tensors.add(id="large", chunk_sha256=[bytes(32)] * 180_000)
    check_parts(core_pb2.CoreBody, body.SerializeToString(), "the body")


@pytest.mark.parametrize(
    "field",
    [b"\x08\x00", b"\x22\x00", b"\x2a\x00", b"\x42\x00", b"\xf8\x7f\x00", b"\x0d" + b"\xff" * 4, b"\x09" + b"\xff" * 8],
)
def test_a_swarm_of_small_parts_is_refused(field: bytes) -> None:
    """Issue 3: known or unknown, of any kind, counted before they are made."""
    with pytest.raises(CoreError, match="more than"):
        check_parts(core_pb2.CoreBody, field * 70_000, "the body")


def test_parts_inside_parts_are_counted() -> None:
    body = core_pb2.CoreBody()
    for _ in range(3):
        body.tensors.add(id="a", chunk_sha256=[b""] * 20_000)
    with pytest.raises(CoreError, match="more than"):
        check_parts(core_pb2.CoreBody, body.SerializeToString(), "the body")


@hypothesis.given(st.binary(max_size=200))
def test_what_is_not_well_formed_is_left_to_the_decoder(data: bytes) -> None:
    check_parts(core_pb2.CoreBody, data, "the body")
