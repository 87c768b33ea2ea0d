"""Writes a payload core: one pass over the weights, the signed header last, visible only when complete.

It knows the container and not what the contract says; whoever writes has validated that. The same parts and key give the
same bytes: frames, field order, Ed25519 signatures and places are all deterministic.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.messages import serialize
from helios.contract.schema import contract_pb2, core_pb2, execution_pb2
from helios.corefile.body import check_body
from helios.corefile.chunks import CHUNK_NBYTES, HASH_NBYTES, ChunkHasher, n_chunks
from helios.corefile.frame import encode_frame
from helios.corefile.keys import LOCAL_NAMESPACE, public_bytes
from helios.corefile.layout import FORMAT_VERSION, HEADER, MAGIC, SIGNED_PREFIX, align_up
from helios.errors import ArtifactError, InternalError

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)

_RESOURCE_IDS = {
    core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST: "manifest",
    core_pb2.RESOURCE_KIND_TOKENIZER: "tokenizer",
    core_pb2.RESOURCE_KIND_CHAT_TEMPLATE: "chat_template",
}


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A tensor to store: `chunks()` yields its `nbytes` bytes in pieces of any size, once."""

    id: str
    nbytes: int
    layout: str
    chunks: Callable[[], Iterable[bytes | memoryview]]


@dataclass(frozen=True, slots=True)
class CoreParts:
    """What goes into a core. `manifest`, `tokenizer` and `chat_template` become the executable resources of those names."""

    contract: contract_pb2.ServingContract
    manifest: execution_pb2.ExecutionManifest
    tokenizer: bytes
    chat_template: str | None
    tensors: Sequence[TensorSource]
    namespace: str = LOCAL_NAMESPACE
    model_license: str = ""
    rebuild_manifest: Mapping[str, str] = field(default_factory=dict)


def write_core(path: Path, parts: CoreParts, key: Ed25519PrivateKey, progress: Progress | None = None) -> None:
    """Write `parts`, signed by `key`, to `path`; an older file there is replaced at once or not at all."""
    frames = _frames(parts)
    body = _body(parts, frames)
    check_body(body)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            _write(file, body, frames, parts.tensors, key, progress)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ArtifactError(f"core {path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(
            OSError
        ):  # it is gone after the rename, and cannot be there where nothing can be written
            temporary.unlink()


def _frames(parts: CoreParts) -> dict[core_pb2.ResourceKind, tuple[int, bytes]]:
    """Kind to (decoded length, frame)."""
    contents = {
        core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST: serialize(parts.manifest),
        core_pb2.RESOURCE_KIND_TOKENIZER: parts.tokenizer,
    }
    if parts.chat_template:
        contents[core_pb2.RESOURCE_KIND_CHAT_TEMPLATE] = parts.chat_template.encode()
    return {kind: (len(content), encode_frame(content)) for kind, content in contents.items()}


def _body(parts: CoreParts, frames: Mapping[core_pb2.ResourceKind, tuple[int, bytes]]) -> core_pb2.CoreBody:
    """The body with the true hashes of the frames, and hashes of the right size for the tensors."""
    body = core_pb2.CoreBody(
        format_version=FORMAT_VERSION,
        publisher_namespace=parts.namespace,
        deployment=core_pb2.DeploymentBody(contract=parts.contract),
        model_license=parts.model_license,
        rebuild_manifest=parts.rebuild_manifest,
    )
    for kind, (decoded_nbytes, frame) in frames.items():
        hasher = ChunkHasher()
        hasher.update(frame)
        body.resources.add(
            id=_RESOURCE_IDS[kind],
            kind=kind,
            stored=core_pb2.StoredFrame(nbytes=len(frame)),
            decoded_nbytes=decoded_nbytes,
            chunk_nbytes=CHUNK_NBYTES,
            chunk_sha256=hasher.finish(),
        )
    for tensor in parts.tensors:
        placeholders = [bytes(HASH_NBYTES)] * n_chunks(tensor.nbytes)
        body.tensors.add(
            id=tensor.id,
            nbytes=tensor.nbytes,
            chunk_nbytes=CHUNK_NBYTES,
            chunk_sha256=placeholders,
            layout=tensor.layout,
        )
    return body


def _write(
    file: BinaryIO,
    body: core_pb2.CoreBody,
    frames: Mapping[core_pb2.ResourceKind, tuple[int, bytes]],
    tensors: Sequence[TensorSource],
    key: Ed25519PrivateKey,
    progress: Progress | None,
) -> None:
    locations = _place(body, key)
    offsets = {location.id: location.offset for location in locations.locations}
    for resource in body.resources:
        file.seek(offsets[resource.id])
        file.write(frames[resource.kind][1])
    n_total, n_done = sum(tensor.nbytes for tensor in tensors), 0
    for tensor, stored in zip(tensors, body.tensors, strict=True):
        file.seek(offsets[tensor.id])
        del stored.chunk_sha256[:]
        stored.chunk_sha256.extend(_write_tensor(file, tensor))
        n_done += tensor.nbytes
        if progress:
            progress(n_done, n_total)
    file.seek(0)
    file.write(_header(_sign(body, key), locations))


def _write_tensor(file: BinaryIO, tensor: TensorSource) -> list[bytes]:
    hasher, n_written = ChunkHasher(), 0
    for piece in tensor.chunks():
        hasher.update(piece)
        n_written += file.write(piece)
    if n_written != tensor.nbytes:
        raise InternalError(f"tensor {tensor.id!r} yielded {n_written:,} bytes, {tensor.nbytes:,} were declared")
    return hasher.finish()


def _place(body: core_pb2.CoreBody, key: Ed25519PrivateKey) -> core_pb2.LocationSet:
    """Lengths do not depend on hashes, only on offsets, and those grow with the header: repeat until both agree."""
    sizes = [(resource.id, resource.stored.nbytes) for resource in body.resources]
    sizes += [(tensor.id, tensor.nbytes) for tensor in body.tensors]
    envelope, start = _sign(body, key), 0
    while True:
        locations, offset = core_pb2.LocationSet(), start
        for id_, nbytes in sizes:
            offset = align_up(offset)
            locations.locations.add(id=id_, offset=offset)
            offset += nbytes
        needed = align_up(len(_header(envelope, locations)))
        if needed == start:
            return locations
        start = needed


def _sign(body: core_pb2.CoreBody, key: Ed25519PrivateKey) -> core_pb2.SignedEnvelope:
    signed = serialize(body)
    return core_pb2.SignedEnvelope(
        body=signed, public_key=public_bytes(key), signature=key.sign(SIGNED_PREFIX + signed)
    )


def _header(envelope: core_pb2.SignedEnvelope, locations: core_pb2.LocationSet) -> bytes:
    parts = serialize(envelope), serialize(locations)
    return HEADER.pack(MAGIC, len(parts[0]), len(parts[1])) + parts[0] + parts[1]
