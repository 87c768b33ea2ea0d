"""Reads a core that is hostile until checked, whatever its format and wherever its bytes are.

It knows the container and not the meaning of the contract inside. An open `Core` has a valid signature over an index that
keeps every rule of `index.py`; its own file has no byte that is neither signed nor checked, and no stored byte leaves here
before the chunk that it is in was verified.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from helios.contract.messages import decode_message, serialize
from helios.contract.schema import contract_pb2, core_pb2
from helios.corefile.chunks import CHUNK_NBYTES, check_chunk
from helios.corefile.ed25519 import IN_PROCESS, Ed25519
from helios.corefile.frame import decode_frame
from helios.corefile.index import CoreIndex, decode_index
from helios.corefile.keys import load_core_key
from helios.corefile.layout import HEADER, MAGIC, MAX_ENVELOPE_NBYTES, CoreFormat
from helios.corefile.local_file import LocalFile, read_located_into
from helios.corefile.places import Place, check_own_places, max_locations_nbytes, resolve
from helios.corefile.sealing import CONTENT_NBYTES, ChunkSealer, check_key
from helios.errors import CoreError, CoreSignatureError, DecodedLengthError
from helios.owner import Owner

if TYPE_CHECKING:
    from helios.corefile.remote_file import RemoteFile

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)
_Message = TypeVar("_Message", bound=Message)
_MAX_READ_THREADS = 8
_N_CHUNKS_AHEAD = 2  # of what the threads are at: 40 MiB in all
_PUBLIC_KEY_NBYTES, _SIGNATURE_NBYTES = 32, 64


@dataclass(frozen=True, slots=True)
class TensorChunk:
    """Verified content of a tensor, to be put at `offset` of it. `data` is good until the next chunk is asked for."""

    id: str
    offset: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is stored for one id: where, under which hashes, and how it opens."""

    place: Place
    hashes: Sequence[bytes]
    what: str
    sealer: ChunkSealer | None

    @property
    def content_chunk_nbytes(self) -> int:
        """Of a whole chunk."""
        return CONTENT_NBYTES if self.sealer else CHUNK_NBYTES

    def chunk_nbytes(self, index: int) -> int:
        """As it is stored."""
        return min(CHUNK_NBYTES, self.place.nbytes - index * CHUNK_NBYTES)


@dataclass(frozen=True, slots=True)
class _StoredChunk:
    """One chunk of what is stored for the tensor `id`."""

    id: str
    stored: _Stored
    index: int

    @property
    def nbytes(self) -> int:
        return self.stored.chunk_nbytes(self.index)


class Core(Owner):
    """An open core. `index` is what was signed, `public_key` who signed it. Resources and tensors are read when asked for."""

    def __init__(
        self, path: Path, file: LocalFile, index: CoreIndex, public_key: bytes, places: Mapping[str, Place]
    ) -> None:
        self.path = path
        self.index = index
        self.public_key = public_key
        self._file = file
        self._places = places
        self._remote = {place.url: _remote_file(place.url) for place in places.values() if place.url}
        self._core_key: bytes | None = None

    @property
    def namespace(self) -> str:
        """The signed publisher namespace."""
        return self.index.namespace

    @property
    def contract(self) -> contract_pb2.ServingContract:
        """As it was signed, not validated: `contents.py` does that."""
        return self.index.contract

    @property
    def size_bytes(self) -> int:
        """The core's own file and all that is stored elsewhere."""
        return self._file.size_bytes + sum(place.nbytes for place in self._places.values() if not place.is_own)

    def place(self, id_: str) -> Place:
        """Where the stored bytes of a resource or tensor are."""
        return self._places[id_]

    def resource(self, kind: core_pb2.ResourceKind) -> bytes | None:
        """The decoded bytes of the resource of this kind; None when the core has none."""
        for resource in self.index.resources:
            if resource.kind == kind:
                what = f"{self.path}: resource {resource.id!r}"
                stored = self._stored(resource.id, resource.decoded_nbytes, resource.chunk_sha256, what)
                chunks = self._chunks(stored)
                if stored.sealer is None:
                    return decode_frame(chunks, resource.decoded_nbytes, what)
                return _whole(chunks, resource.decoded_nbytes, what)
        return None

    def tensor(self, id_: str) -> bytes:
        """A tensor's content. One of many chunks is better taken from `stream_tensors`."""
        for tensor in self.index.tensors:
            if tensor.id == id_:
                what = f"{self.path}: tensor {id_!r}"
                stored = self._stored(id_, tensor.nbytes, tensor.chunk_sha256, what)
                return _whole(self._chunks(stored), tensor.nbytes, what)
        raise CoreError(f"{self.path} has no tensor {id_!r}")

    def stream_tensors(self, ids: Container[str] | None = None) -> Iterator[TensorChunk]:
        """The content of all tensors, or of those named, in order; verified on all processors a few chunks ahead of who
        takes it."""
        n_threads = _n_read_threads()
        n_ahead = n_threads + _N_CHUNKS_AHEAD
        pending: deque[tuple[Future[list[TensorChunk]], bytearray]] = deque()
        free: list[bytearray] = []  # used again and again: fresh memory costs more time than reading into it
        with ThreadPoolExecutor(n_threads, "helios-read") as pool:
            try:
                for batch in self._batches(ids):
                    buffer = free.pop() if free else bytearray(CHUNK_NBYTES)
                    pending.append((pool.submit(self._read_batch, batch, buffer), buffer))
                    if len(pending) >= n_ahead:
                        future, buffer = pending.popleft()
                        yield from future.result()
                        free.append(buffer)
                while pending:
                    yield from pending.popleft()[0].result()
            finally:
                pool.shutdown(cancel_futures=True)

    def read_tensors(self, memory: Mapping[str, memoryview], progress: Progress | None = None) -> None:
        """Fill `memory` with the tensors that its keys name, on all processors and with no copy in between. It is verified once
        this has returned; after an error it may hold anything."""
        n_total, n_done = sum(map(len, memory.values())), 0
        with ThreadPoolExecutor(_n_read_threads(), "helios-read") as pool:
            try:
                for n_bytes in pool.map(lambda batch: self._place_batch(batch, memory), self._batches(memory)):
                    n_done += n_bytes
                    if progress:
                        progress(n_done, n_total)
            finally:
                pool.shutdown(cancel_futures=True)

    def verify_tensors(self, progress: Progress | None = None) -> None:
        """Read every tensor once. Raises ChunkHashError for the first chunk that is not the signed one."""
        n_total, n_done = sum(tensor.nbytes for tensor in self.index.tensors), 0
        for chunk in self.stream_tensors():
            n_done += len(chunk.data)
            if progress:
                progress(n_done, n_total)

    def _batches(self, ids: Container[str] | None) -> Iterator[list[_StoredChunk]]:
        """The stored chunks of the tensors in order, as many together as one chunk has room for."""
        batch: list[_StoredChunk] = []
        n_batch_bytes = 0
        for tensor in self.index.tensors:
            if ids is not None and tensor.id not in ids:
                continue
            stored = self._stored(tensor.id, tensor.nbytes, tensor.chunk_sha256, f"{self.path}: tensor {tensor.id!r}")
            for index in range(len(stored.hashes)):
                chunk = _StoredChunk(tensor.id, stored, index)
                if batch and n_batch_bytes + chunk.nbytes > CHUNK_NBYTES:
                    yield batch
                    batch, n_batch_bytes = [], 0
                batch.append(chunk)
                n_batch_bytes += chunk.nbytes
        if batch:
            yield batch

    def _read_batch(self, batch: Sequence[_StoredChunk], buffer: bytearray) -> list[TensorChunk]:
        read, room = [], memoryview(buffer)
        for chunk in batch:
            view, room = room[: chunk.nbytes], room[chunk.nbytes :]
            data = self._chunk(chunk.stored, chunk.index, view)
            read.append(TensorChunk(chunk.id, chunk.index * chunk.stored.content_chunk_nbytes, data))
        return read

    def _place_batch(self, batch: Sequence[_StoredChunk], memory: Mapping[str, memoryview]) -> int:
        """Put the content of each chunk where it belongs; returns how many bytes they were."""
        n_bytes = 0
        for chunk in batch:
            start = chunk.index * chunk.stored.content_chunk_nbytes
            room = memory[chunk.id][start : start + chunk.nbytes]
            if chunk.stored.sealer is None:
                self._chunk(chunk.stored, chunk.index, room)
            else:  # stored, it is longer than its content
                opened = self._chunk(chunk.stored, chunk.index, memoryview(bytearray(chunk.nbytes)))
                room = room[: len(opened)]
                room[:] = opened
            n_bytes += len(room)
        return n_bytes

    def _stored(self, id_: str, content_nbytes: int, hashes: Sequence[bytes], what: str) -> _Stored:
        sealing, sealer = self.index.sealing, None
        if sealing is not None:
            with naming(self.path):
                if self._core_key is None:
                    self._core_key = load_core_key()
                    check_key(self._core_key, sealing.salt, sealing.key_check)
            sealer = ChunkSealer(self._core_key, sealing.salt, id_, content_nbytes)
        return _Stored(self._places[id_], hashes, what, sealer)

    def _chunk(self, stored: _Stored, index: int, view: memoryview) -> bytes | memoryview:
        """The content of one chunk, in `view` or not: read, compared with its signed hash, opened."""
        self._read_into(stored.place, index * CHUNK_NBYTES, view)
        check_chunk(view, index, stored.hashes, stored.what)
        return view if stored.sealer is None else stored.sealer.open(index, view, stored.what)

    def _chunks(self, stored: _Stored) -> Iterator[bytes]:
        """The content of all chunks in order."""
        room = memoryview(bytearray(min(CHUNK_NBYTES, stored.place.nbytes)))
        for index in range(len(stored.hashes)):
            yield bytes(self._chunk(stored, index, room[: stored.chunk_nbytes(index)]))

    def _read_into(self, place: Place, start: int, view: memoryview) -> None:
        if place.url is not None:
            self._remote[place.url].read_into(place.offset + start, view)
        elif place.file is not None:
            whole_nbytes = place.nbytes if place.is_whole_file else None
            read_located_into(place.file, place.offset + start, view, whole_nbytes)
        else:
            self._file.read_into(place.offset + start, view)

    def close(self) -> None:
        """Release the file and every connection."""
        self._file.close()
        for remote in self._remote.values():
            remote.close()


def open_core(path: Path, ed25519: Ed25519 = IN_PROCESS) -> Core:
    """Check everything but the stored bytes. Raises MissingFileError, or CoreError that says what is wrong."""
    file = LocalFile(path)
    try:
        with naming(path):
            return _open(path, file, ed25519)
    except BaseException:
        file.close()
        raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file in front of every CoreError's sentence."""
    try:
        yield
    except CoreError as error:
        error.message = f"{path}: {error.message}"
        raise


def _open(path: Path, file: LocalFile, ed25519: Ed25519) -> Core:
    format_, envelope_nbytes, locations_nbytes = _read_header(file)
    envelope_end = HEADER.size + envelope_nbytes
    envelope = _canonical(core_pb2.SignedEnvelope, file.read(HEADER.size, envelope_nbytes), "the signed envelope")
    _check_signature(envelope, format_, ed25519)
    index = decode_index(format_, envelope.body)
    sizes = index.stored_nbytes()
    if locations_nbytes > max_locations_nbytes(sizes):
        raise CoreError(f"locations of {locations_nbytes:,} bytes are more than {max_locations_nbytes(sizes):,}")
    locations = _canonical(core_pb2.LocationSet, file.read(envelope_end, locations_nbytes), "the location set")
    places = resolve(locations, sizes, path.parent)
    check_own_places(places, envelope_end + locations_nbytes, file.size_bytes, file.read)
    return Core(path, file, index, envelope.public_key, places)


def _read_header(file: LocalFile) -> tuple[CoreFormat, int, int]:
    if file.size_bytes < HEADER.size:
        raise CoreError(f"{file.size_bytes} bytes are no core, its header alone has {HEADER.size}")
    magic, number, envelope_nbytes, locations_nbytes = HEADER.unpack(file.read(0, HEADER.size))
    if magic != MAGIC:
        raise CoreError("this is no core file: it does not start with the magic bytes")
    try:
        format_ = CoreFormat(number)
    except ValueError:
        known = ", ".join(str(entry.value) for entry in CoreFormat)
        raise CoreError(
            f"core format {number} is unknown, those served are {known}", hint="use a newer Helios"
        ) from None
    if envelope_nbytes > MAX_ENVELOPE_NBYTES:
        raise CoreError(f"an envelope of {envelope_nbytes:,} bytes is more than {MAX_ENVELOPE_NBYTES:,}")
    header_end = HEADER.size + envelope_nbytes + locations_nbytes
    if header_end > file.size_bytes:
        raise CoreError(f"the file ends at byte {file.size_bytes:,}, inside its header of {header_end:,}")
    return format_, envelope_nbytes, locations_nbytes


def _canonical(kind: type[_Message], data: bytes, what: str) -> _Message:
    """Decode an unsigned message of which every byte must count: only its canonical form is accepted."""
    message = decode_message(kind, data, what)
    n_bytes = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != n_bytes:
        raise CoreError(f"{what} has fields that this version of Helios does not know")
    if serialize(message) != data:
        raise CoreError(f"{what} is not in its canonical form")
    return message


def _check_signature(envelope: core_pb2.SignedEnvelope, format_: CoreFormat, ed25519: Ed25519) -> None:
    if (len(envelope.public_key), len(envelope.signature)) != (_PUBLIC_KEY_NBYTES, _SIGNATURE_NBYTES):
        raise CoreSignatureError(
            f"a key of {len(envelope.public_key):,} and a signature of {len(envelope.signature):,} bytes "
            f"are not Ed25519's {_PUBLIC_KEY_NBYTES} and {_SIGNATURE_NBYTES}"
        )
    if not ed25519.is_valid(envelope.public_key, envelope.signature, format_.signed_prefix + envelope.body):
        raise CoreSignatureError("the signature does not fit the body: the core was changed after signing")


def _remote_file(url: str) -> RemoteFile:
    from helios.corefile.remote_file import RemoteFile  # an HTTP client, which few cores need

    return RemoteFile(url)


def _n_read_threads() -> int:
    return min(_MAX_READ_THREADS, os.cpu_count() or 1)


def _whole(chunks: Iterator[bytes], nbytes: int, what: str) -> bytes:
    content = b"".join(chunks)
    if len(content) != nbytes:
        raise DecodedLengthError(f"{what} has {len(content):,} bytes, {nbytes:,} are signed")
    return content
