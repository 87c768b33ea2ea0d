"""GGUF files that lie: each is refused with one sentence, or read as the sound file that it still is."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.errors import CheckpointError
from helios.ignition.checkpoints.gguf import open_gguf
from tests.ignition.checkpoints import raw_gguf as raw

HUGE = 2**63
SOUND_DATA = bytes(range(256)) * 2


def sound_file() -> bytes:
    """Every kind of field once, two tensors: what the corruption tests start from."""
    return raw.gguf(
        [
            raw.metadata("general.architecture", raw.STRING, raw.string("llama")),
            raw.metadata("general.alignment", raw.UINT32, raw.u32(32)),
            raw.metadata("a.bool", raw.BOOL, b"\1"),
            raw.metadata("a.float", raw.FLOAT64, bytes(8)),
            raw.metadata("texts", raw.ARRAY, raw.array(raw.STRING, 2, raw.string("a") + raw.string("中"))),
            raw.metadata("numbers", raw.ARRAY, raw.array(raw.INT32, 3, bytes(12))),
            raw.metadata("bools", raw.ARRAY, raw.array(raw.BOOL, 2, b"\0\1")),
        ],
        [raw.tensor("a", [8, 4], raw.F32, 0), raw.tensor("b", [32, 2], raw.Q8_0, 128)],
        data=SOUND_DATA,
    )


def read_all(path: Path) -> int:
    """Open and touch everything; the number of bytes that were there."""
    with open_gguf(path) as file:
        return len(file.metadata) + sum(int(tensor.raw.size) for tensor in file.tensors.values())


def refused_or_sound(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with contextlib.suppress(CheckpointError):
        read_all(path)


def test_the_sound_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sound.gguf"
    path.write_bytes(sound_file())
    assert read_all(path) == 7 + 128 + 68


def test_no_changed_byte_does_more_than_refuse_the_file(tmp_path: Path) -> None:
    content = sound_file()
    path = tmp_path / "changed.gguf"
    for position in range(len(content) - len(SOUND_DATA)):
        for value in {0x00, 0x7F, 0xFF, content[position] ^ 1, content[position] ^ 0x80}:
            refused_or_sound(path, content[:position] + bytes([value]) + content[position + 1 :])


def test_a_file_cut_anywhere_before_its_last_tensors_end_is_refused(tmp_path: Path) -> None:
    content = sound_file()
    path = tmp_path / "cut.gguf"
    end = len(content) - len(SOUND_DATA) + 128 + 68
    for size_bytes in range(end):
        path.write_bytes(content[:size_bytes])
        with pytest.raises(CheckpointError):
            read_all(path)
    path.write_bytes(content[:end])
    assert read_all(path) > 0


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4),
    tail=st.binary(max_size=40),
)
def test_no_overwritten_runs_do_more_than_refuse_the_file(
    tmp_path: Path, changes: list[tuple[int, bytes]], tail: bytes
) -> None:
    content = bytearray(sound_file())
    n_header = len(content) - len(SOUND_DATA)
    for place, run in changes:
        start = place % n_header
        content[start : start + len(run)] = run
    refused_or_sound(tmp_path / "overwritten.gguf", bytes(content) + tail)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=88))
def test_no_random_body_behind_a_valid_preamble_does_more(tmp_path: Path, body: bytes) -> None:
    refused_or_sound(tmp_path / "random.gguf", b"GGUF" + raw.u32(3) + raw.u64(1) + raw.u64(1) + body)


def text_value(text: bytes) -> bytes:
    return raw.gguf([raw.metadata("k", raw.STRING, raw.string(text))])


def value(value_type: int, data: bytes) -> bytes:
    return raw.gguf([raw.metadata("k", value_type, data)])


def one_tensor(dimensions: list[int], tensor_type: int = raw.F32, offset: int = 0, name: str = "w") -> bytes:
    return raw.gguf(tensors=[raw.tensor(name, dimensions, tensor_type, offset)], data=bytes(4096))


HOSTILE = {
    "another magic": (raw.gguf(magic=b"GGML"), "starts with b'GGML'"),
    "version 0": (raw.gguf(version=0), "its version is 0"),
    "version 1": (raw.gguf(version=1), "its version is 1"),
    "version 99": (raw.gguf(version=99), "its version is 99"),
    "byte-swapped": (raw.gguf(version=0x03000000), "big-endian"),
    "2^63 metadata entries": (raw.gguf(n_entries=HUGE), "the metadata count is 9,223,372,036,854,775,808"),
    "2^63 tensors": (raw.gguf(n_tensors=HUGE), "the tensor count is 9,223,372,036,854,775,808"),
    "one entry more than there is": (raw.gguf(n_entries=1, alignment=1), "the metadata count is 1, at most 0"),
    "one tensor more than there is": (
        raw.gguf(tensors=[raw.tensor("w", [8])], n_tensors=2, data=bytes(32)),
        "tensor 1",
    ),
    "a key of 2^63 bytes": (
        raw.gguf([raw.u64(HUGE) + b"key" + bytes(20)], n_entries=1),
        "metadata key 0 says it has 9,223,372,036,854,775,808 bytes",
    ),
    "an empty key": (raw.gguf([raw.metadata("", raw.UINT32, raw.u32(0))]), "metadata key 0 is empty"),
    "a key that is not UTF-8": (raw.gguf([raw.metadata(b"a\xff", raw.UINT8, b"\0" * 9)]), "is not UTF-8 at byte 1"),
    "a string of 2^63 bytes": (value(raw.STRING, raw.u64(HUGE)), "metadata 'k' says it has"),
    "a string past the end": (value(raw.STRING, raw.u64(5000)), "metadata 'k' needs 5,000 bytes"),
    "a string that is not UTF-8": (text_value(b"ab\x80"), "metadata 'k' is not UTF-8 at byte 2"),
    "an unknown value type": (value(13, bytes(8)), "metadata 'k' has the unknown value type 13"),
    "a bool of 2": (value(raw.BOOL, b"\2"), "metadata 'k' is a bool of value 2"),
    "an array of arrays": (value(raw.ARRAY, raw.array(raw.ARRAY, 1, bytes(12))), "array of arrays"),
    "an array of an unknown type": (value(raw.ARRAY, raw.array(200, 1, bytes(8))), "unknown value type 200"),
    "an array of 2^63 numbers": (
        value(raw.ARRAY, raw.array(raw.FLOAT32, HUGE, bytes(8))),
        "the length of metadata 'k'",
    ),
    "an array of 2^61 numbers, 2^63 bytes": (
        value(raw.ARRAY, raw.array(raw.UINT32, 2**61, bytes(8))),
        "the length of metadata 'k' is 2,305,843,009,213,693,952",
    ),
    "an array of 2^63 strings": (value(raw.ARRAY, raw.array(raw.STRING, HUGE, bytes(8))), "the length of metadata 'k'"),
    "an array of 2^63 bools": (value(raw.ARRAY, raw.array(raw.BOOL, HUGE, bytes(8))), "the length of metadata 'k'"),
    "a bool of 2 in an array": (
        value(raw.ARRAY, raw.array(raw.BOOL, 2, b"\1\2")),
        "array of bool with a value above 1",
    ),
    "a string of 2^63 bytes in an array": (
        value(raw.ARRAY, raw.array(raw.STRING, 1, raw.u64(HUGE))),
        "element 0 of metadata 'k' says it has",
    ),
    "an array that ends in a length": (
        raw.gguf([raw.metadata("k", raw.ARRAY, raw.array(raw.STRING, 2, raw.string("a" * 9) + b"\0"))], alignment=1),
        "ends inside the length of element 1",
    ),
    "a string in an array that is not UTF-8": (
        value(raw.ARRAY, raw.array(raw.STRING, 1, raw.string(b"\xff"))),
        "element 0 of metadata 'k' is not UTF-8",
    ),
    "a key twice": (
        raw.gguf([raw.metadata("k", raw.UINT32, raw.u32(1)), raw.metadata("k", raw.UINT32, raw.u32(2))]),
        "metadata key 'k' appears twice",
    ),
    **{
        f"alignment {alignment}": (
            raw.gguf([raw.metadata("general.alignment", raw.UINT32, raw.u32(alignment))]),
            f"general.alignment is {alignment:,}",
        )
        for alignment in (0, 1, 3, 48, 2**31)
    },
    "an alignment of another type": (
        raw.gguf([raw.metadata("general.alignment", raw.STRING, raw.string("32"))]),
        "'general.alignment' has value type 8",
    ),
    "0 dimensions": (one_tensor([]), "tensor 'w' has 0 dimensions"),
    "5 dimensions": (one_tensor([1] * 5), "tensor 'w' has 5 dimensions"),
    "2^32-1 dimensions": (
        raw.gguf(tensors=[raw.string("w") + raw.u32(2**32 - 1) + bytes(40)]),
        "tensor 'w' has 4,294,967,295 dimensions",
    ),
    "a dimension of 0": (one_tensor([8, 0, 2]), "dimension 1 of tensor 'w' is 0"),
    "a product that wraps to 0": (one_tensor([2**42, 2**22]), "tensor 'w' takes 73,786,976,294,838,206,464 bytes"),
    "a product that wraps to a small number": (one_tensor([2**63, 2, 1, 8]), "tensor 'w' takes"),
    "rows of half a block": (
        one_tensor([48, 2], raw.Q8_0),
        "rows of tensor 'w' have 48 elements, not whole Q8_0 blocks",
    ),
    "an unknown tensor type": (one_tensor([32], 4), "tensor 'w' has the unknown type 4"),
    "a tensor type of 2^32-1": (one_tensor([32], 2**32 - 1), "tensor 'w' has the unknown type 4,294,967,295"),
    "a misaligned offset": (one_tensor([8], offset=8), "tensor 'w' is at offset 8, not a multiple of the alignment 32"),
    "an offset past the end": (one_tensor([8], offset=4096), "tensor 'w' takes 32 bytes from offset 4,096"),
    "an offset of 2^64-32": (one_tensor([8], offset=2**64 - 32), "tensor 'w' takes 32 bytes from offset"),
    "an end past the end": (
        one_tensor([1025]),
        "tensor 'w' takes 4,100 bytes from offset 0, the data section has 4,096",
    ),
    "data that is not there": (raw.gguf(tensors=[raw.tensor("w", [8])]), "the data section has 0"),
    "a long tensor name": (
        one_tensor([8], name="n" * 65),
        "the name of tensor 0 says it has 65 bytes, the limit is 64",
    ),
    "an empty tensor name": (one_tensor([8], name=""), "the name of tensor 0 is empty"),
    "a tensor twice": (
        raw.gguf(tensors=[raw.tensor("w", [8]), raw.tensor("w", [8], offset=32)], data=bytes(64)),
        "tensor 'w' appears twice",
    ),
    "tensors that overlap": (
        raw.gguf(tensors=[raw.tensor("a", [8], offset=32), raw.tensor("b", [16])], data=bytes(64)),
        "tensors 'b' and 'a' overlap at offset 32",
    ),
    "tensors at one place": (
        raw.gguf(tensors=[raw.tensor("a", [8]), raw.tensor("b", [8])], data=bytes(64)),
        "tensors 'a' and 'b' overlap at offset 0",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_lie_is_named_and_costs_little_memory(name: str, tmp_path: Path) -> None:
    """Research item 49: refused by checks before allocation, within 64 MB."""
    content, message = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            open_gguf(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message in str(caught.value)
    assert "hostile.gguf" in str(caught.value)
    assert peak_bytes < 1 << 20
