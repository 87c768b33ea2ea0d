"""From `keygen` to `serve --accept`: a publisher's core on another machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helios.cli.main import main
from helios.corefile.keys import create_key, fingerprint, load_key, public_bytes
from helios.corefile.reader import open_core
from helios.engine import Bootstrap
from tests.ignition.tiny_model import TinyModel, write_tiny


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a publisher has made a key and signed a core, and another machine looks at it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "publisher"))
    gguf = write_tiny(tmp_path / "tiny.gguf", TinyModel())
    assert main(["keygen", "acme.pem"]) == 0
    assert main(["prepare", str(gguf), "--sign", "acme.pem", "--namespace", "acme.example", "--index"]) == 0
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    return tmp_path


def test_verify_says_whose_core_it_is(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["verify", "tiny.core"]) == 0
    key = fingerprint(public_bytes(load_key(directory / "acme.pem")))
    assert f"published by 'acme.example', key {key}" in capsys.readouterr().out


@pytest.mark.parametrize("accept", [None, "acme", "acme.exampl", "acme.example.org", "ACME.example", "local"])
def test_serve_refuses_a_namespace_that_was_not_accepted_exactly(
    directory: Path, capsys: pytest.CaptureFixture[str], accept: str | None
) -> None:
    """CORE-6: no prefix, no other spelling, one clear line."""
    capsys.readouterr()
    words = ["serve", "tiny.core", "--port", "0", *(["--accept", accept] if accept else [])]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "is published by 'acme.example'" in error
    assert "give --accept acme.example" in error
    assert error.count("\n") == 1
    assert not (directory / "home" / "accepted").exists()


def test_the_accepted_namespace_is_recorded_and_bound_to_its_key(directory: Path, tmp_path: Path) -> None:
    """CORE-6: trust and licence terms, and a core of the same namespace by another key is refused."""
    with open_core(Path("tiny.core")) as core:
        Bootstrap.load(core, "acme.example")
    (record,) = (directory / "home" / "accepted").iterdir()
    key = fingerprint(public_bytes(load_key(directory / "acme.pem")))
    assert json.loads(record.read_text()) == {
        "namespace": "acme.example",
        "key_fingerprint": key,
        "model_license": "",
    }
    create_key(tmp_path / "thief.pem")
    words = ["--sign", "thief.pem", "--namespace", "acme.example", "-o", "stolen.core"]
    assert main(["prepare", "tiny.gguf", *words]) == 0
    assert main(["verify", "stolen.core"]) == 0
    assert main(["serve", "stolen.core", "--port", "0", "--accept", "acme.example"]) == 1
