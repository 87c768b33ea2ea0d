"""A core's contract and execution manifest, decoded and checked against each other and against the stored tensors.

It knows no device. What it returns keeps every rule of the contract, and each weight buffer has a tensor of its own size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helios.contract.messages import decode_message
from helios.contract.prepared import PreparedContract
from helios.contract.schema import core_pb2, execution_pb2
from helios.corefile.reader import Core, naming
from helios.errors import ContractError, CoreError


@dataclass(frozen=True, slots=True)
class CoreContents:
    """What a runtime loads. `manifest` is for the loader of programs alone."""

    contract: PreparedContract
    manifest: execution_pb2.ExecutionManifest


def read_contents(core: Core) -> CoreContents:
    """Decode and validate. Raises CoreError, or ContractError for the first rule that is broken."""
    content = core.resource(core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST)
    if content is None:
        raise CoreError(f"{core.path} has no execution manifest")
    with naming(core.path):
        manifest = decode_message(execution_pb2.ExecutionManifest, content, "the execution manifest")
        contract = PreparedContract.from_core(core.contract, manifest)
        check_weights(contract, core.index.tensors)
    return CoreContents(contract, manifest)


def check_weights(contract: PreparedContract, tensors: Iterable[core_pb2.TensorResource]) -> None:
    """Every rank's weight buffers are filled from tensors of exactly their sizes, and no tensor is left over."""
    sizes = {tensor.id: tensor.nbytes for tensor in tensors}
    unused = set(sizes)
    for resources in contract.rank_resources:
        for buffer_id, resource in resources.items():
            buffer = contract.buffers[buffer_id]
            if sizes.get(resource) != buffer.nbytes:
                found = f"has {sizes[resource]:,} bytes" if resource in sizes else "is not stored"
                raise ContractError(
                    f"buffer {buffer.name!r} of {buffer.nbytes:,} bytes is filled from {resource!r}, which {found}"
                )
            unused.discard(resource)
    if unused:
        raise ContractError(f"tensor {min(unused)!r} fills no buffer")
