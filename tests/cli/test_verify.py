"""`helios verify`: one line, whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.cli.main import main
from tests.contract.sample import sample_contract
from tests.corefile.sample_core import sample_core


def test_a_good_core_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_core(tmp_path / "sample.core")
    assert main(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: ok, sample published by 'example.org', key SHA256:")
    assert out.count("\n") == 1


@pytest.mark.parametrize("position", [3, 40, -1, -5000])
def test_a_flipped_byte_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], position: int) -> None:
    """CORE-4, CORE-5: wherever it is."""
    path = sample_core(tmp_path / "sample.core")
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith(f"helios: {path}: ")


def test_a_broken_rule_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CON-4: a valid signature over a contract that contradicts itself."""
    contract = sample_contract()
    contract.concurrency = 99
    path = sample_core(tmp_path / "sample.core", contract=contract)
    assert main(["verify", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"helios: {path}: field 'concurrency' is 99")
    assert "rule capacities" in error
