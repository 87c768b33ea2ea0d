"""score: log-probability, rank and best tokens of given tokens, against numpy and against what sampling reports."""

from __future__ import annotations

import numpy as np
import pytest

from helios.runtime.scoring import MAX_CANDIDATES
from tests.kernels.harness import REFUSED, Library, counts, on_every_target
from tests.kernels.records import LOGPROBS, SAMPLE, sampling_row
from tests.kernels.test_sample import draw


def score(
    library: Library,
    logits: np.ndarray,
    targets: list[int],
    *,
    n_candidates: int = MAX_CANDIDATES,
    n_rows: int | None = None,
    order: str = "serial",
) -> np.ndarray:
    """A score for each row; two rows of capacity are left over and have to stay as they are, unless `n_rows` lies."""
    n, vocabulary = logits.shape
    scores = np.full((n + 2) * SAMPLE.itemsize, 0x55, np.uint8).view(SAMPLE)
    library["score.1"].launch(
        order=order,
        counts=counts(n if n_rows is None else n_rows),
        targets=np.array([*targets, -1, -1], np.int32),
        logits=np.concatenate([logits, np.zeros((2, vocabulary), np.float32)]).astype(np.float32),
        scores=scores,
        rows_capacity=n + 2,
        vocabulary=vocabulary,
        n_candidates=n_candidates,
    )
    assert n_rows is not None or (scores[n:].view(np.uint8) == 0x55).all()
    return scores


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
def test_a_score_is_of_the_raw_distribution(library: Library, order: str) -> None:
    rng = np.random.default_rng(8)
    n, vocabulary = 21, 777
    logits = (rng.standard_normal((n, vocabulary)) * 4).astype(np.float32)
    logits[:, 100:110] = logits[:, 50:60]
    logits[5, 3], logits[6, 3] = -np.inf, np.nan
    targets = rng.integers(0, vocabulary, n).tolist()
    targets[:4] = [0, vocabulary - 1, 55, 105]
    scores = score(library, logits, targets, n_candidates=7, order=order)
    for i, target in enumerate(targets):
        raw = np.where(np.isnan(logits[i]), -np.inf, logits[i]).astype(np.float64)
        logprobs = raw - raw.max() - np.log(np.exp(raw - raw.max()).sum())
        best = np.lexsort((np.arange(vocabulary), -raw))
        assert scores[i]["token"] == target
        assert scores[i]["logprob"] == pytest.approx(logprobs[target], abs=1e-5)
        assert scores[i]["rank"] == best.tolist().index(target) + 1
        assert scores[i]["n_candidates"] == 7
        assert scores[i]["candidate_token"][:7].tolist() == best[:7].tolist()
        np.testing.assert_allclose(scores[i]["candidate_logprob"][:7], logprobs[best[:7]], atol=1e-5)
        assert (scores[i]["candidate_token"][7:] == 0).all()


@on_every_target
def test_a_prompt_token_has_the_bits_that_it_has_when_it_is_sampled(library: Library) -> None:
    """Design 7: a score does not depend on whether the token was given or drawn."""
    logits = (np.random.default_rng(2).standard_normal((9, 1001)) * 3).astype(np.float32)
    rows = [sampling_row(flags=LOGPROBS, n_candidates=MAX_CANDIDATES, temperature=1.0, seed=(i, 1)) for i in range(9)]
    samples = draw(library, logits, rows)
    scores = score(library, logits, samples["token"].tolist())
    assert scores[:9].tobytes() == samples.tobytes()


@on_every_target
@pytest.mark.parametrize("target", [-1, 40, 2**31 - 1, -(2**31)])
def test_a_row_without_a_target_has_no_score(library: Library, target: int) -> None:
    scores = score(library, np.zeros((2, 40), np.float32), [target, 3])
    assert (scores[0]["token"], scores[0]["rank"], scores[0]["n_candidates"]) == (-1, 0, 0)
    assert (scores[1]["token"], scores[1]["rank"], scores[1]["n_candidates"]) == (3, 4, MAX_CANDIDATES)


@on_every_target
def test_scores_of_impossible_tokens_are_finite(library: Library) -> None:
    logits = np.full((2, 9), -np.inf, np.float32)
    logits[1, 4] = 0
    scores = score(library, logits, [2, 7])
    assert scores["logprob"][:2].tolist() == [-9999, -9999]
    assert np.isfinite(scores["candidate_logprob"][:2]).all()
    assert scores["n_candidates"][:2].tolist() == [9, 9]


@on_every_target
@pytest.mark.parametrize(("n_rows", "n_scored"), [(-1, 0), (2**31 - 1, 4)])
def test_the_row_count_is_clamped(library: Library, n_rows: int, n_scored: int) -> None:
    scores = score(library, np.zeros((2, 8), np.float32), [1, 2], n_rows=n_rows)
    assert (scores["token"] != 0x55555555).sum() == n_scored


@on_every_target
def test_senseless_scalars_are_refused(library: Library) -> None:
    good = {"rows_capacity": 4, "vocabulary": 50, "n_candidates": 20}
    kernel = library["score.1"]
    assert REFUSED not in kernel.extents(**good).values()
    assert REFUSED not in kernel.extents(**good | {"n_candidates": 0}).values()
    for changed in (
        {"rows_capacity": 0},
        {"rows_capacity": -1},
        {"vocabulary": 0},
        {"vocabulary": 2**31 - 1},
        {"n_candidates": -1},
        {"n_candidates": MAX_CANDIDATES + 1},
    ):
        assert set(kernel.extents(**good | changed).values()) == {REFUSED}
