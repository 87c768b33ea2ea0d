"""The floors' arithmetic, and the program that measures the machine."""

from __future__ import annotations

import shutil

import pytest

from scripts.benchmark.floors import Floors

# SmolLM2-135M: 30 layers, tied head of 49,152 x 576.
SMOLLM2 = {"weight_bytes": 96_576_768, "n_parameters": 134_515_008, "n_head_parameters": 49152 * 576}


def test_prefill_multiplies_the_layers_for_each_token_and_the_head_once() -> None:
    floors = Floors(**SMOLLM2, n_threads=2)
    assert floors.prefill_multiply_adds(1) == SMOLLM2["n_parameters"]
    assert floors.prefill_multiply_adds(512) == 106_203_456 * 512 + 28_311_552


def test_the_share_is_taken_round_by_round() -> None:
    floors = Floors(**SMOLLM2, n_threads=2)
    floors.read_bytes_per_s = [96_576_768 * rate for rate in (200.0, 100.0, 300.0)]
    floors.multiply_adds_per_s = [1e11] * 3
    report = floors.report({"decode_1": [100.0, 50.0, 150.0]})
    assert report["decode_1"] == 200
    assert report["decode_1_share"] == 0.5
    assert "prefill_512_share" not in report


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_the_machine_is_measured() -> None:
    floors = Floors(weight_bytes=1 << 20, n_parameters=1, n_head_parameters=0, n_threads=2)
    floors.compile()
    floors.take()
    assert floors.read_bytes_per_s[0] > 1e8
    assert floors.multiply_adds_per_s[0] > 1e8
