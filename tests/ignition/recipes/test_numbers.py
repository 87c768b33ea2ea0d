"""Captured programs on the real CPU kernels compute the model: log-probabilities against an independent numpy pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Q

from helios.ignition.prepared_core import PrepareOptions, prepared_core
from helios.scheduler.request import GenerationRequest, SamplingParameters
from tests.ignition.tiny_model import TinyModel, write_tiny
from tests.reference.llama_numpy import LlamaReference
from tests.runtime.local_run import LoadedModel

SCORED = SamplingParameters(temperature=0.0, candidates=20)
MIXED = {"attn_v.weight": Q.F16, "ffn_up.weight": Q.Q8_0}

# fp16 keys and values cost a few 1e-4, 8-bit activations of these random weights about 1e-2.
EXACT, QUANTISED = 0.001, 0.03
MODELS = {
    "f32": (TinyModel(), EXACT),
    "f16": (TinyModel(type=Q.F16), EXACT),
    "bf16": (TinyModel(type=Q.BF16), EXACT),
    "q8_0": (TinyModel(type=Q.Q8_0), QUANTISED),
    "q4_0": (TinyModel(type=Q.Q4_0), QUANTISED),
    "q4_1": (TinyModel(type=Q.Q4_1), QUANTISED),
    "mixed types": (TinyModel(type=Q.Q4_0, embedding_type=Q.Q8_0, types=MIXED), QUANTISED),
    "three heads share one": (TinyModel(n_heads=6, n_kv_heads=2), EXACT),
    "no grouped heads, half rotated": (TinyModel(n_kv_heads=4, n_rot=8), EXACT),
    "untied head, odd vocabulary": (TinyModel(tied=False, n_extra_tokens=4), EXACT),
    "feed-forward of no whole groups": (TinyModel(n_ff=100), EXACT),
    "biases everywhere": (
        TinyModel(biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")),
        EXACT,
    ),
    "stretched positions": (TinyModel(rope_freqs=True, metadata={"llama.rope.scaling.factor": 2.0}), EXACT),
    "qwen2": (TinyModel(architecture="qwen2", biases=("attn_q", "attn_k", "attn_v")), EXACT),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_independent_forward_pass_agrees(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path))
    model, tolerance = MODELS[name]
    gguf = write_tiny(tmp_path / "tiny.gguf", model)
    tokens = np.random.default_rng(1).integers(0, 256, 40).tolist()
    expected = LlamaReference(gguf).logprobs(tokens)
    with LoadedModel(prepared_core(gguf, options=PrepareOptions(concurrency=4)), 2, 200) as loaded:
        requests = [GenerationRequest(tuple(tokens[: n + 1]), 1, (), SCORED) for n in range(len(tokens))]
        outcomes = loaded.run(requests)
    differences = [
        abs(logprob - row[token_id])
        for outcome, row in zip(outcomes, expected, strict=True)
        for token_id, logprob in outcome.tokens[0].candidates
    ]
    assert len(differences) == 20 * len(tokens)
    assert np.mean(differences) < tolerance


def test_decoding_token_by_token_agrees_with_prefilling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pending token's way through DECODE programs, over several pages, against the whole text at once."""
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path))
    gguf = write_tiny(tmp_path / "tiny.gguf", TinyModel())
    with LoadedModel(prepared_core(gguf, options=PrepareOptions(concurrency=4)), 2, 200) as loaded:
        prompt = (7, 8, 9)
        generated = loaded.run([GenerationRequest(prompt, 60, (), SCORED)])[0].tokens
    text = [*prompt, *(token.token_id for token in generated)]
    expected = LlamaReference(gguf).logprobs(text[:-1])[len(prompt) - 1 :]
    differences = [
        abs(token.logprob - row[token.token_id])
        for token, row in zip(generated, expected, strict=True)
        if token.logprob is not None
    ]
    assert len(differences) == 60
    assert max(differences) < 0.01
