"""Small cores for the tests: the sample contract with one tensor, and the parts to build damaged ones from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.messages import serialize
from helios.contract.schema import core_pb2
from helios.corefile.chunks import CHUNK_NBYTES, ChunkHasher
from helios.corefile.keys import public_bytes
from helios.corefile.layout import HEADER, MAGIC, SIGNED_PREFIX, align_up
from helios.corefile.writer import CoreParts, TensorSource, write_core
from tests.contract.sample import sample_contract, sample_manifest

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


def sample_core(path: Path, key: Ed25519PrivateKey = KEY, **changes: object) -> Path:
    write_core(path, sample_parts(**changes), key)
    return path


def small_core(path: Path) -> Path:
    """As small as a core gets, for tests that touch every byte. Its contract would not pass the rules: not their business."""
    parts = sample_parts(tensors=[tensor("embedding", TENSOR[:64])], chat_template="{{ messages }}", tokenizer=b"{}")
    del parts.contract.model.graphs[:]
    del parts.manifest.programs[:]
    write_core(path, parts, KEY)
    return path


def split(data: bytes) -> tuple[core_pb2.CoreBody, core_pb2.LocationSet]:
    """Body and locations of a valid core's bytes."""
    _, envelope_nbytes, locations_nbytes = HEADER.unpack_from(data)
    envelope_end = HEADER.size + envelope_nbytes
    envelope = core_pb2.SignedEnvelope.FromString(data[HEADER.size : envelope_end])
    locations = core_pb2.LocationSet.FromString(data[envelope_end : envelope_end + locations_nbytes])
    return core_pb2.CoreBody.FromString(envelope.body), locations


def resign(
    path: Path, change: Callable[[core_pb2.CoreBody, dict[str, bytes]], object], key: Ed25519PrivateKey = KEY
) -> Path:
    """Rewrite the core after `change(body, stored bytes by id)`, validly signed and placed, whatever was changed."""
    data = path.read_bytes()
    body, locations = split(data)
    offsets = {location.id: location.offset for location in locations.locations}
    sizes = {resource.id: resource.stored.nbytes for resource in body.resources}
    sizes.update((entry.id, entry.nbytes) for entry in body.tensors)
    stored = {id_: data[offset : offset + sizes[id_]] for id_, offset in offsets.items()}
    change(body, stored)
    path.write_bytes(assemble(body, stored, key))
    return path


def assemble(body: core_pb2.CoreBody, stored: dict[str, bytes], key: Ed25519PrivateKey = KEY) -> bytes:
    """A core file around any body: signed by `key`, every entry of `stored` placed in order."""
    signed = serialize(body)
    envelope = serialize(
        core_pb2.SignedEnvelope(body=signed, public_key=public_bytes(key), signature=key.sign(SIGNED_PREFIX + signed))
    )
    start = align_up(HEADER.size + len(envelope) + 32 * len(stored))
    locations, content = core_pb2.LocationSet(), bytearray()
    for id_, part in stored.items():
        content += bytes(align_up(len(content)) - len(content))
        locations.locations.add(id=id_, offset=start + len(content))
        content += part
    placed = serialize(locations)
    header = HEADER.pack(MAGIC, len(envelope), len(placed)) + envelope + placed
    if align_up(len(header)) != start:
        raise ValueError("the guess of the header's size was wrong")
    return header + bytes(start - len(header)) + bytes(content)


def hashes(content: bytes) -> list[bytes]:
    hasher = ChunkHasher()
    hasher.update(content)
    return hasher.finish()


def store_frame(body: core_pb2.CoreBody, stored: dict[str, bytes], frame: bytes, decoded_nbytes: int) -> None:
    """Put `frame` in place of the tokenizer's, with true hashes."""
    entry = next(resource for resource in body.resources if resource.kind == core_pb2.RESOURCE_KIND_TOKENIZER)
    entry.stored.nbytes, entry.decoded_nbytes, entry.chunk_nbytes = len(frame), decoded_nbytes, CHUNK_NBYTES
    del entry.chunk_sha256[:]
    entry.chunk_sha256.extend(hashes(frame))
    stored[entry.id] = frame
