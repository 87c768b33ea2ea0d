"""scripts/gpu_check, whole, with a tiny model on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Q

from helios.device.device import Device
from scripts.gpu_checking import kernels
from scripts.gpu_checking.main import check
from tests.ignition.tiny_model import TinyModel, write_tiny


def test_the_emulator_passes_and_every_part_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkpoint = write_tiny(tmp_path / "tiny.gguf", TinyModel(type=Q.Q4_1))
    lines, wrong = check(checkpoint, "simt", Path("tests/kernels/test_elementwise.py"))
    assert wrong == []
    text = "\n".join(lines)
    assert "passed" in lines[0]
    for part in ("copy ", "launch: ", "linear.q4_1", "attention_split.bf16", "decode    2 lanes", "prefill ", "peer: "):
        assert part in text
    assert "answers alone, together and in chunks: the same" in text


def test_kernel_tests_that_did_not_run_are_wrong() -> None:
    _, failed = kernels.failures("simt", Path("tests/kernels/no_such_file.py"))
    assert failed


def test_a_floor_is_the_longer_of_the_two_times() -> None:
    found = kernels.Rates(100.0, 10.0, "a test's")
    assert found.floor_s(50, 1) == 0.5
    assert found.floor_s(50, 20) == 2.0


def test_a_copy_rate_counts_what_is_read_and_written() -> None:
    with Device.open("simt") as device:
        assert kernels.rates(device, kernels.TINY).bytes_per_s > 0
