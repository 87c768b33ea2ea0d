"""`helios prepare`: a checkpoint in, a signed core out, under this machine's key or a publisher's."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from helios.cli.prepare import add_arguments, run
from helios.corefile.keys import create_key, public_bytes
from helios.corefile.reader import open_core
from helios.errors import SettingError
from tests.ignition.tiny_model import TinyModel, write_tiny


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return write_tiny(tmp_path / "Tiny-1M.Q4_0.gguf", TinyModel())


def prepare(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words))


def test_the_core_stands_in_this_directory_under_the_name_of_the_file(
    gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(str(gguf)) == 0
    assert capsys.readouterr().out == "Tiny-1M.Q4_0.core\n"
    with open_core(Path("Tiny-1M.Q4_0.core")) as core:
        assert core.namespace == "local"
        assert core.contract.served_id == "tiny-1m"


def test_options_and_a_publisher_key_reach_the_core(gguf: Path, tmp_path: Path) -> None:
    key = create_key(tmp_path / "key.pem")
    words = ["--context", "64", "--concurrency", "2", "--name", "tiny", "--key", "key.pem", "--namespace", "acme"]
    assert prepare(str(gguf), "-o", "out.core", *words) == 0
    with open_core(Path("out.core")) as core:
        contract = core.contract
        assert (core.namespace, core.public_key) == ("acme", public_bytes(key))
        assert (contract.served_id, contract.context_tokens, contract.concurrency) == ("tiny", 64, 2)


@pytest.mark.parametrize("words", [["--namespace", "acme"], ["--key", "key.pem"]])
def test_a_key_and_a_namespace_go_together(gguf: Path, words: list[str]) -> None:
    with pytest.raises(SettingError, match="--key and --namespace go together"):
        prepare(str(gguf), *words)
