"""Preparation: equal inputs give equal bytes, the cache finds a core again, and bad options are one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.prepared import PreparedContract
from helios.contract.schema import core_pb2, execution_pb2
from helios.corefile.reader import open_core
from helios.errors import CheckpointError, HeliosError, MissingFileError, SettingError
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions, prepared_core
from tests.ignition.kernel_header import host_target
from tests.ignition.tiny_model import TinyModel, write_tiny

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def make(gguf: Path, core: Path, options: PrepareOptions | None = None) -> Path:
    prepare(gguf, core, host_target(), options or PrepareOptions(concurrency=4), key=KEY)
    return core


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny-1m.Q8_0.gguf", TinyModel())


def test_equal_inputs_give_equal_bytes_whatever_the_path(tiny: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = elsewhere / "another-name.gguf"
    other.write_bytes(tiny.read_bytes())
    first, second = make(tiny, tmp_path / "a.core"), make(other, elsewhere / "b.core")
    assert first.read_bytes() == second.read_bytes()


def test_the_core_holds_a_contract_that_keeps_every_rule(tiny: Path, tmp_path: Path) -> None:
    with open_core(make(tiny, tmp_path / "a.core")) as core:
        manifest = execution_pb2.ExecutionManifest()
        manifest.ParseFromString(core.resource(core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST) or b"")
        contract = PreparedContract.from_core(core.contract, manifest)
        assert contract.vocabulary == TinyModel().vocabulary
        assert contract.served_id == "tiny-test-1m"
        assert contract.context_tokens == 512
        assert contract.frontend.eos_tokens == (257,)
        assert core.resource(core_pb2.RESOURCE_KIND_CHAT_TEMPLATE)
        for buffer in contract.buffers:
            if buffer.resource:
                assert len(core.tensor(buffer.resource)) == buffer.nbytes


def test_other_weights_have_another_cache_identity(tiny: Path, tmp_path: Path) -> None:
    """CON-1: a prefix cached under one model is never reused under another."""
    other = write_tiny(tmp_path / "other.gguf", TinyModel(seed=1))
    identities = set()
    for index, gguf in enumerate((tiny, other, tiny)):
        with open_core(make(gguf, tmp_path / f"{index}.core")) as core:
            identities.add(core.contract.cache_identity)
    assert len(identities) == 2


def test_a_core_is_prepared_once_and_found_again(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    reports: list[tuple[int, int]] = []

    def report(n_done: int, n_total: int) -> None:
        reports.append((n_done, n_total))

    path = prepared_core(tiny, report, target=host_target())
    assert reports[-1][0] == reports[-1][1] > 0
    reports.clear()
    assert prepared_core(tiny, report, target=host_target()) == path
    assert not reports
    assert list(path.parent.iterdir()) == [path]
    with open_core(path) as core:
        serving = core.contract
        assert (serving.served_id, list(serving.aliases)) == ("tiny-1m", ["tiny-test-1m"])
    assert prepared_core(tiny, options=PrepareOptions(context_tokens=64), target=host_target()) != path


def test_a_changed_checkpoint_is_prepared_again(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    path = prepared_core(tiny, target=host_target())
    write_tiny(tiny, TinyModel(seed=1))
    assert prepared_core(tiny, target=host_target()) != path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PrepareOptions(context_tokens=513), "a context of 513 tokens was asked for, the model has 16 to 512"),
        (PrepareOptions(context_tokens=0), "a context of 0 tokens"),
        (PrepareOptions(concurrency=0), "a concurrency of 0 was asked for, it must be 1 to 256"),
        (PrepareOptions(concurrency=257), "a concurrency of 257"),
    ],
)
def test_options_that_cannot_be_prepared_are_refused(
    tiny: Path, tmp_path: Path, options: PrepareOptions, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        make(tiny, tmp_path / "a.core", options)
    assert not (tmp_path / "a.core").exists()


def test_a_missing_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        make(tmp_path / "none.gguf", tmp_path / "a.core")


def test_a_vocabulary_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    model = TinyModel(shapes={"token_embd.weight": (200, 64)})
    with pytest.raises(CheckpointError, match=r"264 tokens, tensor 'token_embd.weight' has 200 rows"):
        make(write_tiny(tmp_path / "m.gguf", model), tmp_path / "a.core")


def test_any_truncation_is_one_clear_error(tiny: Path, tmp_path: Path) -> None:
    data = tiny.read_bytes()
    for size in range(0, len(data) - 1, len(data) // 40):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(data[:size])
        with pytest.raises(HeliosError):
            make(cut, tmp_path / "a.core")
    assert not (tmp_path / "a.core").exists()
