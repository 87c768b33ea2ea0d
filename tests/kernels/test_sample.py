"""sample: the choice of a token, step by step against numpy, and its statistics at fixed seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helios.packing.values import MAX_BIAS
from helios.runtime.scoring import MAX_CANDIDATES
from tests.kernels.harness import Library, counts, on_every_host_target, on_every_target
from tests.kernels.records import (
    BIAS,
    BIAS_FLAG,
    LOGPROBS,
    PENALTIES,
    SAMPLE,
    SAMPLING,
    sampling_row,
)

IN_PROMPT = 1 << 31


def draw(
    library: Library,
    logits: np.ndarray,
    rows: list[np.void],
    *,
    positions: list[int] | None = None,
    masks: dict[int, np.ndarray] | None = None,
    histogram: dict[int, dict[int, int]] | None = None,
    bias: dict[int, list[tuple[int, float]]] | None = None,
    **how: Any,
) -> np.ndarray:
    """One token for each row of logits; lane i has slot n-1-i and row i+1. Checks that only a bias touches the logits."""
    n, vocabulary = logits.shape
    slots = list(range(n))[::-1]
    sampling = np.zeros(n, SAMPLING)
    bias_rows = np.zeros((n, MAX_BIAS), BIAS)
    bias_rows["id"] = -1
    words = np.zeros((n, vocabulary), np.uint32)
    mask = np.zeros((n + 2, -(-vocabulary // 32)), np.uint32)
    lane_masked = np.zeros(n + 2, np.int32)
    for i, row in enumerate(rows):
        sampling[slots[i]] = row
        for j, entry in enumerate((bias or {}).get(i, [])):
            bias_rows[slots[i], j] = entry
        for token, word in (histogram or {}).get(i, {}).items():
            words[slots[i], token] = word
        if masks and i in masks:
            bits = np.zeros(mask.shape[1] * 32, np.uint8)
            bits[:vocabulary] = masks[i]
            mask[i], lane_masked[i] = np.packbits(bits, bitorder="little").view(np.uint32), 1
    samples = np.full((n + 2) * SAMPLE.itemsize, 0x55, np.uint8).view(SAMPLE)
    capacity = n + 2
    padded = np.concatenate([logits, np.zeros((2, vocabulary), np.float32)]).astype(np.float32)
    before = padded.copy()
    library["sample.1"].launch(
        counts=counts(capacity, capacity, n),
        sample_row=np.array([*range(1, n + 1), -1, -1], np.int32),
        sample_lane=np.array([*range(n), -1, -1], np.int32),
        row_position=np.array([-5, *(positions or [0] * n), -5], np.int32),
        row_slot=np.array([-5, *slots, -5], np.int32),
        lane_masked=lane_masked,
        mask=mask,
        sampling=sampling,
        bias=bias_rows,
        histogram=words,
        logits=padded,
        samples=samples,
        lanes_capacity=capacity,
        rows_capacity=capacity,
        n_slots=n,
        vocabulary=vocabulary,
        **how,
    )
    untouched = np.array(
        [not (bias or {}).get(i) or bool(rows[i]["flags"] & LOGPROBS) for i in range(n)] + [True, True]
    )
    np.testing.assert_array_equal(padded[untouched], before[untouched])
    assert (samples[n:].view(np.uint8) == 0x55).all()
    return samples[:n]


def tokens(*args: Any, **kwargs: Any) -> list[int]:
    return draw(*args, **kwargs)["token"].tolist()


def draw_many(library: Library, logits: np.ndarray, n: int, **fields: Any) -> np.ndarray:
    """n tokens from the same logits with seeds 0..n-1."""
    rows = [sampling_row(**({"temperature": 1.0} | fields), seed=(i, 7)) for i in range(n)]
    return draw(library, np.tile(logits.astype(np.float32), (n, 1)), rows)["token"]


@on_every_target
@pytest.mark.parametrize("vocabulary", [1, 5, 8, 100, 4099])
def test_greedy_takes_the_largest_logit_and_the_lowest_id_on_a_tie(library: Library, vocabulary: int) -> None:
    rng = np.random.default_rng(1)
    logits = rng.integers(-3, 4, (40, vocabulary)).astype(np.float32)
    logits[1] = -np.inf
    logits[2, :] = 0
    logits[3, : vocabulary // 2] = -0.0
    logits[4] = -1e38
    expected = logits.argmax(axis=1).tolist()
    for temperature in (0.0, 1e-6, -1.0, np.nan):
        assert tokens(library, logits, [sampling_row(temperature=temperature)] * 40) == expected
    assert tokens(library, logits, [sampling_row()] * 40, order="shuffled") == expected


@on_every_target
def test_values_that_are_not_numbers(library: Library) -> None:
    nan, inf = np.nan, np.inf
    logits = np.array(
        [[nan, 1, nan, 2, -inf], [nan] * 5, [-inf] * 5, [1, inf, inf, 3, nan], [-inf, -inf, nan, -3e38, -inf]],
        np.float32,
    )
    for temperature in (0.0, 1.0, 1e-5, 1e30, np.inf):
        for extra in (
            {},
            {"top_k": 2},
            {"top_p": 0.5},
            {"top_p": 0.0},
            {"min_p": 0.5},
            {"top_p": np.nan},
            {"min_p": np.nan},
        ):
            chosen = tokens(library, logits, [sampling_row(temperature=temperature, **extra)] * 5)
            assert chosen[0] in (1, 3)
            assert chosen[1:3] == [0, 0]
            assert chosen[3] in ((1, 2) if temperature < 1e30 else (0, 1, 2, 3))
            assert chosen[4] == 3


@on_every_target
def test_only_allowed_tokens_are_chosen(library: Library) -> None:
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((60, 70)).astype(np.float32) * 3
    masks = {i: rng.random(70) < 0.1 for i in range(0, 60, 2)}
    masks[0][:] = False
    masks[2][:] = False
    masks[2][69] = True
    for temperature in (0.0, 1.0, 100.0):
        chosen = tokens(
            library, logits, [sampling_row(temperature=temperature, seed=(i, 1)) for i in range(60)], masks=masks
        )
        assert chosen[0] == 0
        assert chosen[2] == 69
        for i in range(4, 60, 2):
            assert masks[i][chosen[i]]
    greedy = tokens(library, logits, [sampling_row()] * 60, masks=masks)
    for i in range(4, 60):
        allowed = masks.get(i, np.ones(70, bool))
        assert greedy[i] == np.where(allowed, logits[i], -np.inf).argmax()
    nothing_left = np.full((1, 70), -np.inf, np.float32)
    only = np.zeros(70, bool)
    only[[41, 60]] = True
    assert tokens(library, nothing_left, [sampling_row()], masks={0: only}) == [41]


def penalised(logits: np.ndarray, words: dict[int, int], row: np.void) -> np.ndarray:
    out = logits.astype(np.float64).copy()
    for token, word in words.items():
        if word == 0:
            continue
        repetition = float(row["repetition_penalty"])
        out[token] = out[token] / repetition if out[token] > 0 else out[token] * repetition
        count = word & 0x7FFFFFFF
        out[token] -= float(row["frequency_penalty"]) * count + (float(row["presence_penalty"]) if count else 0)
    return out


@on_every_target
def test_penalties_and_bias_are_applied_in_order(library: Library) -> None:
    rng = np.random.default_rng(3)
    n, vocabulary = 80, 53
    logits = rng.standard_normal((n, vocabulary)).astype(np.float32)
    rows, histogram, bias = [], {}, {}
    for i in range(n):
        rows.append(
            sampling_row(
                flags=PENALTIES | BIAS_FLAG,
                n_bias=6,
                repetition_penalty=rng.uniform(0.5, 2),
                frequency_penalty=rng.uniform(-1, 1),
                presence_penalty=rng.uniform(-1, 1),
            )
        )
        histogram[i] = {
            int(t): int(rng.integers(0, 4)) | (IN_PROMPT if rng.random() < 0.5 else 0)
            for t in rng.integers(0, vocabulary, 30)
        }
        bias[i] = [(int(t), float(np.float32(rng.uniform(-2, 2)))) for t in rng.integers(0, vocabulary, 6)]
    chosen = tokens(library, logits, rows, histogram=histogram, bias=bias)
    for i in range(n):
        biased = logits[i].astype(np.float64)
        for token, value in bias[i]:
            biased[token] += value
        assert chosen[i] == penalised(biased, histogram[i], rows[i]).argmax()
    unflagged = [sampling_row(n_bias=6, repetition_penalty=5.0, frequency_penalty=9.0) for _ in range(n)]
    assert tokens(library, logits, unflagged, histogram=histogram) == logits.argmax(axis=1).tolist()


@on_every_target
def test_bias_entries_outside_the_vocabulary_are_skipped(library: Library) -> None:
    logits = np.zeros((2, 10), np.float32)
    entries = [(-1, 9.0), (10, 9.0), (2**31 - 1, 9.0), (-(2**31), 9.0), (4, 1.0)]
    rows = [sampling_row(flags=BIAS_FLAG, n_bias=5), sampling_row(flags=BIAS_FLAG, n_bias=2**31 - 1)]
    assert tokens(library, logits, rows, bias={0: entries, 1: entries}) == [4, 4]
    assert tokens(library, logits[:1], [sampling_row(flags=BIAS_FLAG, n_bias=-3)]) == [0]


def kept_set(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """Ids that survive, in float64: larger logit first, lower id first on a tie."""
    order = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    if 0 < top_k < len(order):
        order = order[:top_k]
    z = logits[order].astype(np.float64) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    if top_p < 1:
        n = int(np.searchsorted(np.cumsum(p), float(np.float32(top_p)) - 1e-12)) + 1
        order, p = order[:n], p[:n] / p[:n].sum()
    return set(order[p >= min_p * p.max()].tolist())


@on_every_target
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [
        (1, 1, 0),
        (3, 1, 0),
        (17, 1, 0),
        (0, 0.3, 0),
        (0, 0.9, 0),
        (0, 0, 0),
        (0, 1, 0.2),
        (5, 0.5, 0),
        (12, 0.93, 0.1),
        (10**6, 0.7, 0.0),
        (0, 1, 1),
    ],
)
@pytest.mark.parametrize("kind", ["spread", "ties", "flat"])
def test_exactly_the_kept_tokens_are_drawn(library: Library, top_k: int, top_p: float, min_p: float, kind: str) -> None:
    rng = np.random.default_rng(4)
    logits = {
        "spread": rng.standard_normal(60) * 2,
        "ties": rng.integers(0, 4, 60) * 0.7,
        "flat": np.zeros(60),
    }[kind].astype(np.float32)
    temperature = 1.3
    n_draws = 1500 if library.counts_tasks else 600  # thread blocks take their time
    chosen = draw_many(library, logits, n_draws, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    kept = kept_set(logits, temperature, top_k, top_p, min_p)
    assert set(chosen.tolist()) <= kept
    p = np.exp(logits.astype(np.float64) / temperature)
    p = np.array([p[i] if i in kept else 0 for i in range(60)])
    likely = {i for i in kept if p[i] / p.sum() > 0.01}
    assert likely <= set(chosen.tolist())


@on_every_host_target
@pytest.mark.parametrize(
    "fields", [{}, {"temperature": 0.6}, {"temperature": 2.5}, {"top_k": 9}, {"top_p": 0.8}, {"min_p": 0.05}]
)
def test_draws_follow_the_distribution(library: Library, fields: dict[str, float]) -> None:
    """A chi-square test at fixed seeds: deterministic, and far from its limit only if the distribution is wrong."""
    rng = np.random.default_rng(5)
    logits = (rng.standard_normal(1000) * 2.2).astype(np.float32)
    n = 3000
    chosen = np.bincount(draw_many(library, logits, n, **fields), minlength=1000)
    temperature = fields.get("temperature", 1.0)
    kept = kept_set(logits, temperature, int(fields.get("top_k", 0)), fields.get("top_p", 1), fields.get("min_p", 0))
    p = np.where(np.isin(np.arange(1000), list(kept)), np.exp(logits.astype(np.float64) / temperature), 0)
    p /= p.sum()
    bins = np.digitize(np.cumsum(p), np.linspace(0, 1, 31)[1:-1])  # consecutive ids of about equal mass
    expected, seen = np.bincount(bins, p * n, 30), np.bincount(bins, chosen, 30)
    used = expected > 5
    chi_square = ((seen - expected)[used] ** 2 / expected[used]).sum()
    assert chi_square < used.sum() + 4 * np.sqrt(2 * used.sum())


@on_every_host_target
@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 3.0, 30.0, 1e30])
def test_cuts_are_right_in_a_large_vocabulary(library: Library, spread: float) -> None:
    rng = np.random.default_rng(6)
    vocabulary = 20011
    logits = (rng.standard_normal(vocabulary) * spread).astype(np.float32)
    order = np.lexsort((np.arange(vocabulary), -logits))
    weights = np.exp(logits[order].astype(np.float64) - logits.max())
    for top_k, top_p in ((50, 1.0), (0, 0.5), (0, 0.95), (0, 0.999), (7000, 0.9), (19999, 1.0)):
        kept = kept_set(logits, 1.0, top_k, top_p, 0)
        chosen = draw_many(library, logits, 60, top_k=top_k, top_p=top_p)
        allowed = set(order[: len(kept) + 2].tolist())  # float64 and float32 sums may differ by a token at the edge
        assert set(chosen.tolist()) <= allowed
        mass_before = np.cumsum(weights[: len(kept)])
        last_fifth = order[: len(kept)][mass_before > 0.8 * mass_before[-1]]
        assert len(kept) < 20 or np.isin(chosen, last_fifth).any()


@on_every_target
def test_a_draw_depends_on_seed_and_position_alone(library: Library) -> None:
    rng = np.random.default_rng(7)
    logits = rng.standard_normal((30, 300)).astype(np.float32)
    rows = [sampling_row(temperature=1.0, top_p=0.95, seed=(i, i // 2)) for i in range(30)]
    positions = list(range(100, 130))
    together = tokens(library, logits, rows, positions=positions)
    assert tokens(library, logits, rows, positions=positions, order="threads") == together
    for i in range(30):
        assert (
            tokens(library, logits[i : i + 1], rows[i : i + 1], positions=positions[i : i + 1]) == together[i : i + 1]
        )
    same = np.tile(logits[:1], (30, 1))
    assert len(set(tokens(library, same, [sampling_row(temperature=2.0)] * 30, positions=positions))) > 10
    assert len(set(tokens(library, same, [sampling_row(temperature=2.0)] * 30))) == 1
    for word in (0, 1):
        seeds = [(i, 0) if word == 0 else (0, i) for i in range(30)]
        assert len(set(tokens(library, same, [sampling_row(temperature=2.0, seed=seed) for seed in seeds]))) > 10


def philox_uniform(seed: tuple[int, int], position: int) -> float:
    """Philox4x32-10 as its authors publish it, on (position, purpose 0, 0, 0)."""
    counter, key = [position, 0, 0, 0], list(seed)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(p1 >> 32) ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return ((counter[0] >> 5) * 2**26 + (counter[1] >> 6)) / 2**53


@on_every_target
def test_the_draw_is_the_inverse_of_the_running_sum(library: Library) -> None:
    logits = np.zeros((200, 1000), np.float32)
    seeds = [(i * 2654435761 % 2**32, i) for i in range(200)]
    chosen = tokens(
        library, logits, [sampling_row(temperature=1.0, seed=seed) for seed in seeds], positions=list(range(200))
    )
    assert chosen == [int(philox_uniform(seed, i) * 1000) for i, seed in enumerate(seeds)]


@on_every_target
def test_logprobs_are_of_the_raw_logits(library: Library) -> None:
    rng = np.random.default_rng(8)
    n, vocabulary = 24, 777
    logits = (rng.standard_normal((n, vocabulary)) * 4).astype(np.float32)
    logits[:, 100:110] = logits[:, 50:60]
    logits[5, 3] = -np.inf
    logits[6, 3] = np.nan
    flags = LOGPROBS | PENALTIES | BIAS_FLAG
    rows = [
        sampling_row(
            flags=flags, n_bias=1, n_candidates=i, temperature=(i % 2) * 1.5, repetition_penalty=1.5, seed=(i, 0)
        )
        for i in range(n)
    ]
    bias = {i: [(int(rng.integers(0, vocabulary)), 5.0)] for i in range(n)}
    histogram = {i: {int(t): 2 for t in rng.integers(0, vocabulary, 40)} for i in range(n)}
    samples = draw(library, logits, rows, bias=bias, histogram=histogram)
    for i in range(n):
        raw = np.where(np.isnan(logits[i]), -np.inf, logits[i]).astype(np.float64)
        logprobs = raw - raw.max() - np.log(np.exp(raw - raw.max()).sum())
        order = np.lexsort((np.arange(vocabulary), -raw))
        token = samples[i]["token"]
        assert samples[i]["logprob"] == pytest.approx(logprobs[token], abs=1e-5)
        assert samples[i]["rank"] == order.tolist().index(token) + 1
        n_candidates = min(i, MAX_CANDIDATES)
        assert samples[i]["n_candidates"] == n_candidates
        assert samples[i]["candidate_token"][:n_candidates].tolist() == order[:n_candidates].tolist()
        np.testing.assert_allclose(
            samples[i]["candidate_logprob"][:n_candidates], logprobs[order[:n_candidates]], atol=1e-5
        )
        assert (samples[i]["candidate_token"][n_candidates:] == 0).all()
    plain = draw(library, logits[:2], [sampling_row(n_candidates=5)] * 2)
    assert plain["n_candidates"].tolist() == [0, 0]
    assert plain["logprob"].tolist() == [0, 0]


@on_every_target
def test_logprobs_of_impossible_tokens_are_finite(library: Library) -> None:
    logits = np.full((2, 9), -np.inf, np.float32)
    logits[1, 4] = 0
    mask = np.zeros(9, bool)
    mask[7] = True
    samples = draw(library, logits, [sampling_row(flags=LOGPROBS, n_candidates=20)] * 2, masks={1: mask})
    assert samples["token"].tolist() == [0, 7]
    assert np.isfinite(samples["candidate_logprob"]).all()
    assert samples["logprob"].tolist() == [-9999, -9999]
    assert samples["n_candidates"].tolist() == [9, 9]
    assert samples["candidate_logprob"][1, 0] == pytest.approx(0, abs=1e-6)


@on_every_target
def test_lanes_and_slots_that_do_not_exist_sample_nothing(library: Library) -> None:
    samples = np.zeros(6, SAMPLE)
    arguments = {
        "mask": np.zeros((6, 1), np.uint32),
        "sampling": np.array([sampling_row()], SAMPLING),
        "bias": np.zeros((1, MAX_BIAS), BIAS),
        "histogram": np.zeros((1, 10), np.uint32),
        "logits": np.zeros((6, 10), np.float32),
        "samples": samples,
    }
    library["sample.1"].launch(
        counts=counts(0, 0, 2**31 - 1),
        sample_row=np.array([-1, 6, 0, 1, 2, 3], np.int32),
        sample_lane=np.array([0, 0, -1, 6, 0, 0], np.int32),
        row_position=np.array([0] * 6, np.int32),
        row_slot=np.array([0, 0, 1, 0, 0, 0], np.int32),
        lane_masked=np.zeros(6, np.int32),
        lanes_capacity=6,
        rows_capacity=6,
        n_slots=1,
        vocabulary=10,
        **arguments,
    )
    assert samples["token"].tolist() == [-1, -1, -1, -1, -1, 0]
