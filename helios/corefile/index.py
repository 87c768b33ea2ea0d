"""What a core's signature covers, in one shape for every format, and the rules it keeps before any stored byte is looked at.

It knows lengths, names and counts, and reads no file. A CoreIndex has unique ids, one manifest and one tokenizer, and a hash
for each chunk of everything stored; all its lengths are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helios.contract.messages import check_message, decode_message
from helios.contract.schema import contract_pb2, core_pb2
from helios.corefile.chunks import CHUNK_NBYTES, check_count
from helios.corefile.layout import (
    MAX_DECODED_NBYTES,
    MAX_NAME_CHARACTERS,
    MAX_TENSOR_NBYTES,
    CoreFormat,
    max_stored_nbytes,
)
from helios.corefile.sealing import KEY_CHECK_NBYTES, SALT_NBYTES, sealed_nbytes
from helios.corefile.wire import check_parts
from helios.errors import CoreError

_REQUIRED = {
    core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST: "execution manifest",
    core_pb2.RESOURCE_KIND_TOKENIZER: "tokenizer",
}


@dataclass(frozen=True, slots=True)
class CoreIndex:
    """Everything signed. `sealing` is there when the stored bytes are encrypted."""

    format: CoreFormat
    namespace: str
    contract: contract_pb2.ServingContract
    resources: Sequence[core_pb2.ExecutableResource]
    tensors: Sequence[core_pb2.TensorResource]
    model_license: str
    rebuild_manifest: bytes
    weight_catalogs: Sequence[bytes]
    sealing: core_pb2.Sealing | None = None

    def stored_nbytes(self) -> Mapping[str, int]:
        """Id to the bytes that are stored for it, in the order of declaration."""
        sizes = {resource.id: resource.stored.nbytes for resource in self.resources}
        sizes.update((tensor.id, self.tensor_stored_nbytes(tensor)) for tensor in self.tensors)
        return sizes

    def tensor_stored_nbytes(self, tensor: core_pb2.TensorResource) -> int:
        return sealed_nbytes(tensor.nbytes) if self.sealing else tensor.nbytes


def decode_index(format_: CoreFormat, signed: bytes) -> CoreIndex:
    """Decode and check what was signed. Raises CoreError for the first rule that it breaks."""
    if format_ is CoreFormat.PAYLOAD:
        check_parts(core_pb2.CoreBody, signed, "the signed body")
        index = _from_body(decode_message(core_pb2.CoreBody, signed, "the signed body"))
    else:
        check_parts(core_pb2.ProtectedIndex, signed, "the signed index")
        index = _from_protected(decode_message(core_pb2.ProtectedIndex, signed, "the signed index"), format_)
    _check_index(index)
    return index


def _from_body(body: core_pb2.CoreBody) -> CoreIndex:
    """A payload core's."""
    _check_version(body.format_version, CoreFormat.PAYLOAD)
    check_message(body, "the core")
    _check_contract(body.HasField("deployment") and body.deployment.HasField("contract"))
    return CoreIndex(
        format=CoreFormat.PAYLOAD,
        namespace=body.publisher_namespace,
        contract=body.deployment.contract,
        resources=body.resources,
        tensors=body.tensors,
        model_license=body.model_license,
        rebuild_manifest=body.rebuild_manifest,
        weight_catalogs=body.weight_catalogs,
    )


def _from_protected(protected: core_pb2.ProtectedIndex, format_: CoreFormat) -> CoreIndex:
    """A logical-resource core's."""
    _check_version(protected.version, format_)
    check_message(protected, "the core")
    _check_contract(protected.index.HasField("contract"))
    if protected.HasField("sealing") != (format_ is CoreFormat.SEALED_INDEX):
        raise CoreError(f"an index of version {protected.version} says wrongly whether its content is encrypted")
    index = protected.index
    return CoreIndex(
        format=format_,
        namespace=protected.publisher_namespace,
        contract=index.contract,
        resources=index.resources,
        tensors=index.tensors,
        model_license=index.model_license,
        rebuild_manifest=index.rebuild_manifest,
        weight_catalogs=index.weight_catalogs,
        sealing=protected.sealing if protected.HasField("sealing") else None,
    )


def _check_index(index: CoreIndex) -> None:
    """The rules that are the same for every format."""
    _check_name(index.namespace, "publisher namespace")
    if index.sealing is not None:
        _check_sealing(index.sealing)
    _check_ids(index)
    for resource in index.resources:
        _check_resource(resource, index.sealing is not None)
    for tensor in index.tensors:
        _check_tensor(tensor, index)


def _check_version(version: int, format_: CoreFormat) -> None:
    if version != format_:
        raise CoreError(f"the file's header says format {format_.value}, what is signed says version {version}")


def _check_contract(is_there: bool) -> None:
    if not is_there:
        raise CoreError("the core has no serving contract")


def _check_name(name: str, what: str) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise CoreError(f"{what} {name[:MAX_NAME_CHARACTERS]!r} is not 1 to {MAX_NAME_CHARACTERS} printable characters")


def _check_sealing(sealing: core_pb2.Sealing) -> None:
    if (len(sealing.salt), len(sealing.key_check)) != (SALT_NBYTES, KEY_CHECK_NBYTES):
        raise CoreError(
            f"a salt of {len(sealing.salt):,} and a key check of {len(sealing.key_check):,} bytes "
            f"are not {SALT_NBYTES} and {KEY_CHECK_NBYTES}"
        )


def _check_ids(index: CoreIndex) -> None:
    ids = Counter([*(resource.id for resource in index.resources), *(tensor.id for tensor in index.tensors)])
    for id_, count in ids.items():
        _check_name(id_, "resource id")
        if count > 1:
            raise CoreError(f"resource id {id_!r} is declared {count} times")
    kinds = Counter(resource.kind for resource in index.resources)
    for kind, name in _REQUIRED.items():
        if not kinds[kind]:
            raise CoreError(f"the core has no {name}")
    for kind, count in kinds.items():
        if count > 1:
            raise CoreError(f"the core has {count} resources of the kind {core_pb2.ResourceKind.Name(kind)}")


def _check_resource(resource: core_pb2.ExecutableResource, is_sealed: bool) -> None:
    what, stored_nbytes = f"resource {resource.id!r}", resource.stored.nbytes
    if not 0 < resource.decoded_nbytes <= MAX_DECODED_NBYTES:
        raise CoreError(f"{what} decodes to {resource.decoded_nbytes:,} bytes, not 1 to {MAX_DECODED_NBYTES:,}")
    if is_sealed and stored_nbytes != sealed_nbytes(resource.decoded_nbytes):
        raise CoreError(
            f"{what} is encrypted in {stored_nbytes:,} bytes, not {sealed_nbytes(resource.decoded_nbytes):,}"
        )
    limit = max_stored_nbytes(resource.decoded_nbytes)
    if not 0 < stored_nbytes <= limit:
        raise CoreError(f"{what} is stored in {stored_nbytes:,} bytes, not 1 to {limit:,}")
    _check_chunk_nbytes(resource.chunk_nbytes, what)
    check_count(resource.chunk_sha256, stored_nbytes, what)


def _check_tensor(tensor: core_pb2.TensorResource, index: CoreIndex) -> None:
    what = f"tensor {tensor.id!r}"
    if not 0 < tensor.nbytes <= MAX_TENSOR_NBYTES:
        raise CoreError(f"{what} has {tensor.nbytes:,} bytes, not 1 to {MAX_TENSOR_NBYTES:,}")
    _check_name(tensor.layout, f"{what}, layout")
    _check_chunk_nbytes(tensor.chunk_nbytes, what)
    check_count(tensor.chunk_sha256, index.tensor_stored_nbytes(tensor), what)


def _check_chunk_nbytes(chunk_nbytes: int, what: str) -> None:
    if chunk_nbytes != CHUNK_NBYTES:
        raise CoreError(f"{what} has chunks of {chunk_nbytes:,} bytes, not {CHUNK_NBYTES:,}")
