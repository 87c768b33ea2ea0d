"""Structured corruptions of cores: of the file, of what is stored, and of any field of what is signed.

A mutation draws what it does from hypothesis, so that a failure shrinks. Those of signed fields are signed again: the hostile
publisher is the one whose key fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from helios.corefile.frame import encode_frame
from helios.corefile.layout import HEADER, MAGIC, CoreFormat
from tests.corefile.sample_core import Signed, Stored, assemble, hashes, index_of, split, stored_of

_LARGE = [0, 1, 31, 4095, 4096, (1 << 22) - 1, 1 << 22, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
_INTEGERS = {
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_ENUM: (-1, 1000),
}
_FRAME_HEADS = [
    b"\x28\xb5\x2f\xfd\x00\x78",  # a window of 32 MiB
    b"\x28\xb5\x2f\xfd\x00\xff",  # of 3.75 TiB
    b"\x28\xb5\x2f\xfd\xe0" + (1 << 62).to_bytes(8, "little"),  # content of 4 EiB, in one segment
    b"\x28\xb5\x2f\xfd\x03\x00\x01\x02\x03\x04",  # a dictionary
    b"\x50\x2a\x4d\x18\xff\xff\xff\x7f",  # a skippable frame of 2 GiB
]


@dataclass(frozen=True)
class Sample:
    """A valid core's bytes, those of another validly signed one, and its format."""

    data: bytes
    other: bytes
    format: CoreFormat


@dataclass(frozen=True)
class Mutated:
    """The bytes of a core with one thing wrong, or now and then with nothing that matters. `is_other_content`: the hashes of
    other stored bytes were signed, so that where these decode, they are what the publisher says."""

    data: bytes
    is_other_content: bool


def mutate(draw: Callable[[st.SearchStrategy[Any]], Any], sample: Sample) -> Mutated:
    kinds = [_mutate_file, _mutate_locations, _mutate_stored, _mutate_declared, _mutate_signed, _mutate_frame]
    kind = draw(st.sampled_from(kinds))
    return Mutated(kind(draw, sample), kind in {_mutate_declared, _mutate_frame})


def _mutate_file(draw: Any, sample: Sample) -> bytes:
    """Unsigned: flipped, cut, repeated, or taken from the other core at the same place."""
    data = bytearray(sample.data)
    start = draw(st.integers(0, len(data) - 1))
    length = draw(st.integers(1, 4096))
    match draw(st.sampled_from(["flip", "cut", "repeat", "other", "end"])):
        case "flip":
            data[start] ^= draw(st.integers(1, 255))
        case "cut":
            del data[start : start + length]
        case "repeat":
            data[start:start] = data[start : start + length]
        case "other":
            data[start : start + length] = sample.other[start : start + length]
        case _:
            data += draw(st.binary(min_size=1, max_size=40))
    return bytes(data)


def _mutate_locations(draw: Any, sample: Sample) -> bytes:
    """Any field of the location set, which nobody signed; the file is otherwise as it was."""
    _, locations = split(sample.data)
    mutate_message(draw, locations)
    placed = locations.SerializeToString(deterministic=True)
    _, number, envelope_nbytes, _ = HEADER.unpack_from(sample.data)
    envelope_end = HEADER.size + envelope_nbytes
    header = HEADER.pack(MAGIC, number, envelope_nbytes, len(placed))
    return header + sample.data[HEADER.size : envelope_end] + placed + sample.data[envelope_end + len(placed) :]


def _mutate_stored(draw: Any, sample: Sample) -> bytes:
    """What is stored is not what is signed, in a file that is placed well: swapped, cut, longer, or the other core's."""
    signed, stored = stored_of(sample.data)
    _change_stored(draw, sample, stored)
    return assemble(signed, stored, format_=sample.format)


def _mutate_declared(draw: Any, sample: Sample) -> bytes:
    """The same, with true hashes and lengths signed where the index has them."""
    signed, stored = stored_of(sample.data)
    _change_stored(draw, sample, stored)
    for id_, content in stored.items():
        _declare(signed, id_, content)
    return assemble(signed, stored, format_=sample.format)


def _change_stored(draw: Any, sample: Sample, stored: Stored) -> None:
    _, theirs = stored_of(sample.other)
    first, second = draw(st.permutations(sorted(stored)))[:2]
    match draw(st.sampled_from(["swap", "theirs", "cut", "longer", "flip"])):
        case "swap":
            stored[first], stored[second] = stored[second], stored[first]
        case "theirs":
            stored[first] = theirs[first]
        case "cut":
            stored[first] = stored[first][: draw(st.integers(0, len(stored[first]) - 1))]
        case "longer":
            stored[first] += draw(st.binary(min_size=1, max_size=20))
        case _:
            place = draw(st.integers(0, len(stored[first]) - 1))
            stored[first] = stored[first][:place] + bytes([stored[first][place] ^ 1]) + stored[first][place + 1 :]


def _mutate_frame(draw: Any, sample: Sample) -> bytes:
    """A frame that claims, adds or leaves out something, under true hashes and a true signature."""
    signed, stored = stored_of(sample.data)
    entry = draw(st.sampled_from(list(index_of(signed).resources)))
    frame = stored[entry.id]
    match draw(st.sampled_from(["head", "extra", "trailing", "truncated", "decoded", "patched"])):
        case "head":
            head = draw(st.sampled_from(_FRAME_HEADS))
            frame = head + frame[len(head) :]
        case "extra":
            frame += encode_frame(draw(st.binary(max_size=50)))
        case "trailing":
            frame += draw(st.binary(min_size=1, max_size=30))
        case "truncated":
            frame = frame[: draw(st.integers(0, len(frame) - 1))]
        case "decoded":
            entry.decoded_nbytes = draw(st.one_of(st.sampled_from(_LARGE), st.integers(1, 2 * entry.decoded_nbytes)))
        case _:
            place = draw(st.integers(0, min(len(frame), 40) - 1))
            patch = draw(st.binary(min_size=1, max_size=6))
            frame = frame[:place] + patch + frame[place + len(patch) :]
    stored[entry.id] = frame
    _declare(signed, entry.id, frame)
    return assemble(signed, stored, format_=sample.format)


def _mutate_signed(draw: Any, sample: Sample) -> bytes:
    """Any field of any message inside what is signed."""
    signed, stored = stored_of(sample.data)
    for _ in range(draw(st.integers(1, 2))):
        mutate_message(draw, signed)
    return assemble(signed, stored, format_=sample.format)


def mutate_message(draw: Any, message: Message) -> None:
    """Walk down to some field and change, drop, add or repeat its value."""
    fields = [field for field, _ in message.ListFields()]
    if not fields:
        fields = list(message.DESCRIPTOR.fields)
    field = draw(st.sampled_from(fields))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        message.ClearField(field.name)
    elif field.is_repeated:
        _mutate_repeated(draw, message, field)
    elif field.message_type is None:
        setattr(message, field.name, draw(_values(field)))
    elif draw(st.integers(0, 9)) == 0:
        message.ClearField(field.name)
    else:
        mutate_message(draw, getattr(message, field.name))


def _mutate_repeated(draw: Any, message: Message, field: FieldDescriptor) -> None:
    entries = getattr(message, field.name)
    kind = draw(st.sampled_from(["drop", "double", "swap", "deeper", "deeper", "deeper"]))
    if not entries:
        entries.add() if field.message_type else entries.append(draw(_values(field)))
        return
    index = draw(st.integers(0, len(entries) - 1))
    if kind == "drop":
        del entries[index]
    elif kind == "double":
        entries.append(entries[index])
    elif kind == "swap":
        kept = list(entries)
        del entries[:]
        entries.extend([*kept[index:], *kept[:index]])
    elif field.message_type:
        mutate_message(draw, entries[index])
    else:
        entries[index] = draw(_values(field))


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        near = [number for number in _LARGE if low <= number <= high]
        return st.one_of(st.sampled_from(near), st.integers(low, high), st.integers(0, 20))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.one_of(st.binary(max_size=40), st.binary(min_size=32, max_size=32))
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.one_of(
            st.sampled_from(["tokenizer", "manifest", "embedding", "", " a", "x" * 300]), st.text(max_size=20)
        )
    return st.floats(width=32)


def _declare(signed: Signed, id_: str, content: bytes) -> None:
    """Sign true hashes of `content`, and its length where the index has one of its own."""
    index = index_of(signed)
    for resource in index.resources:
        if resource.id == id_:
            resource.stored.nbytes = len(content)
            resource.chunk_sha256[:] = hashes(content)
    for tensor in index.tensors:
        if tensor.id == id_:
            tensor.chunk_sha256[:] = hashes(content)
