"""scripts/gpu_check, whole, with a tiny model on the emulator; its time, its report and its peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Q

from scripts.gpu_checking.kernels import Rates
from scripts.gpu_checking.main import Report, check
from scripts.gpu_checking.peer import peer_lines
from scripts.gpu_checking.time_limit import TimeLimit
from tests.ignition.tiny_model import TinyModel, write_tiny

TESTS = [Path("tests/kernels/test_elementwise.py")]


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_tiny(tmp_path / "tiny.gguf", TinyModel(type=Q.Q4_1))


def test_the_emulator_passes_and_every_part_has_its_line(checkpoint: Path) -> None:
    """Issue 7, item 5."""
    report = Report()
    check(report, checkpoint, "simt", TESTS, TimeLimit(lambda: 0.0))
    assert report.wrong == report.left_out == []
    assert sum(line.startswith("linear.q4_1.g16k8 ") for line in report.kernels) == 1
    short = "\n".join(report.lines)
    for part in ("copy ", "launch: ", "decode    2 lanes", "prefill ", "peer: ", " passed, 0 failed, 0 left out"):
        assert part in short
    assert "answers alone, together and in chunks: the same" in short
    never_launched = next(line for line in report.lines if line.startswith("kernels that no test has launched: "))
    assert "attention.bf16.1" in never_launched
    assert "silu_gate.1" not in never_launched
    assert str(report).endswith("all that was checked is right")


def test_what_finds_no_time_is_told(checkpoint: Path) -> None:
    """Issue 7, item 5: it fits in four minutes. The clock jumps an hour once the kernels' tests are through."""
    report = Report()
    is_through = "kernels that no test has launched"

    def clock() -> float:
        return 3600.0 if any(line.startswith(is_through) for line in report.lines) else 0.0

    check(report, checkpoint, "simt", TESTS, TimeLimit(clock))
    assert report.wrong == []
    assert {"the model", "linear.q4_1.g16k8 3 x 64 x 64", "commit 2 lanes"} < set(report.left_out)
    assert "left out, there was no time: " in str(report)


def test_each_part_has_the_time_that_those_before_it_left() -> None:
    now = 100.0
    limit = TimeLimit(lambda: now)
    limit.begin_part(20.0)
    now = 105.0
    assert limit.left_s == 15.0
    limit.begin_part(50.0)
    now = 149.0
    assert limit.allows("the last")
    now = 150.0
    assert not limit.allows("one more")
    assert (limit.left_s, limit.left_out) == (0.0, ["one more"])


def test_a_floor_is_the_longer_of_the_two_times() -> None:
    found = Rates(100.0, 10.0, "a test's")
    assert found.floor_s(50, 1) == 0.5
    assert found.floor_s(50, 20) == 2.0


LLAMA_CPP = """
__version__ = "1.2.3"
def llama_supports_gpu_offload(): return True
class Llama:
    def __init__(self, path, *, n_gpu_layers, **_): assert n_gpu_layers == -1
    def eval(self, tokens): pass
    def reset(self): pass
    def generate(self, tokens, temp):
        while True: yield 1
"""


def test_a_peer_is_asked_and_one_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama_cpp.py").write_text(LLAMA_CPP)
    (tmp_path / "vllm.py").write_text("raise RuntimeError('no kernel image')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    llama, vllm = peer_lines(tmp_path / "model.gguf", 60)
    assert llama.startswith("peer: llama-cpp-python 1.2.3: prefill ")
    assert vllm == "peer: vllm failed: RuntimeError: no kernel image"
