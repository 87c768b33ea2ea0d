"""The peer's side that runs here: a checkpoint in another format is made once, whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.benchmark import peer

QUANTISER = """import sys
_, source, name, output = sys.argv
open(output, "a").write(name + " of " + open(source).read())
sys.exit({status})
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peer, "ENVIRONMENT", tmp_path / "peer")
    monkeypatch.setattr(peer, "HERE", tmp_path)
    monkeypatch.setattr(peer, "peer_python", lambda: Path(sys.executable))
    (tmp_path / "peer_quantise.py").write_text(QUANTISER.format(status=0))
    path = tmp_path / "model.gguf"
    path.write_text("weights")
    return path


def test_a_format_is_made_once_for_each_content(source: Path) -> None:
    made = peer.in_format(source, "q4_0")
    assert made.read_text() == "q4_0 of weights"
    assert peer.in_format(source, "q4_0") == made
    assert made.read_text() == "q4_0 of weights"
    source.write_text("others")
    assert peer.in_format(source, "q4_0").read_text() == "q4_0 of others"


def test_a_failed_quantiser_leaves_nothing_that_counts_as_made(source: Path) -> None:
    (source.parent / "peer_quantise.py").write_text(QUANTISER.format(status=1))
    with pytest.raises(SystemExit, match="does not make q4_0"):
        peer.in_format(source, "q4_0")
    (source.parent / "peer_quantise.py").write_text(QUANTISER.format(status=0).replace('"a"', '"w"'))
    assert peer.in_format(source, "q4_0").read_text() == "q4_0 of weights"
