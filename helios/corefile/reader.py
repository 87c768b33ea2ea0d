"""Reads a payload core that is hostile until checked.

It knows the container and not the meaning of the contract inside. An open `Core` has a valid signature over a body that keeps
every rule of `body.py`, and every byte of its file is accounted for: header, stored bytes, or a zero between them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import Message

from helios.contract.messages import check_message, decode_message, serialize
from helios.contract.schema import core_pb2
from helios.corefile.body import check_body
from helios.corefile.chunks import check_chunk
from helios.corefile.frame import decode_frame
from helios.corefile.layout import (
    HEADER,
    MAGIC,
    MAX_ENVELOPE_NBYTES,
    MAX_LOCATIONS_NBYTES,
    SIGNED_PREFIX,
    align_up,
)
from helios.errors import CoreError, CoreSignatureError, MissingFileError

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)
_Message = TypeVar("_Message", bound=Message)
_MAX_HASH_THREADS = 8
_PUBLIC_KEY_NBYTES, _SIGNATURE_NBYTES = 32, 64


class Core:
    """An open core file. `body` is what was signed, `public_key` who signed it; views of tensors live in the mapping."""

    def __init__(
        self, path: Path, mapping: mmap.mmap, body: core_pb2.CoreBody, public_key: bytes, offsets: dict[str, int]
    ) -> None:
        self.path = path
        self.body = body
        self.public_key = public_key
        self._mapping = mapping
        self._view = memoryview(mapping)
        self._offsets = offsets
        self._tensors = {tensor.id: tensor for tensor in body.tensors}

    @property
    def namespace(self) -> str:
        """The signed publisher namespace."""
        return self.body.publisher_namespace

    @property
    def size_bytes(self) -> int:
        return len(self._view)

    def resource(self, kind: core_pb2.ResourceKind) -> bytes | None:
        """The decoded bytes of the resource of this kind, every chunk verified first; None when the core has none."""
        for resource in self.body.resources:
            if resource.kind == kind:
                what = f"{self.path}: resource {resource.id!r}"
                stored = self._stored(resource.id, resource.stored.nbytes)
                for index, digest in enumerate(resource.chunk_sha256):
                    check_chunk(stored, index, digest, what)
                return decode_frame(stored, resource.decoded_nbytes, what)
        return None

    def tensor(self, id_: str) -> memoryview:
        """A tensor's bytes in the mapping, read-only, not yet verified: see `verify_tensors`."""
        tensor = self._tensors.get(id_)
        if tensor is None:
            raise CoreError(f"{self.path} has no tensor {id_!r}")
        return self._stored(id_, tensor.nbytes)

    def verify_tensors(self, progress: Progress | None = None) -> None:
        """Compare every chunk of every tensor with its signed hash, on all processors. Raises ChunkHashError."""
        chunks = [
            (self._stored(tensor.id, tensor.nbytes), index, digest, f"{self.path}: tensor {tensor.id!r}")
            for tensor in self.body.tensors
            for index, digest in enumerate(tensor.chunk_sha256)
        ]
        n_total, n_done = sum(tensor.nbytes for tensor in self.body.tensors), 0
        with ThreadPoolExecutor(min(_MAX_HASH_THREADS, os.cpu_count() or 1), "helios-verify") as pool:
            try:
                for nbytes in pool.map(lambda chunk: check_chunk(*chunk), chunks):
                    n_done += nbytes
                    if progress:
                        progress(n_done, n_total)
            finally:
                pool.shutdown(cancel_futures=True)

    def _stored(self, id_: str, nbytes: int) -> memoryview:
        offset = self._offsets[id_]
        return self._view[offset : offset + nbytes]

    def close(self) -> None:
        """Release the file. A tensor view that is still in use keeps its mapping until it goes."""
        self._view.release()
        _close(self._mapping)

    def __enter__(self) -> Core:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_core(path: Path) -> Core:
    """Map and check everything but the stored bytes. Raises MissingFileError, or CoreError that says what is wrong."""
    mapping = _map(path)
    try:
        with naming(path), memoryview(mapping) as view:
            return _open(path, mapping, view)
    except CoreError:
        _close(mapping)
        raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file in front of every CoreError's sentence."""
    try:
        yield
    except CoreError as error:
        error.message = f"{path}: {error.message}"
        raise


def _close(mapping: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):  # a view is still in use: the last one closes it
        mapping.close()


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            if size_bytes < HEADER.size:
                raise CoreError(f"{path}: {size_bytes} bytes are no core, its header alone has {HEADER.size}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise MissingFileError(f"core {path} cannot be read: {error.strerror}") from error


def _open(path: Path, mapping: mmap.mmap, view: memoryview) -> Core:
    magic, envelope_nbytes, locations_nbytes = HEADER.unpack(view[: HEADER.size])
    _check_header(magic, envelope_nbytes, locations_nbytes, len(view))
    envelope_end = HEADER.size + envelope_nbytes
    header_end = envelope_end + locations_nbytes
    envelope = _canonical(core_pb2.SignedEnvelope, view[HEADER.size : envelope_end], "the signed envelope")
    _check_signature(envelope)
    body = decode_message(core_pb2.CoreBody, envelope.body, "the signed body")
    check_body(body)
    locations = _canonical(core_pb2.LocationSet, view[envelope_end:header_end], "the location set")
    offsets = _check_places(body, locations, header_end, view)
    return Core(path, mapping, body, envelope.public_key, offsets)


def _check_header(magic: bytes, envelope_nbytes: int, locations_nbytes: int, size_bytes: int) -> None:
    if magic[:-1] != MAGIC[:-1]:
        raise CoreError("this is no core file: it does not start with the magic bytes")
    if magic != MAGIC:
        raise CoreError(f"core container version {magic[-1]} is unknown, version {MAGIC[-1]} is served")
    if envelope_nbytes > MAX_ENVELOPE_NBYTES or locations_nbytes > MAX_LOCATIONS_NBYTES:
        raise CoreError(
            f"an envelope of {envelope_nbytes:,} and locations of {locations_nbytes:,} bytes are more than "
            f"{MAX_ENVELOPE_NBYTES:,} and {MAX_LOCATIONS_NBYTES:,}"
        )
    header_end = HEADER.size + envelope_nbytes + locations_nbytes
    if header_end > size_bytes:
        raise CoreError(f"the file ends at byte {size_bytes:,}, inside its header of {header_end:,}")


def _canonical(kind: type[_Message], data: memoryview, what: str) -> _Message:
    """Decode an unsigned message of which every byte must count: only its canonical form is accepted."""
    message = decode_message(kind, bytes(data), what)
    check_message(message, what)
    if serialize(message) != data:
        raise CoreError(f"{what} is not in its canonical form")
    return message


def _check_signature(envelope: core_pb2.SignedEnvelope) -> None:
    if (len(envelope.public_key), len(envelope.signature)) != (_PUBLIC_KEY_NBYTES, _SIGNATURE_NBYTES):
        raise CoreSignatureError(
            f"a key of {len(envelope.public_key):,} and a signature of {len(envelope.signature):,} bytes "
            f"are not Ed25519's {_PUBLIC_KEY_NBYTES} and {_SIGNATURE_NBYTES}"
        )
    try:
        key = Ed25519PublicKey.from_public_bytes(envelope.public_key)
        key.verify(envelope.signature, SIGNED_PREFIX + envelope.body)
    except (InvalidSignature, ValueError):
        raise CoreSignatureError("the signature does not fit the body: the core was changed after signing") from None


def _check_places(
    body: core_pb2.CoreBody, locations: core_pb2.LocationSet, header_end: int, view: memoryview
) -> dict[str, int]:
    """Offset by id. Everything stored must lie at the next aligned place behind what is before it, up to the file's end."""
    sizes = {resource.id: resource.stored.nbytes for resource in body.resources}
    sizes.update((tensor.id, tensor.nbytes) for tensor in body.tensors)
    offsets = _offsets(locations.locations, sizes)
    end = header_end
    for id_, offset in sorted(offsets.items(), key=lambda item: item[1]):
        expected = align_up(end)
        if offset != expected:
            relation = "overlaps what is before it" if offset < end else f"is not at byte {expected:,}"
            raise CoreError(f"resource {id_!r} at byte {offset:,} {relation}")
        if offset + sizes[id_] > len(view):
            raise CoreError(f"resource {id_!r} ends at byte {offset + sizes[id_]:,}, the file at {len(view):,}")
        if bytes(view[end:offset]).strip(b"\0"):
            raise CoreError(f"the padding before resource {id_!r}, bytes {end:,} to {offset:,}, is not zero")
        end = offset + sizes[id_]
    if end != len(view):
        raise CoreError(f"{len(view) - end:,} bytes follow the last resource, which ends at byte {end:,}")
    return offsets


def _offsets(locations: Sequence[core_pb2.Location], sizes: dict[str, int]) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for location in locations:
        if location.id not in sizes:
            raise CoreError(f"a location names {location.id[:200]!r}, which the core does not hold")
        if location.id in offsets:
            raise CoreError(f"resource {location.id!r} has two locations")
        offsets[location.id] = location.offset
    for id_ in sizes:
        if id_ not in offsets:
            raise CoreError(f"resource {id_!r} has no location")
    return offsets
