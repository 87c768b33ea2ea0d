"""Cores written and read back, and every damaged one refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from helios.contract.schema import core_pb2
from helios.corefile.chunks import CHUNK_NBYTES, ChunkHasher
from helios.corefile.contents import read_contents
from helios.corefile.frame import encode_frame
from helios.corefile.keys import public_bytes
from helios.corefile.layout import ALIGNMENT, HEADER, MAGIC, MAX_DECODED_NBYTES, MAX_TENSOR_NBYTES
from helios.corefile.reader import Core, open_core
from helios.corefile.writer import write_core
from helios.errors import (
    ArtifactError,
    ChunkCountError,
    ChunkHashError,
    ContractError,
    CoreError,
    CoreSignatureError,
    DecodedLengthError,
    ExtraFrameError,
    FrameWindowError,
    InternalError,
    MissingFileError,
    TrailingBytesError,
    TruncatedFrameError,
)
from tests.corefile import sample_core as sample
from tests.corefile.sample_core import KEY, TEMPLATE, TENSOR, TOKENIZER, resign, sample_core, sample_parts, tensor

Body = core_pb2.CoreBody
Stored = dict[str, bytes]


def verify(path: Path) -> None:
    """Everything that can be checked without a device, apart from the contract's rules."""
    sample.read_everything(path)


def tokenizer_of(core: Core) -> bytes | None:
    return core.resource(core_pb2.RESOURCE_KIND_TOKENIZER)


# -- round trip --------------------------------------------------------------------------------------------------------


def test_a_core_reads_back_what_was_written(tmp_path: Path) -> None:
    """CORE-1, CORE-3, CORE-5: format 2, one frame a resource, tensors as they were."""
    with open_core(sample_core(tmp_path / "sample.core")) as core:
        assert (core.index.format, core.namespace) == (2, "example.org")
        assert core.public_key == public_bytes(KEY)
        assert tokenizer_of(core) == TOKENIZER
        assert core.resource(core_pb2.RESOURCE_KIND_CHAT_TEMPLATE) == TEMPLATE.encode()
        assert core.tensor("embedding") == TENSOR
        core.verify_tensors()
        contents = read_contents(core)
        assert contents.contract.served_id == "sample"
        assert contents.manifest == sample_parts().manifest


def test_everything_stored_is_page_aligned(tmp_path: Path) -> None:
    """CORE-1: locations are places in the file, made for mapping."""
    path = sample_core(tmp_path / "sample.core", tensors=[tensor("embedding", TENSOR), tensor("b", b"\0" * 9000)])
    _, locations = sample.split(path.read_bytes())
    assert len(locations.locations) == 5
    assert all(location.offset % ALIGNMENT == 0 for location in locations.locations)


def test_a_core_without_a_template_has_none(tmp_path: Path) -> None:
    """FE-8: the chat template is an asset of its own."""
    with open_core(sample_core(tmp_path / "sample.core", chat_template=None)) as core:
        assert core.resource(core_pb2.RESOURCE_KIND_CHAT_TEMPLATE) is None
        with pytest.raises(CoreError, match="no tensor 'other'"):
            core.tensor("other")


def test_the_same_parts_give_the_same_bytes(tmp_path: Path) -> None:
    """CORE-1: writing is deterministic, however the weights arrive."""
    first = sample_core(tmp_path / "a.core").read_bytes()
    second = sample_core(tmp_path / "b.core", tensors=[tensor("embedding", TENSOR, 4096)]).read_bytes()
    assert first == second


@pytest.mark.parametrize("nbytes", [1, CHUNK_NBYTES - 1, CHUNK_NBYTES, CHUNK_NBYTES + 1, 2 * CHUNK_NBYTES + 5])
def test_tensors_of_any_number_of_chunks_verify(tmp_path: Path, nbytes: int) -> None:
    """CORE-3: chunks of 4 MiB, the last one short."""
    content = (b"0123456789abcdef" * (nbytes // 16 + 1))[:nbytes]
    path = sample_core(tmp_path / "sample.core", tensors=[tensor("embedding", content, 1 << 20)])
    seen: list[tuple[int, int]] = []
    with open_core(path) as core:
        core.verify_tensors(lambda done, total: seen.append((done, total)))
        assert len(core.index.tensors[0].chunk_sha256) == -(-nbytes // CHUNK_NBYTES)
    assert seen[-1] == (nbytes, nbytes)


@hypothesis.given(st.lists(st.integers(1, 3 * CHUNK_NBYTES // 2), max_size=5))
@hypothesis.settings(max_examples=10, deadline=None)
def test_chunks_do_not_depend_on_the_pieces(sizes: list[int]) -> None:
    content = bytes(sum(sizes))
    whole, parts = ChunkHasher(), ChunkHasher()
    whole.update(content)
    for size in sizes:
        parts.update(bytes(size))
    assert whole.finish() == parts.finish()


def test_many_tensors_move_the_start_of_the_payload(tmp_path: Path) -> None:
    """CORE-1: the header's own size is in the offsets that it holds."""
    for n_tensors in (1, 30, 31, 32, 33, 200):
        tensors = [tensor(f"layer.{index}.weight", bytes([index]) * 40) for index in range(n_tensors)]
        verify(sample_core(tmp_path / "sample.core", tensors=tensors))


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_core_and_nothing_else(tmp_path: Path) -> None:
    """CORE-1: a core is replaced at once or not at all."""
    path = sample_core(tmp_path / "sample.core")
    before = path.read_bytes()
    short = sample.TensorSource("embedding", 10, "f32", lambda: iter([b"123"]))
    with pytest.raises(InternalError, match="is stored in 3 bytes, not those of 10"):
        write_core(path, sample_parts(tensors=[short]), KEY)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_place_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written: "):
        write_core(tmp_path / "file" / "sample.core", sample_parts(), KEY)
    (tmp_path / "directory").mkdir()
    with pytest.raises(ArtifactError, match="cannot be written: it is there and is no regular file"):
        write_core(tmp_path / "directory", sample_parts(), KEY)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["directory", "file"]


def test_the_writer_refuses_what_the_reader_would(tmp_path: Path) -> None:
    """CORE-5: ids bind stored bytes, so they are unique."""
    twice = [tensor("embedding", TENSOR), tensor("embedding", TENSOR)]
    with pytest.raises(CoreError, match="'embedding' is declared 2 times"):
        write_core(tmp_path / "sample.core", sample_parts(tensors=twice), KEY)
    assert list(tmp_path.iterdir()) == []


# -- every byte counts -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = sample.small_core(tmp_path_factory.mktemp("small") / "small.core")
    verify(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "damaged.core"


def test_a_flipped_bit_in_any_byte_is_detected(small: bytes, scratch: Path) -> None:
    """CORE-4, CORE-5: header, envelope, locations, padding, frames and tensors: no byte is free."""
    padding = [index for index in range(1, len(small) - 1) if not any(small[index - 1 : index + 2])]
    skipped = set(padding) - set(padding[::200])  # the inside of padding is all alike
    for index in range(len(small)):
        if index not in skipped:
            damaged = bytearray(small)
            damaged[index] ^= 1 << (index % 8)
            scratch.write_bytes(damaged)
            with pytest.raises(CoreError):
                verify(scratch)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=300, deadline=None)
def test_any_changed_bytes_are_detected(small: bytes, scratch: Path, data: st.DataObject) -> None:
    """CORE-4: runs of foreign bytes anywhere, most often in the header."""
    end = data.draw(st.sampled_from([HEADER.size, 1000, len(small)]))
    start = data.draw(st.integers(0, end - 1))
    patch = data.draw(st.binary(min_size=1, max_size=12))
    damaged = small[:start] + patch + small[start + len(patch) :]
    hypothesis.assume(damaged != small)
    scratch.write_bytes(damaged)
    with pytest.raises(CoreError):
        verify(scratch)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=200, deadline=None)
def test_any_truncation_is_detected(small: bytes, scratch: Path, data: st.DataObject) -> None:
    """CORE-4: a file that ends early, at any byte."""
    scratch.write_bytes(small[: data.draw(st.integers(0, len(small) - 1))])
    with pytest.raises(CoreError):
        verify(scratch)


@pytest.mark.parametrize("extra", [b"\0", b"x", bytes(4096)])
def test_bytes_at_the_end_are_detected(small: bytes, scratch: Path, extra: bytes) -> None:
    """CORE-1: the file ends with its last resource."""
    scratch.write_bytes(small + extra)
    with pytest.raises(CoreError, match="follow the last resource"):
        verify(scratch)


def test_a_damaged_tensor_is_one_clear_line(tmp_path: Path) -> None:
    """CORE-4: chunk hash mismatch."""
    path = sample_core(tmp_path / "sample.core")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with open_core(path) as core, pytest.raises(ChunkHashError) as caught:
        core.verify_tensors()
    assert str(caught.value) == f"{path}: tensor 'embedding' is damaged: chunk 0 of 1 has another hash"


# -- the header --------------------------------------------------------------------------------------------------------


def test_foreign_files_are_named_as_such(tmp_path: Path) -> None:
    """CORE-1: magic and container version come first."""
    path = tmp_path / "foreign.core"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(CoreError, match="no core file"):
        open_core(path)
    path.write_bytes(b"HELIOS\0\3" + bytes(100))
    with pytest.raises(CoreError, match="core format 3 is unknown"):
        open_core(path)
    path.write_bytes(b"HEL")
    with pytest.raises(CoreError, match="3 bytes are no core"):
        open_core(path)
    path.write_bytes(b"")
    with pytest.raises(CoreError, match="0 bytes are no core"):
        open_core(path)


def test_a_file_that_cannot_be_read_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="No such file"):
        open_core(tmp_path / "none.core")
    with pytest.raises(MissingFileError, match="directory"):
        open_core(tmp_path)


@pytest.mark.parametrize(("envelope_nbytes", "locations_nbytes"), [(1 << 31, 0), (17 << 20, 1)])
def test_lengths_are_bounded_before_they_are_used(tmp_path: Path, envelope_nbytes: int, locations_nbytes: int) -> None:
    """CORE-1: nothing is allocated for a claim."""
    path = tmp_path / "claims.core"
    path.write_bytes(HEADER.pack(MAGIC, 2, envelope_nbytes, locations_nbytes) + bytes(100))
    with pytest.raises(CoreError, match="is more than"):
        open_core(path)


def test_a_file_that_ends_inside_its_header_is_named_as_such(tmp_path: Path) -> None:
    """CORE-1: up to the last byte of the locations, and before any of it is decoded."""
    path = sample_core(tmp_path / "sample.core")
    data = path.read_bytes()
    _, _, envelope_nbytes, locations_nbytes = HEADER.unpack_from(data)
    end = HEADER.size + envelope_nbytes + locations_nbytes
    for nbytes in (HEADER.size, HEADER.size + envelope_nbytes, end - 1):
        path.write_bytes(data[:nbytes])
        with pytest.raises(CoreError, match=f"ends at byte {nbytes:,}, inside its header of {end:,}"):
            open_core(path)


def test_a_signature_by_another_key_is_refused(tmp_path: Path) -> None:
    """CORE-5: the key in the envelope must have made the signature."""
    path = sample_core(tmp_path / "sample.core")
    data = path.read_bytes()
    path.write_bytes(data.replace(public_bytes(KEY), public_bytes(sample.OTHER_KEY)))
    with pytest.raises(CoreSignatureError, match="does not fit"):
        open_core(path)


# -- signed, and still wrong -------------------------------------------------------------------------------------------


def put(message: object, **fields: object) -> None:
    for name, value in fields.items():
        setattr(message, name, value)


def rename_tensor(body: Body, stored: Stored) -> None:
    body.tensors[0].id = "tokenizer"


def swap_kinds(body: Body, stored: Stored) -> None:
    body.resources[0].kind, body.resources[1].kind = body.resources[1].kind, body.resources[0].kind


BODY_BREAKS: list[tuple[type[CoreError], str, Callable[[Body, Stored], object]]] = [
    (CoreError, "signed says version 3", lambda body, stored: put(body, format_version=3)),
    (CoreError, "signed says version 0", lambda body, stored: put(body, format_version=0)),
    (CoreError, "no serving contract", lambda body, stored: body.ClearField("deployment")),
    (CoreError, "publisher namespace ''", lambda body, stored: put(body, publisher_namespace="")),
    (CoreError, "publisher namespace 'a ' is not", lambda body, stored: put(body, publisher_namespace="a ")),
    (CoreError, "publisher namespace", lambda body, stored: put(body, publisher_namespace="x" * 201)),
    (CoreError, "'tokenizer' is declared 2 times", rename_tensor),
    (CoreError, "resource id ''", lambda body, stored: put(body.tensors[0], id="")),
    (CoreError, "resource id 'a\\nb' is not 1 to 200", lambda body, stored: put(body.tensors[0], id="a\nb")),
    (CoreError, "printable", lambda body, stored: put(body.resources[2], id="x" * 201)),
    (CoreError, "no execution manifest", lambda body, stored: body.resources.pop(0)),
    (CoreError, "no tokenizer", lambda body, stored: body.resources.pop(1)),
    (CoreError, "2 resources of the kind", lambda body, stored: put(body.resources[2], kind=2)),
    (ContractError, "resource 'chat_template', field 'kind'", lambda body, stored: put(body.resources[2], kind=0)),
    (ContractError, "unknown number 9", lambda body, stored: put(body.resources[2], kind=9)),
    (ContractError, "does not know", lambda body, stored: body.MergeFromString(b"\xf8\x7f\x01")),
    (CoreError, "decodes to 0 bytes", lambda body, stored: put(body.resources[1], decoded_nbytes=0)),
    (CoreError, "decodes to 67", lambda body, stored: put(body.resources[1], decoded_nbytes=MAX_DECODED_NBYTES + 1)),
    (CoreError, "is stored in 0 bytes", lambda body, stored: put(body.resources[1].stored, nbytes=0)),
    (CoreError, "is stored in", lambda body, stored: put(body.resources[1].stored, nbytes=1 << 40)),
    (CoreError, "chunks of 1,024", lambda body, stored: put(body.resources[1], chunk_nbytes=1024)),
    (CoreError, "chunks of 0", lambda body, stored: put(body.tensors[0], chunk_nbytes=0)),
    (ChunkCountError, "2 chunk hashes for 1", lambda body, stored: body.resources[1].chunk_sha256.append(bytes(32))),
    (ChunkCountError, "0 chunk hashes for 1", lambda body, stored: body.tensors[0].ClearField("chunk_sha256")),
    (ChunkCountError, "31 bytes", lambda body, stored: body.tensors[0].chunk_sha256.__setitem__(0, bytes(31))),
    (CoreError, "tensor 'embedding' has 0 bytes", lambda body, stored: put(body.tensors[0], nbytes=0)),
    (CoreError, "has 1,099,511,627,777", lambda body, stored: put(body.tensors[0], nbytes=MAX_TENSOR_NBYTES + 1)),
    (CoreError, "tensor 'embedding', layout ''", lambda body, stored: put(body.tensors[0], layout="")),
    (CoreError, "names 'embedding'", lambda body, stored: put(body.tensors[0], id="other")),
    (CoreError, "names 'other'", lambda body, stored: stored.update(other=b"abc")),
    (CoreError, "has no location", lambda body, stored: stored.pop("tokenizer")),
    (CoreError, "ends at byte", lambda body, stored: stored.update(embedding=b"short")),
    (CoreError, "is not at byte", lambda body, stored: stored.update(manifest=stored["manifest"] + bytes(4096))),
    (CoreError, "is not zero", lambda body, stored: stored.update(manifest=stored["manifest"] + b"\1")),
    (
        ChunkHashError,
        "resource 'tokenizer'",
        lambda body, stored: stored.update(tokenizer=bytes(len(stored["tokenizer"]))),
    ),
]


@pytest.mark.parametrize(("error", "says", "break_it"), BODY_BREAKS)
def test_a_validly_signed_core_is_still_hostile(
    tmp_path: Path, error: type[CoreError], says: str, break_it: Callable[[Body, Stored], object]
) -> None:
    """CORE-1, CORE-3, CORE-4, CORE-5: a signature says who, not that it is right."""
    path = resign(sample_core(tmp_path / "sample.core"), break_it)
    with pytest.raises(error) as caught:
        verify(path)
    assert says in caught.value.message


FRAMES: list[tuple[type[CoreError], Callable[[bytes], tuple[bytes, int]]]] = [
    (TruncatedFrameError, lambda frame: (frame[:-1], len(TOKENIZER))),
    (ExtraFrameError, lambda frame: (frame + encode_frame(b"more"), len(TOKENIZER))),
    (TrailingBytesError, lambda frame: (frame + b"\0", len(TOKENIZER))),
    (DecodedLengthError, lambda frame: (frame, len(TOKENIZER) + 1)),
    (FrameWindowError, lambda frame: (b"\x28\xb5\x2f\xfd\x00\x78" + frame[6:], len(TOKENIZER))),
]


@pytest.mark.parametrize(("error", "change"), FRAMES)
def test_each_bad_frame_has_its_own_error(
    tmp_path: Path, error: type[CoreError], change: Callable[[bytes], tuple[bytes, int]]
) -> None:
    """CORE-4: with true hashes and a true signature the frame itself is what is wrong."""
    frame, decoded_nbytes = change(encode_frame(TOKENIZER))
    path = resign(
        sample_core(tmp_path / "sample.core"),
        lambda body, stored: sample.store(body, stored, "tokenizer", frame, decoded_nbytes),
    )
    with open_core(path) as core, pytest.raises(error, match="resource 'tokenizer'"):
        tokenizer_of(core)


def test_swapped_kinds_do_not_pass_for_each_other(tmp_path: Path) -> None:
    """CORE-5: the body binds the kind to the bytes; a publisher who binds them wrongly has no manifest."""
    path = resign(sample_core(tmp_path / "sample.core"), swap_kinds)
    with open_core(path) as core, pytest.raises(CoreError, match="execution manifest"):
        read_contents(core)


def test_resources_of_two_valid_cores_cannot_be_swapped(tmp_path: Path) -> None:
    """CORE-5: stored bytes belong to one signature."""
    ours, theirs = sample_core(tmp_path / "a.core"), sample_core(tmp_path / "b.core", tokenizer=TOKENIZER[::-1])
    stolen: Stored = {}
    resign(theirs, lambda body, stored: stolen.update(stored))
    resign(ours, lambda body, stored: stored.update(tokenizer=stolen["tokenizer"][: len(stored["tokenizer"])]))
    with pytest.raises(CoreError):
        verify(ours)


@pytest.mark.parametrize(
    ("extra", "says"),
    [(b"\xf8\x7f\x01", "does not know"), (b"\x0a\x00", "names ''"), (b"\x00", "is not a valid LocationSet")],
)
def test_more_bytes_in_the_location_set_are_refused(tmp_path: Path, extra: bytes, says: str) -> None:
    """CORE-1: locations are unsigned, so every one of their bytes is checked."""
    path = sample_core(tmp_path / "sample.core")
    data = path.read_bytes()
    _, _, envelope_nbytes, locations_nbytes = HEADER.unpack_from(data)
    end = HEADER.size + envelope_nbytes + locations_nbytes
    header = HEADER.pack(MAGIC, 2, envelope_nbytes, locations_nbytes + len(extra))
    path.write_bytes(header + data[HEADER.size : end] + extra + data[end + len(extra) :])
    with pytest.raises(CoreError, match=says):
        open_core(path)


def test_a_longer_spelling_of_the_same_locations_is_refused(tmp_path: Path) -> None:
    """CORE-1: one form, so that no byte of an unsigned message is free."""
    path = sample_core(tmp_path / "sample.core")
    data = path.read_bytes()
    _, _, envelope_nbytes, locations_nbytes = HEADER.unpack_from(data)
    end = HEADER.size + envelope_nbytes + locations_nbytes
    locations = data[HEADER.size + envelope_nbytes : end]
    longer = locations[:1] + bytes([locations[1] | 0x80, 0]) + locations[2:]  # a length of one byte in two
    header = HEADER.pack(MAGIC, 2, envelope_nbytes, len(longer))
    path.write_bytes(header + data[HEADER.size : HEADER.size + envelope_nbytes] + longer + data[end + 1 :])
    with pytest.raises(CoreError, match="not in its canonical form"):
        open_core(path)


# -- contents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ([], "is filled from 'embedding', which is not stored"),
        ([tensor("embedding", TENSOR[1:])], "which has 4,999 bytes"),
        ([tensor("embedding", TENSOR), tensor("spare", b"x")], "tensor 'spare' fills no buffer"),
    ],
)
def test_weights_and_tensors_agree(tmp_path: Path, tensors: list[sample.TensorSource], says: str) -> None:
    """CORE-7: what is declared is what is stored."""
    with (
        open_core(sample_core(tmp_path / "sample.core", tensors=tensors)) as core,
        pytest.raises(ContractError, match=says),
    ):
        read_contents(core)


def test_a_second_close_closes_nobody_elses_file(tmp_path: Path) -> None:
    """RT-6: a descriptor's number is soon another file's."""
    core = open_core(sample_core(tmp_path / "sample.core"))
    core.close()
    standard = os.fstat(0)
    with core.path.open("rb") as other:
        core.close()
        assert other.read(len(MAGIC)) == MAGIC
    assert os.path.samestat(os.fstat(0), standard)


def test_a_file_that_shrinks_or_changes_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    """CORE-4: what is handed on is what was verified, whatever happens to the file in between."""
    path = sample_core(tmp_path / "sample.core")
    with open_core(path) as core:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        with pytest.raises(ChunkHashError):
            core.verify_tensors()
        with path.open("r+b") as file:
            file.truncate(HEADER.size)
        with pytest.raises(CoreError, match="too early"):
            core.verify_tensors()
