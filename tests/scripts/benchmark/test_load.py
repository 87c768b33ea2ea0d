"""The load benchmark runs on a small core and compares the same content."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scripts.benchmark.load import main
from tests.corefile.sample_core import TEMPLATE, TENSOR, TOKENIZER, sample_core, sample_parts


def test_all_three_ways_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 3: verified load beside plain reading and plain decompression, in one run."""
    path = sample_core(tmp_path / "sample.core")
    monkeypatch.setattr(sys, "argv", ["bench-load", str(path), "--rounds", "1"])
    assert main() == 0
    out = capsys.readouterr().out
    n_bytes = len(TENSOR) + len(TOKENIZER) + len(TEMPLATE) + sample_parts().manifest.ByteSize()
    assert f"{n_bytes:,} bytes of content" in out
    assert len(re.findall(r"GB/s", out)) == 3
    assert len(re.findall(r"verified runs at \d+% of plain", out)) == 2
