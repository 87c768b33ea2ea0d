"""Writes a core: one pass over the weights, the signed header last, visible only when complete.

It knows the containers and not what the contract says; whoever writes has validated that. The same parts, key and container
give the same bytes: frames, field order, Ed25519 signatures and places are all deterministic.
"""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.messages import serialize
from helios.contract.schema import contract_pb2, core_pb2, execution_pb2
from helios.corefile.chunks import CHUNK_NBYTES, HASH_NBYTES, ChunkHasher, n_chunks
from helios.corefile.frame import encode_frame
from helios.corefile.index import decode_index
from helios.corefile.keys import LOCAL_NAMESPACE, public_bytes
from helios.corefile.layout import HEADER, MAGIC, CoreFormat, align_up
from helios.corefile.places import resolve
from helios.corefile.sealing import SALT_NBYTES, ChunkSealer, key_check, sealed_nbytes
from helios.corefile.temporaries import held, remove_abandoned
from helios.errors import ArtifactError, InternalError

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)

# Of RebuildManifest and WeightCatalog, as this version of Helios writes them.
REBUILD_MANIFEST_VERSION = 1
WEIGHT_CATALOG_VERSION = 1

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
    weight_catalogs: Sequence[core_pb2.WeightCatalog] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """How a core is stored. A sealed index needs the 32-byte `core_key`; `salt` is random when None.

    `is_split` puts each resource into a file of its own in a directory beside the core; with `url` the core points there
    instead, to where that directory will be served.
    """

    format: CoreFormat = CoreFormat.PAYLOAD
    core_key: bytes | None = None
    salt: bytes | None = None
    is_split: bool = False
    url: str | None = None


def write_core(
    path: Path,
    parts: CoreParts,
    key: Ed25519PrivateKey,
    progress: Progress | None = None,
    container: Container | None = None,
) -> None:
    """Write `parts`, signed by `key`, to `path`; an older file there is replaced at once or not at all."""
    if path.exists() and not path.is_file():  # a device would be replaced as well
        raise ArtifactError(f"core {path} cannot be written: it is there and is no regular file")
    draft = _Draft(parts, container or Container(), key)
    decode_index(draft.container.format, draft.signed())  # what is written is what a reader accepts
    token = secrets.token_hex(6)
    temporary, directory = path.with_name(f".{path.name}.{token}"), path.with_name(f".{path.name}.{token}.d")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent, f".{glob.escape(path.name)}.*")
        with held(temporary), temporary.open("r+b") as file:
            if draft.container.is_split:
                with held(directory, is_directory=True):
                    _write_split(file, draft, path, directory, progress)
            else:
                _write_whole(file, draft, progress)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except OSError as error:
        raise ArtifactError(f"core {path} cannot be written: {error.strerror}") from error


class _Draft:
    """A core being written: its resources encoded, its tensors' hashes true only when they have been written."""

    def __init__(self, parts: CoreParts, container: Container, key: Ed25519PrivateKey) -> None:
        self.container = container
        self.parts = parts
        self._key = key
        self._salt = b""
        if container.format is CoreFormat.SEALED_INDEX:
            self._salt = container.salt or secrets.token_bytes(SALT_NBYTES)
        self.stored: dict[str, bytes] = {}  # of the resources
        self.resources = [self._resource(kind, content) for kind, content in _contents(parts).items()]
        self.tensors = [self._tensor(tensor) for tensor in parts.tensors]

    def sizes(self) -> Mapping[str, int]:
        """Id to stored bytes, in the order of writing."""
        sizes = {id_: len(stored) for id_, stored in self.stored.items()}
        sizes.update((tensor.id, self._stored_nbytes(tensor.nbytes)) for tensor in self.tensors)
        return sizes

    def signed(self) -> bytes:
        """The serialised CoreBody or ProtectedIndex."""
        parts, container = self.parts, self.container
        if container.format is CoreFormat.PAYLOAD:
            body = core_pb2.CoreBody(
                format_version=container.format,
                publisher_namespace=parts.namespace,
                deployment=core_pb2.DeploymentBody(contract=parts.contract),
                resources=self.resources,
                tensors=self.tensors,
                model_license=parts.model_license,
                rebuild_manifest=_rebuild_manifest(parts),
                weight_catalogs=[serialize(catalog) for catalog in parts.weight_catalogs],
            )
            return serialize(body)
        index = core_pb2.ModelIndex(
            contract=parts.contract,
            resources=self.resources,
            tensors=self.tensors,
            model_license=parts.model_license,
            rebuild_manifest=_rebuild_manifest(parts),
            weight_catalogs=[serialize(catalog) for catalog in parts.weight_catalogs],
        )
        sealing = None
        if container.core_key is not None:
            sealing = core_pb2.Sealing(salt=self._salt, key_check=key_check(container.core_key, self._salt))
        return serialize(
            core_pb2.ProtectedIndex(
                version=container.format, publisher_namespace=parts.namespace, index=index, sealing=sealing
            )
        )

    def header(self, locations: core_pb2.LocationSet) -> bytes:
        signed = self.signed()
        signature = self._key.sign(self.container.format.signed_prefix + signed)
        envelope = serialize(
            core_pb2.SignedEnvelope(body=signed, public_key=public_bytes(self._key), signature=signature)
        )
        places = serialize(locations)
        return HEADER.pack(MAGIC, self.container.format, len(envelope), len(places)) + envelope + places

    def write_tensor(self, file: BinaryIO, index: int) -> int:
        """Write tensor `index`, keep its hashes, return its bytes of content."""
        tensor, entry = self.parts.tensors[index], self.tensors[index]
        hasher, n_written = ChunkHasher(), 0
        for piece in self._stored_pieces(tensor):
            hasher.update(piece)
            n_written += file.write(piece)
        if n_written != self._stored_nbytes(tensor.nbytes):
            raise InternalError(
                f"tensor {tensor.id!r} is stored in {n_written:,} bytes, not those of {tensor.nbytes:,}"
            )
        del entry.chunk_sha256[:]
        entry.chunk_sha256.extend(hasher.finish())
        return tensor.nbytes

    def _stored_pieces(self, tensor: TensorSource) -> Iterable[bytes | memoryview]:
        sealer = self._sealer(tensor.id, tensor.nbytes)
        return tensor.chunks() if sealer is None else sealer.seal_all(tensor.chunks())

    def _resource(self, kind: core_pb2.ResourceKind, content: bytes) -> core_pb2.ExecutableResource:
        id_ = _RESOURCE_IDS[kind]
        sealer = self._sealer(id_, len(content))
        stored = encode_frame(content) if sealer is None else b"".join(sealer.seal_all([content]))
        self.stored[id_] = stored
        hasher = ChunkHasher()
        hasher.update(stored)
        return core_pb2.ExecutableResource(
            id=id_,
            kind=kind,
            stored=core_pb2.StoredFrame(nbytes=len(stored)),
            decoded_nbytes=len(content),
            chunk_nbytes=CHUNK_NBYTES,
            chunk_sha256=hasher.finish(),
        )

    def _tensor(self, tensor: TensorSource) -> core_pb2.TensorResource:
        return core_pb2.TensorResource(
            id=tensor.id,
            nbytes=tensor.nbytes,
            chunk_nbytes=CHUNK_NBYTES,
            chunk_sha256=[bytes(HASH_NBYTES)] * n_chunks(self._stored_nbytes(tensor.nbytes)),
            layout=tensor.layout,
        )

    def _sealer(self, id_: str, content_nbytes: int) -> ChunkSealer | None:
        if self.container.core_key is None:
            return None
        return ChunkSealer(self.container.core_key, self._salt, id_, content_nbytes)

    def _stored_nbytes(self, content_nbytes: int) -> int:
        return content_nbytes if self.container.core_key is None else sealed_nbytes(content_nbytes)


def _contents(parts: CoreParts) -> Mapping[core_pb2.ResourceKind, bytes]:
    contents = {
        core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST: serialize(parts.manifest),
        core_pb2.RESOURCE_KIND_TOKENIZER: parts.tokenizer,
    }
    if parts.chat_template:
        contents[core_pb2.RESOURCE_KIND_CHAT_TEMPLATE] = parts.chat_template.encode()
    return contents


def _rebuild_manifest(parts: CoreParts) -> bytes:
    if not parts.rebuild_manifest:
        return b""
    return serialize(core_pb2.RebuildManifest(version=REBUILD_MANIFEST_VERSION, inputs=parts.rebuild_manifest))


def _write_whole(file: BinaryIO, draft: _Draft, progress: Progress | None) -> None:
    """Everything in this one file."""
    locations = _place(draft)
    offsets = {location.id: location.offset for location in locations.locations}
    for id_, stored in draft.stored.items():
        file.seek(offsets[id_])
        file.write(stored)
    for index in _in_order(draft, progress):
        file.seek(offsets[draft.tensors[index].id])
        draft.write_tensor(file, index)
    file.seek(0)
    file.write(draft.header(locations))


def _write_split(file: BinaryIO, draft: _Draft, path: Path, directory: Path, progress: Progress | None) -> None:
    """Every resource in a file of its own. Their directory has a name of its own for each content, so that the core that
    is replaced by this one stays whole until then."""
    resolve(_beside(draft, "checked"), draft.sizes(), path.parent)
    for id_, stored in draft.stored.items():
        (directory / id_).write_bytes(stored)
    for index in _in_order(draft, progress):
        with (directory / draft.tensors[index].id).open("xb") as tensor_file:
            draft.write_tensor(tensor_file, index)
    hasher = ChunkHasher()
    hasher.update(draft.signed())
    final = path.with_name(f"{path.stem}.{hasher.finish()[0].hex()[:16]}")
    final.mkdir(exist_ok=True)
    for id_ in draft.sizes():
        (directory / id_).replace(final / id_)
    file.write(draft.header(_beside(draft, final.name)))


def _beside(draft: _Draft, directory_name: str) -> core_pb2.LocationSet:
    url = draft.container.url
    return core_pb2.LocationSet(url=url) if url else core_pb2.LocationSet(directory=directory_name)


def _in_order(draft: _Draft, progress: Progress | None) -> Iterator[int]:
    """The index of each tensor to write, and progress when it has been written."""
    n_total, n_done = sum(tensor.nbytes for tensor in draft.tensors), 0
    for index, tensor in enumerate(draft.tensors):
        yield index
        n_done += tensor.nbytes
        if progress:
            progress(n_done, n_total)


def _place(draft: _Draft) -> core_pb2.LocationSet:
    """Lengths do not depend on hashes, only on offsets, and those grow with the header: repeat until both agree."""
    start = 0
    while True:
        locations, offset = core_pb2.LocationSet(), start
        for id_, nbytes in draft.sizes().items():
            offset = align_up(offset)
            locations.locations.add(id=id_, offset=offset)
            offset += nbytes
        needed = align_up(len(draft.header(locations)))
        if needed == start:
            return locations
        start = needed
