"""Small cores for the tests: the sample contract with one tensor, and the parts to build damaged ones from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.messages import serialize
from helios.contract.schema import core_pb2
from helios.corefile.chunks import CHUNK_NBYTES, ChunkHasher
from helios.corefile.keys import public_bytes
from helios.corefile.layout import HEADER, MAGIC, CoreFormat, align_up
from helios.corefile.reader import open_core
from helios.corefile.sealing import sealed_nbytes
from helios.corefile.writer import Container, CoreParts, TensorSource, write_core
from tests.contract.sample import sample_contract, sample_manifest

CORE_KEY = bytes(range(100, 132))
SALT = bytes(range(50, 82))
# Each way to store a core, by name.
CONTAINERS = {
    "payload": Container(),
    "index": Container(CoreFormat.INDEX),
    "sealed": Container(CoreFormat.SEALED_INDEX, core_key=CORE_KEY, salt=SALT),
    "split": Container(CoreFormat.PAYLOAD, is_split=True),
    "split index": Container(CoreFormat.INDEX, is_split=True),
    "split sealed": Container(CoreFormat.SEALED_INDEX, core_key=CORE_KEY, salt=SALT, is_split=True),
}
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
TOKENIZER = b'{"version": "1.0"}' * 40
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
TENSOR = bytes(range(250)) * 20


def tensor(id_: str, content: bytes, piece_nbytes: int = 1777) -> TensorSource:
    """A tensor that yields its content in uneven pieces."""
    pieces = [content[start : start + piece_nbytes] for start in range(0, len(content), piece_nbytes)]
    return TensorSource(id_, len(content), "f32.g8", lambda: iter(pieces))


def sample_parts(**changes: object) -> CoreParts:
    parts = CoreParts(
        contract=sample_contract(),
        manifest=sample_manifest(),
        tokenizer=TOKENIZER,
        chat_template=TEMPLATE,
        tensors=[tensor("embedding", TENSOR)],
        namespace="example.org",
        model_license="Apache-2.0",
        rebuild_manifest={"source": "sample.gguf", "recipe": "sample"},
    )
    return replace(parts, **changes)  # type: ignore[arg-type]


def sample_core(
    path: Path, key: Ed25519PrivateKey = KEY, container: Container | None = None, **changes: object
) -> Path:
    write_core(path, sample_parts(**changes), key, container=container)
    return path


def small_core(path: Path, container: Container | None = None) -> Path:
    """As small as a core gets, for tests that touch every byte. Its contract would not pass the rules: not their business."""
    parts = sample_parts(tensors=[tensor("embedding", TENSOR[:64])], chat_template="{{ messages }}", tokenizer=b"{}")
    del parts.contract.model.graphs[:]
    del parts.manifest.programs[:]
    write_core(path, parts, KEY, container=container)
    return path


Signed = core_pb2.CoreBody | core_pb2.ProtectedIndex
Stored = dict[str, bytes]


def split(data: bytes) -> tuple[Signed, core_pb2.LocationSet]:
    """What was signed, and the locations, of a valid core's bytes."""
    _, number, envelope_nbytes, locations_nbytes = HEADER.unpack_from(data)
    envelope_end = HEADER.size + envelope_nbytes
    envelope = core_pb2.SignedEnvelope.FromString(data[HEADER.size : envelope_end])
    locations = core_pb2.LocationSet.FromString(data[envelope_end : envelope_end + locations_nbytes])
    kind = core_pb2.CoreBody if number == CoreFormat.PAYLOAD else core_pb2.ProtectedIndex
    return kind.FromString(envelope.body), locations


def index_of(signed: Signed) -> core_pb2.CoreBody | core_pb2.ModelIndex:
    """The part that lists resources and tensors."""
    return signed if isinstance(signed, core_pb2.CoreBody) else signed.index


def stored_of(data: bytes) -> tuple[Signed, Stored]:
    """What was signed, and the stored bytes by id, of a valid core that is one file."""
    signed, locations = split(data)
    is_sealed = isinstance(signed, core_pb2.ProtectedIndex) and signed.HasField("sealing")
    sizes = {entry.id: entry.stored.nbytes for entry in index_of(signed).resources}
    for entry in index_of(signed).tensors:
        sizes[entry.id] = sealed_nbytes(entry.nbytes) if is_sealed else entry.nbytes
    return signed, {place.id: data[place.offset : place.offset + sizes[place.id]] for place in locations.locations}


def resign(path: Path, change: Callable[[Any, Stored], object], key: Ed25519PrivateKey = KEY) -> Path:
    """Rewrite the core after `change(what is signed, stored bytes by id)`, validly signed and placed, whatever was changed."""
    data = path.read_bytes()
    signed, stored = stored_of(data)
    number = CoreFormat(data[len(MAGIC)])
    change(signed, stored)
    path.write_bytes(assemble(signed, stored, key, number))
    return path


def envelope_of(signed: Signed, key: Ed25519PrivateKey, format_: CoreFormat) -> bytes:
    body = serialize(signed)
    signature = key.sign(format_.signed_prefix + body)
    return serialize(core_pb2.SignedEnvelope(body=body, public_key=public_bytes(key), signature=signature))


def assemble(
    signed: Signed, stored: Stored, key: Ed25519PrivateKey = KEY, format_: CoreFormat = CoreFormat.PAYLOAD
) -> bytes:
    """A core file around anything signed: by `key`, with every entry of `stored` placed in order."""
    envelope = envelope_of(signed, key, format_)
    start = align_up(HEADER.size + len(envelope) + 32 * len(stored))
    locations, content = core_pb2.LocationSet(), bytearray()
    for id_, part in stored.items():
        content += bytes(align_up(len(content)) - len(content))
        locations.locations.add(id=id_, offset=start + len(content))
        content += part
    header = _header(envelope, locations, format_)
    if align_up(len(header)) != start:
        raise ValueError("the guess of the header's size was wrong")
    return header + bytes(start - len(header)) + bytes(content)


def header_around(body: bytes, format_: CoreFormat, key: Ed25519PrivateKey | None) -> bytes:
    """A core file of nothing but any bytes at all, signed by `key`; by nobody when None."""
    signature = key.sign(format_.signed_prefix + body) if key else bytes(64)
    envelope = core_pb2.SignedEnvelope(body=body, public_key=public_bytes(key or KEY), signature=signature)
    return _header(serialize(envelope), core_pb2.LocationSet(), format_)


def relocate(path: Path, locations: core_pb2.LocationSet) -> Path:
    """Rewrite a core as its signed header alone, with other locations: these are anyone's to write."""
    data = path.read_bytes()
    _, number, envelope_nbytes, _ = HEADER.unpack_from(data)
    path.write_bytes(_header(data[HEADER.size : HEADER.size + envelope_nbytes], locations, CoreFormat(number)))
    return path


def _header(envelope: bytes, locations: core_pb2.LocationSet, format_: CoreFormat) -> bytes:
    placed = serialize(locations)
    return HEADER.pack(MAGIC, format_, len(envelope), len(placed)) + envelope + placed


def hashes(content: bytes) -> list[bytes]:
    hasher = ChunkHasher()
    hasher.update(content)
    return hasher.finish()


def store(signed: Signed, stored: Stored, id_: str, content: bytes, decoded_nbytes: int | None = None) -> None:
    """Put `content` in place of what is stored for a resource, with true hashes."""
    entry = next(resource for resource in index_of(signed).resources if resource.id == id_)
    entry.stored.nbytes, entry.chunk_nbytes = len(content), CHUNK_NBYTES
    entry.decoded_nbytes = entry.decoded_nbytes if decoded_nbytes is None else decoded_nbytes
    del entry.chunk_sha256[:]
    entry.chunk_sha256.extend(hashes(content))
    stored[id_] = content


def read_everything(path: Path) -> dict[str, bytes]:
    """Every resource and tensor by id, as the server would read them; nothing about the contract's rules."""
    with open_core(path) as core:
        found = {entry.id: core.resource(entry.kind) or b"" for entry in core.index.resources}
        for chunk in core.stream_tensors():
            found[chunk.id] = found.get(chunk.id, b"") + chunk.data
        return found
