"""Signatures and keys, asked of the library and of a child process: the same answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from helios.corefile.ed25519 import IN_PROCESS, Ed25519, InChild
from helios.corefile.keys import public_bytes
from helios.errors import InternalError
from tests.corefile.sample_core import KEY, OTHER_KEY

MESSAGE = bytes(range(256)) * 1024  # more than a pipe holds


@pytest.fixture(scope="module", params=["in process", "in a child"])
def ed25519(request: pytest.FixtureRequest) -> Iterator[Ed25519]:
    if request.param == "in process":
        yield IN_PROCESS
        return
    with InChild() as child:
        yield child


@pytest.mark.parametrize("message", [b"", b"helios", MESSAGE], ids=["empty", "short", "long"])
def test_a_signature_is_valid_for_its_key_and_message_alone(ed25519: Ed25519, message: bytes) -> None:
    signature = KEY.sign(message)
    assert ed25519.is_valid(public_bytes(KEY), signature, message)
    assert not ed25519.is_valid(public_bytes(OTHER_KEY), signature, message)
    assert not ed25519.is_valid(public_bytes(KEY), signature, message + b"\0")
    assert not ed25519.is_valid(public_bytes(KEY), signature[:-1] + bytes([signature[-1] ^ 1]), message)
    assert not ed25519.is_valid(public_bytes(KEY)[:-1], signature, message)
    assert not ed25519.is_valid(b"", b"", message)


def test_a_private_key_has_its_public_one(ed25519: Ed25519) -> None:
    assert ed25519.public_key(KEY.private_bytes_raw()) == public_bytes(KEY)
    assert ed25519.public_key(_pem(KEY)) == public_bytes(KEY)


@pytest.mark.parametrize("content", [b"", b"no key", bytes(31), bytes(33)])
def test_what_is_no_key_has_none(ed25519: Ed25519, content: bytes) -> None:
    assert ed25519.public_key(content) is None
    assert ed25519.public_key(_pem(ec.generate_private_key(ec.SECP256R1()))) is None


def test_a_child_that_has_gone_is_said_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """RT-4: no answer is no."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with InChild() as child:
        for _ in range(2):
            with pytest.raises(InternalError, match="ended with status 1"):
                child.is_valid(public_bytes(KEY), KEY.sign(MESSAGE), MESSAGE)


def _pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem
