"""The rules that a core's signed body keeps before any stored byte is looked at.

It knows lengths, names and counts, and reads no file. A body that passes has unique ids, one manifest and one tokenizer, and
a hash for each chunk of everything stored; all its lengths are bounded.
"""

from __future__ import annotations

from collections import Counter

from helios.contract.messages import check_message
from helios.contract.schema import core_pb2
from helios.corefile.chunks import CHUNK_NBYTES, check_count
from helios.corefile.layout import (
    FORMAT_VERSION,
    MAX_DECODED_NBYTES,
    MAX_NAME_CHARACTERS,
    MAX_TENSOR_NBYTES,
    max_stored_nbytes,
)
from helios.errors import CoreError

_REQUIRED = {
    core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST: "execution manifest",
    core_pb2.RESOURCE_KIND_TOKENIZER: "tokenizer",
}


def check_body(body: core_pb2.CoreBody) -> None:
    """Raise CoreError for the first rule that `body` breaks."""
    if body.format_version != FORMAT_VERSION:
        raise CoreError(f"core format version {body.format_version} is unknown, version {FORMAT_VERSION} is served")
    check_message(body, "the core")
    if not body.HasField("deployment") or not body.deployment.HasField("contract"):
        raise CoreError("the core has no serving contract")
    _check_name(body.publisher_namespace, "publisher namespace")
    _check_ids(body)
    for resource in body.resources:
        _check_resource(resource)
    for tensor in body.tensors:
        _check_tensor(tensor)


def _check_name(name: str, what: str) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise CoreError(f"{what} {name[:MAX_NAME_CHARACTERS]!r} is not 1 to {MAX_NAME_CHARACTERS} printable characters")


def _check_ids(body: core_pb2.CoreBody) -> None:
    ids = Counter([*(resource.id for resource in body.resources), *(tensor.id for tensor in body.tensors)])
    for id_, count in ids.items():
        _check_name(id_, "resource id")
        if count > 1:
            raise CoreError(f"resource id {id_!r} is declared {count} times")
    kinds = Counter(resource.kind for resource in body.resources)
    for kind, name in _REQUIRED.items():
        if not kinds[kind]:
            raise CoreError(f"the core has no {name}")
    for kind, count in kinds.items():
        if count > 1:
            raise CoreError(f"the core has {count} resources of the kind {core_pb2.ResourceKind.Name(kind)}")


def _check_resource(resource: core_pb2.ExecutableResource) -> None:
    what = f"resource {resource.id!r}"
    if not 0 < resource.decoded_nbytes <= MAX_DECODED_NBYTES:
        raise CoreError(f"{what} decodes to {resource.decoded_nbytes:,} bytes, not 1 to {MAX_DECODED_NBYTES:,}")
    limit = max_stored_nbytes(resource.decoded_nbytes)
    if not 0 < resource.stored.nbytes <= limit:
        raise CoreError(f"{what} is stored in {resource.stored.nbytes:,} bytes, not 1 to {limit:,}")
    _check_chunk_nbytes(resource.chunk_nbytes, what)
    check_count(resource.chunk_sha256, resource.stored.nbytes, what)


def _check_tensor(tensor: core_pb2.TensorResource) -> None:
    what = f"tensor {tensor.id!r}"
    if not 0 < tensor.nbytes <= MAX_TENSOR_NBYTES:
        raise CoreError(f"{what} has {tensor.nbytes:,} bytes, not 1 to {MAX_TENSOR_NBYTES:,}")
    _check_name(tensor.layout, f"{what}, layout")
    _check_chunk_nbytes(tensor.chunk_nbytes, what)
    check_count(tensor.chunk_sha256, tensor.nbytes, what)


def _check_chunk_nbytes(chunk_nbytes: int, what: str) -> None:
    if chunk_nbytes != CHUNK_NBYTES:
        raise CoreError(f"{what} has chunks of {chunk_nbytes:,} bytes, not {CHUNK_NBYTES:,}")
