"""Cuts, draws and best tokens over rows that fill the threads of a block, in every order: what the host kernels say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import load
from tests.kernels.records import sampling_row
from tests.kernels.test_sample import draw, draw_many
from tests.simt.conduct import CONDUCTS, Conduct, conducted

VOCABULARY, N_THREADS = 5000, 256
LOGPROBS = 2  # HELIOS_SAMPLING_LOGPROBS


def row_of(kind: str) -> np.ndarray:
    logits = (np.random.default_rng(8).standard_normal(VOCABULARY) * 3).astype(np.float32)
    if kind == "in 19 threads":  # 380 ids come no later than the best of a 20th thread: no list holds them
        logits[np.arange(VOCABULARY) % N_THREADS < 19] += 40
    if kind == "ties":
        logits = np.round(logits)
    if kind == "flat":
        logits = np.zeros(VOCABULARY, np.float32)
    return logits


KINDS = ("spread", "in 19 threads", "ties", "flat")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("top_k", "top_p"), [(1, 1), (20, 1), (128, 0.9), (129, 1), (3000, 0.8), (0, 0.05), (0, 0.97)])
def test_draws_are_those_of_the_host(kind: str, top_k: int, top_p: float) -> None:
    """At the longest list and past it, in a nucleus that a list holds and in one that it does not."""
    logits = row_of(kind)
    expected = draw_many(load("x86-64"), logits, 12, top_k=top_k, top_p=top_p)
    with conducted(CONDUCTS[-1]):
        np.testing.assert_array_equal(draw_many(load("simt"), logits, 12, top_k=top_k, top_p=top_p), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
def test_best_tokens_and_draws_hold_in_every_conduct(conduct: Conduct, kind: str) -> None:
    logits = row_of(kind)[None]
    rows = [sampling_row(temperature=1.0, top_k=40, top_p=0.9, seed=(3, 4), flags=LOGPROBS, n_candidates=20)]
    expected = draw(load("x86-64"), logits, rows)[0]
    with conducted(conduct):
        found = draw(load("simt"), logits, rows)[0]
    for name in ("token", "rank", "n_candidates", "candidate_token"):
        np.testing.assert_array_equal(found[name], expected[name])
    np.testing.assert_allclose(found["candidate_logprob"], expected["candidate_logprob"], atol=1e-5)
