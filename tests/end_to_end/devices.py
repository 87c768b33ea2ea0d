"""The devices that the end-to-end suite runs on, and a tiny model prepared for each of them.

The CPU device is prepared for in the family of kernels that a GPU has, bf16 activations and a bf16 cache, so that all of them
compute the same sums; what the CPU device prefers for itself is served in the tests of the server.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.device.device import why_no_cuda
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import host_target, target_of
from tests.ignition.tiny_model import TinyModel, write_tiny

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NAMESPACE = "end-to-end-tests"
DEVICES = ("cpu", "simt", *(() if why_no_cuda() else ("cuda",)))

on_every_device = pytest.mark.parametrize("device", DEVICES)


def prepared(directory: Path, model: TinyModel, device: str) -> Path:
    """The core of `model` for `device`, three requests at once."""
    checkpoint = write_tiny(directory / "tiny.gguf", model)
    core = directory / f"{device}.core"
    target = replace(host_target(), row_form=RowForm.BF16) if device == "cpu" else target_of(device)
    options = PrepareOptions(concurrency=3, kv_format=KvFormat.BF16)
    prepare(checkpoint, core, target, options, key=KEY, namespace=NAMESPACE)
    return core
