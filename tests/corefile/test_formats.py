"""The same parts in every container: written, read back through one interface, and kept apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.contract.schema import core_pb2
from helios.corefile.chunks import CHUNK_NBYTES
from helios.corefile.contents import read_contents
from helios.corefile.layout import MAGIC, CoreFormat
from helios.corefile.reader import open_core
from helios.corefile.sealing import CONTENT_NBYTES
from helios.corefile.writer import Container
from helios.errors import ArtifactError, ChunkHashError, ChunkSealError, CoreError, CoreKeyError, MissingFileError
from tests.corefile.sample_core import (
    CONTAINERS,
    CORE_KEY,
    SALT,
    TEMPLATE,
    TENSOR,
    TOKENIZER,
    Signed,
    Stored,
    index_of,
    read_everything,
    resign,
    sample_core,
    sample_parts,
    store,
    tensor,
)

SEALED = CONTAINERS["sealed"]


@pytest.fixture(autouse=True)
def _core_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CORE_KEY", CORE_KEY.hex())


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_reads_back_what_was_written(tmp_path: Path, container: Container) -> None:
    """CORE-1, CORE-2, RT-2: one interface, the same contract and content."""
    path = sample_core(tmp_path / "sample.core", container=container)
    with open_core(path) as core:
        assert (core.index.format, core.namespace) == (container.format, "example.org")
        assert core.resource(core_pb2.RESOURCE_KIND_TOKENIZER) == TOKENIZER
        assert core.resource(core_pb2.RESOURCE_KIND_CHAT_TEMPLATE) == TEMPLATE.encode()
        assert core.tensor("embedding") == TENSOR
        core.verify_tensors()
        contents = read_contents(core)
        assert (contents.contract.served_id, contents.manifest) == ("sample", sample_parts().manifest)
        assert core.index.model_license == "Apache-2.0"


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_the_same_parts_give_the_same_bytes_in_every_container(tmp_path: Path, container: Container) -> None:
    """CORE-1, CORE-2: writing is deterministic, however the weights arrive."""
    first = sample_core(tmp_path / "a" / "a.core", container=container)
    again = sample_core(tmp_path / "b" / "a.core", container=container, tensors=[tensor("embedding", TENSOR, 4096)])
    for left in first.parent.rglob("*"):
        right = again.parent / left.relative_to(first.parent)
        assert left.is_dir() == right.is_dir()
        assert left.is_dir() or left.read_bytes() == right.read_bytes()


@pytest.mark.parametrize("name", ["payload", "index", "sealed"])
def test_large_tensors_stream_in_order(tmp_path: Path, name: str) -> None:
    """CORE-3: chunks of 4 MiB, each put in its own place."""
    content = bytes(range(256)) * ((2 * CONTENT_NBYTES + 5000) // 256)
    tensors = [tensor("embedding", TENSOR), tensor("large", content, 1 << 20), tensor("last", b"x")]
    path = sample_core(tmp_path / "sample.core", container=CONTAINERS[name], tensors=tensors)
    found = {"embedding": bytearray(), "large": bytearray(), "last": bytearray()}
    with open_core(path) as core:
        for chunk in core.stream_tensors():
            assert chunk.offset == len(found[chunk.id])
            found[chunk.id] += chunk.data
        assert core.tensor("large") == content
    assert found == {"embedding": TENSOR, "large": content, "last": b"x"}


@pytest.mark.parametrize("name", ["payload", "index", "sealed"])
def test_tensors_are_read_into_memory_of_the_caller(tmp_path: Path, name: str) -> None:
    """CORE-3: all that was asked for, in its place, and nothing else."""
    content = bytes(range(256)) * ((2 * CONTENT_NBYTES + 5000) // 256)
    tensors = [tensor("embedding", TENSOR), tensor("large", content, 1 << 20), tensor("last", b"x")]
    memory = {"large": memoryview(bytearray(len(content))), "last": memoryview(bytearray(1))}
    steps: list[tuple[int, int]] = []
    with open_core(sample_core(tmp_path / "sample.core", container=CONTAINERS[name], tensors=tensors)) as core:
        core.read_tensors(memory, lambda done, total: steps.append((done, total)))
    assert memory == {"large": content, "last": b"x"}
    assert steps[-1] == (len(content) + 1, len(content) + 1)


def test_a_damaged_chunk_ends_reading_into_memory(tmp_path: Path) -> None:
    """CORE-3: it is refused although what lies before it was right."""
    content = bytes(2 * CHUNK_NBYTES) + b"end"
    path = sample_core(tmp_path / "sample.core", tensors=[tensor("large", content)])
    with open_core(path) as core:
        data = bytearray(path.read_bytes())
        data[core.place("large").offset + len(content) - 1] ^= 1
        path.write_bytes(data)
        with pytest.raises(ChunkHashError, match="chunk 2 of 3"):
            core.read_tensors({"large": memoryview(bytearray(len(content)))})


def test_a_stream_that_is_left_early_ends_its_threads(tmp_path: Path) -> None:
    """Style, habit 6."""
    with open_core(sample_core(tmp_path / "sample.core")) as core:
        stream = core.stream_tensors()
        next(stream)
        stream.close()


# -- headers that lie --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 4, 6])
@pytest.mark.parametrize("name", ["payload", "index", "sealed"])
def test_the_header_cannot_pass_one_format_for_another(tmp_path: Path, name: str, number: int) -> None:
    """CORE-2: what is signed is signed for its format."""
    container = CONTAINERS[name]
    path = sample_core(tmp_path / "sample.core", container=container)
    data = bytearray(path.read_bytes())
    data[len(MAGIC)] = number
    path.write_bytes(data)
    if number == container.format:
        read_everything(path)
    else:
        with pytest.raises(CoreError, match="does not fit the body"):
            open_core(path)


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5, 7, 1 << 31])
def test_the_signed_version_must_be_the_headers(tmp_path: Path, version: int) -> None:
    """CORE-2: 4 and 6 are read, and each is what it says."""

    def change(signed: core_pb2.ProtectedIndex, stored: Stored) -> None:
        signed.version = version

    path = resign(sample_core(tmp_path / "sample.core", container=CONTAINERS["index"]), change)
    with pytest.raises(CoreError, match=f"header says format 6, what is signed says version {version}"):
        open_core(path)


def test_an_index_without_a_contract_is_refused(tmp_path: Path) -> None:
    """RT-2: `ModelIndex.contract`."""
    path = sample_core(tmp_path / "sample.core", container=CONTAINERS["index"])
    resign(path, lambda signed, stored: signed.index.ClearField("contract"))
    with pytest.raises(CoreError, match="no serving contract"):
        open_core(path)


# -- encrypted ---------------------------------------------------------------------------------------------------------


def test_nothing_of_the_content_can_be_read_in_a_sealed_core(tmp_path: Path) -> None:
    """CORE-2: the contract is for everyone, the content is not."""
    data = sample_core(tmp_path / "sample.core", container=SEALED).read_bytes()
    assert b"sample" in data
    assert TENSOR[:64] not in data
    assert TOKENIZER[:16] not in data


def test_the_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CORE-2: settings.py knows both."""
    path = sample_core(tmp_path / "sample.core", container=SEALED)
    monkeypatch.delenv("HELIOS_CORE_KEY")
    with open_core(path) as core, pytest.raises(CoreKeyError, match="no key was given"):
        core.tensor("embedding")
    key_file = tmp_path / "core.key"
    monkeypatch.setenv("HELIOS_CORE_KEY_FILE", str(key_file))
    with open_core(path) as core, pytest.raises(MissingFileError, match="cannot be read"):
        core.tensor("embedding")
    for wrong in ("", "zz" * 32, "ab" * 31):
        key_file.write_text(wrong)
        with open_core(path) as core, pytest.raises(CoreKeyError, match="holds no core key"):
            core.verify_tensors()
    key_file.write_text("ab" * 32)
    with open_core(path) as core, pytest.raises(CoreKeyError, match="another key"):
        core.resource(core_pb2.RESOURCE_KIND_TOKENIZER)
    key_file.write_text(CORE_KEY.hex() + "\n")
    assert read_everything(path)["embedding"] == TENSOR


def test_each_sealed_core_has_a_salt_of_its_own(tmp_path: Path) -> None:
    """CORE-2: no key encrypts two contents."""
    paths = [tmp_path / "a.core", tmp_path / "b.core"]
    for path in paths:
        sample_core(path, container=Container(CoreFormat.SEALED_INDEX, core_key=CORE_KEY))
    assert paths[0].read_bytes() != paths[1].read_bytes()
    assert read_everything(paths[0]) == read_everything(paths[1])


@pytest.mark.parametrize("field", ["salt", "key_check"])
def test_a_sealing_of_another_size_is_refused(tmp_path: Path, field: str) -> None:
    """CORE-2."""
    path = sample_core(tmp_path / "sample.core", container=SEALED)
    resign(path, lambda signed, stored: setattr(signed.sealing, field, b"short"))
    with pytest.raises(CoreError, match="are not 32 and 16"):
        open_core(path)


def test_the_version_says_whether_content_is_sealed(tmp_path: Path) -> None:
    """CORE-2: 4 is encrypted and 6 is not."""
    sealed = sample_core(tmp_path / "sealed.core", container=SEALED)
    with pytest.raises(CoreError, match="says wrongly"):
        open_core(resign(sealed, lambda signed, stored: signed.ClearField("sealing")))
    plain = sample_core(tmp_path / "plain.core", container=CONTAINERS["index"])
    with pytest.raises(CoreError, match="says wrongly"):
        open_core(resign(plain, lambda signed, stored: signed.sealing.SetInParent()))


@pytest.fixture(scope="module")
def sealed_large(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sealed core of two tensors of three chunks each: two whole ones and a short one."""
    content = bytes(range(251)) * ((2 * CONTENT_NBYTES + 700) // 251)
    tensors = [tensor("a", content, 1 << 20), tensor("b", content[::-1], 1 << 20)]
    path = tmp_path_factory.mktemp("sealed") / "sample.core"
    return sample_core(path, container=SEALED, tensors=tensors).read_bytes()


def _rehash(signed: Signed, stored: Stored, id_: str, chunks: list[bytes]) -> None:
    """Store these chunks with true hashes: only the encryption can still tell."""
    entry = next(entry for entry in index_of(signed).tensors if entry.id == id_)
    hashes = {bytes(chunk): digest for chunk, digest in zip(_chunks(stored[id_]), entry.chunk_sha256, strict=True)}
    other = next(entry for entry in index_of(signed).tensors if entry.id != id_)
    hashes.update(zip(_chunks(stored[other.id]), other.chunk_sha256, strict=True))
    entry.chunk_sha256[:] = [hashes[chunk] for chunk in chunks]
    stored[id_] = b"".join(chunks)


def _chunks(stored: bytes) -> list[bytes]:
    return [stored[start : start + (4 << 20)] for start in range(0, len(stored), 4 << 20)]


@pytest.mark.parametrize("case", ["swapped", "repeated", "of another tensor", "whole tensors swapped"])
def test_sealed_chunks_open_in_their_own_place_alone(tmp_path: Path, sealed_large: bytes, case: str) -> None:
    """CORE-2: signed and hashed by a publisher who lacks the key, and still caught: order, repetition, origin."""

    def change(signed: Signed, stored: Stored) -> None:
        a, b = _chunks(stored["a"]), _chunks(stored["b"])
        order = {
            "swapped": [a[1], a[0], a[2]],
            "repeated": [a[0], a[0], a[2]],
            "of another tensor": [a[0], b[1], a[2]],
            "whole tensors swapped": b,
        }
        _rehash(signed, stored, "a", order[case])

    path = tmp_path / "sample.core"
    path.write_bytes(sealed_large)
    assert len(read_everything(path)) == 5
    resign(path, change)
    with open_core(path) as core, pytest.raises(ChunkSealError, match="encrypted in its place"):
        core.verify_tensors()


@pytest.mark.parametrize("n_chunks_left", [1, 2])
def test_a_sealed_tensor_without_its_last_chunks_is_caught(
    tmp_path: Path, sealed_large: bytes, n_chunks_left: int
) -> None:
    """CORE-2: the associated data binds the number of chunks and the length; every hash and length signed is true."""

    def change(signed: Signed, stored: Stored) -> None:
        entry = index_of(signed).tensors[0]
        entry.nbytes = n_chunks_left * CONTENT_NBYTES
        stored["a"] = stored["a"][: n_chunks_left * CHUNK_NBYTES]
        entry.chunk_sha256[:] = list(entry.chunk_sha256)[:n_chunks_left]

    path = tmp_path / "sample.core"
    path.write_bytes(sealed_large)
    resign(path, change)
    with open_core(path) as core, pytest.raises(ChunkSealError):
        core.verify_tensors()


def test_a_sealed_resource_of_another_length_is_refused(tmp_path: Path) -> None:
    """CORE-5: the signed length is the encrypted one's."""
    path = sample_core(tmp_path / "sample.core", container=SEALED)
    resign(path, lambda signed, stored: store(signed, stored, "tokenizer", stored["tokenizer"] + b"x"))
    with pytest.raises(CoreError, match="is encrypted in"):
        open_core(path)


# -- split -------------------------------------------------------------------------------------------------------------


def test_a_split_core_is_replaced_without_touching_the_old_ones_files(tmp_path: Path) -> None:
    """CORE-1: whoever has the old core open reads on."""
    path = sample_core(tmp_path / "sample.core", container=CONTAINERS["split"])
    with open_core(path) as old:
        sample_core(path, container=CONTAINERS["split"], tensors=[tensor("embedding", TENSOR[::-1])])
        assert old.tensor("embedding") == TENSOR
    assert read_everything(path)["embedding"] == TENSOR[::-1]


def test_an_id_that_is_no_file_name_cannot_be_split(tmp_path: Path) -> None:
    """CORE-1: a name that the reader would refuse is not written."""
    with pytest.raises(CoreError, match="cannot be the name of a file"):
        sample_core(tmp_path / "a.core", container=CONTAINERS["split"], tensors=[tensor("../up", TENSOR)])
    assert list(tmp_path.iterdir()) == []


def test_a_split_core_says_what_it_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written: "):
        sample_core(tmp_path / "file" / "a.core", container=CONTAINERS["split"])


def test_a_salt_and_key_that_are_given_are_used(tmp_path: Path) -> None:
    """CORE-7: fixtures can be made again byte for byte."""
    with open_core(sample_core(tmp_path / "a.core", container=SEALED)) as core:
        assert core.index.sealing is not None
        assert core.index.sealing.salt == SALT
