"""The numpy witness is itself held against a peer, so that what is held against it stands on something."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.reference.llama_numpy import LlamaReference

REFERENCE = Path(__file__).with_name("smollm2-llamacpp.json")


@pytest.fixture(scope="module")
def witness(default_gguf: Path) -> LlamaReference:
    return LlamaReference(default_gguf)


@pytest.mark.parametrize("index", [1, 2])
def test_llama_cpp_agrees_with_the_witness(witness: LlamaReference, index: int) -> None:
    """The peer quantises activations to 8 bits and this pass does not: that is the difference left."""
    case = json.loads(REFERENCE.read_text())["cases"][index]
    n_prompt, steps = len(case["prompt_ids"]), case["steps"]
    logprobs = witness.logprobs(case["prompt_ids"] + [step["id"] for step in steps])[n_prompt - 1 : -1]
    agreement = np.mean([row.argmax() == step["top"][0][0] for row, step in zip(logprobs, steps, strict=True)])
    differences = [
        abs(row[token_id] - logprob)
        for row, step in zip(logprobs, steps, strict=True)
        for token_id, logprob in step["top"]
    ]
    assert agreement >= 0.97
    assert np.mean(differences) <= 0.10
