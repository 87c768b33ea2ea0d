"""Where a model comes from: named, packaged, pulled, or prepared from a GGUF."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from helios.cli import model
from helios.corefile.ed25519 import IN_PROCESS, Ed25519
from helios.errors import MissingFileError
from helios.ignition import prepared_core as cache_of_cores
from helios.ignition import pull
from helios.ignition.signatures import Target
from helios.settings import Settings


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records what is prepared instead of preparing it."""
    calls: list[Any] = []

    def prepared_core(
        path: Path,
        progress: Any,
        *,
        options: cache_of_cores.PrepareOptions,
        target: Target,
        source_sha256: bytes,
        ed25519: Ed25519,
    ) -> Path:
        assert source_sha256 == hashlib.sha256(path.read_bytes()).digest()
        assert ed25519 is IN_PROCESS
        calls.append((path, options, target))
        progress(1, 2)
        return Path("made.core")

    monkeypatch.setattr(cache_of_cores, "prepared_core", prepared_core)
    return calls


def test_a_core_is_itself_and_a_gguf_is_prepared_whatever_their_names(tmp_path: Path, prepared: list[Any]) -> None:
    core, gguf = tmp_path / "a.gguf", tmp_path / "b.core"
    core.write_bytes(b"HELIOS\0\2")
    gguf.write_bytes(b"GGUF....")
    assert model.core_path(str(core), Settings()) == core
    assert prepared == []
    assert model.core_path(str(gguf), Settings()) == Path("made.core")
    assert prepared[0][0] == gguf


@pytest.mark.parametrize(("device", "target"), [("cpu", "host"), ("simt", "cuda")])
def test_a_gguf_is_prepared_for_the_device_that_it_is_served_on(
    tmp_path: Path, prepared: list[Any], device: str, target: str
) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    model.core_path(str(gguf), Settings(device=device))
    assert prepared[0][2].name == target


@pytest.mark.parametrize(
    ("settings", "context_tokens", "concurrency"),
    [
        (Settings(), None, 32),
        (Settings(context=512, max_active=4), None, 32),
        (Settings(context=16384, max_active=64), 16384, 64),
    ],
)
def test_only_settings_above_the_usual_make_another_core(
    tmp_path: Path, prepared: list[Any], settings: Settings, context_tokens: int | None, concurrency: int
) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    model.core_path(str(gguf), settings)
    options = prepared[0][1]
    assert (options.context_tokens, options.concurrency) == (context_tokens, concurrency)


def test_no_model_means_the_packaged_core_or_else_the_pulled_one(
    tmp_path: Path, prepared: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / "default.core"
    monkeypatch.setattr(model, "PACKAGED_CORE", packaged)
    (tmp_path / "pulled.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(pull, "pull_default_model", lambda report: tmp_path / "pulled.gguf")
    assert model.core_path(None, Settings()) == Path("made.core")
    assert prepared[0][0] == tmp_path / "pulled.gguf"
    assert model.core_path("smollm2-135m-instruct", Settings()) == Path("made.core")
    packaged.touch()
    assert model.core_path(None, Settings()) == packaged
    assert model.core_path(None, Settings(kv="f16")) == packaged
    assert model.core_path(None, Settings(kv="q8")) == Path("made.core"), "the packaged core keeps f16"
    assert prepared[-1][1].kv_format == "q8"
    assert model.core_path(None, Settings(device="simt")) == Path("made.core"), "the packaged core is the CPU device's"
    monkeypatch.setenv("HELIOS_ACTIVATIONS", "q8")
    assert model.core_path(None, Settings()) == packaged
    monkeypatch.setenv("HELIOS_ACTIVATIONS", "q12")
    assert model.core_path(None, Settings()) == Path("made.core"), "the packaged core's linear maps read q8"
    assert prepared[-1][2].row_form == "q12"


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"nothing\.core cannot be read: No such file"):
        model.core_path(str(tmp_path / "nothing.core"), Settings())
