"""`helios keygen` writes a key once."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.cli.main import main
from helios.corefile.keys import fingerprint, load_key, public_bytes


def test_a_key_is_written_and_its_fingerprint_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "publisher.pem"
    assert main(["keygen", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: {fingerprint(public_bytes(load_key(path)))}\n"


def test_an_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "publisher.pem"
    path.write_text("mine")
    assert main(["keygen", str(path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_a_missing_directory_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keygen", str(tmp_path / "none" / "key.pem")]) == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
