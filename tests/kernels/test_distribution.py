"""distribution: whole raw rows of the lanes that ask, against numpy and against what sampling reports."""

from __future__ import annotations

import numpy as np
import pytest

from helios.packing.values import SAMPLING_DISTRIBUTION
from helios.runtime.distributions import distribution_dtype
from helios.scheduler.distribution import Distribution
from tests.kernels.harness import REFUSED, Library, on_every_target
from tests.kernels.records import LOGPROBS, SAMPLING, sampling_row
from tests.kernels.test_sample import draw

UNTOUCHED = 0x55


def report(
    library: Library,
    logits: np.ndarray,
    asks: list[bool],
    *,
    capacity: int = 4,
    n_rows: int | None = None,
    order: str = "serial",
    **changed: int,
) -> np.ndarray:
    """The rows that were reported; sample i is row n - 1 - i, which belongs to slot i."""
    n, vocabulary = logits.shape
    out = np.full(capacity * distribution_dtype(vocabulary).itemsize, UNTOUCHED, np.uint8)
    sampling = np.zeros(n, SAMPLING)
    sampling["flags"] = [LOGPROBS | (SAMPLING_DISTRIBUTION if asked else 0) for asked in asks]
    arguments = {"rows_capacity": n, "n_slots": n, "distributions_capacity": capacity} | changed
    library["distribution.1"].launch(
        order=order,
        n_rows=np.array([n if n_rows is None else n_rows], np.int32),
        rows=np.arange(n, dtype=np.int32)[::-1].copy(),
        row_slot=np.arange(n, dtype=np.int32)[::-1].copy(),
        sampling=sampling,
        logits=logits,
        distributions=out,
        flag=SAMPLING_DISTRIBUTION,
        logits_capacity=n,
        vocabulary=vocabulary,
        **arguments,
    )
    return out.view(distribution_dtype(vocabulary))


def some_logits(n: int, vocabulary: int) -> np.ndarray:
    logits = (np.random.default_rng(8).standard_normal((n, vocabulary)) * 4).astype(np.float32)
    logits[2, 3], logits[2, 4], logits[2, 5] = -np.inf, np.nan, np.inf
    return logits


@on_every_target
@pytest.mark.parametrize("order", ["serial", "shuffled", "threads"])
@pytest.mark.parametrize("vocabulary", [1, 31, 777])
def test_the_rows_that_ask_are_reported_in_order(library: Library, order: str, vocabulary: int) -> None:
    logits = some_logits(6, max(vocabulary, 6))[:, :vocabulary]
    reported = report(library, np.ascontiguousarray(logits), [True, False, True, True, False, False], order=order)
    for place, i in enumerate((0, 2, 3)):
        raw = np.where(np.isnan(logits[i]), -np.inf, np.minimum(logits[i], np.float32(3e38)))
        np.testing.assert_array_equal(reported["logits"][place][:vocabulary], raw)
        expected = raw.max() + np.log(np.exp(raw.astype(np.float64) - raw.max()).sum())
        assert reported["log_total"][place] == pytest.approx(expected, abs=1e-5)
    assert (reported[3:].view(np.uint8) == UNTOUCHED).all()


@on_every_target
def test_what_follows_has_the_bits_that_sampling_reports(library: Library) -> None:
    """GRPC-3: the same token has one log-probability and one rank, however it was asked for."""
    logits = some_logits(4, 777)
    logits[:, 100:110] = logits[:, 50:60]
    samples = draw(library, logits, [sampling_row(flags=LOGPROBS, n_candidates=20, temperature=1.5, seed=(3, 1))] * 4)
    reported = report(library, logits, [True] * 4)
    for sample, row in zip(samples, reported, strict=True):
        distribution = Distribution(row["logits"][:777], float(row["log_total"]))
        (chosen,) = distribution.ranked([int(sample["token"])])
        assert (chosen.logprob, chosen.rank) == (sample["logprob"], sample["rank"])
        best = distribution.ids_by_rank()[:20]
        assert best.tolist() == sample["candidate_token"].tolist()
        assert distribution.logprobs(best).tolist() == sample["candidate_logprob"].tolist()


@on_every_target
def test_no_more_rows_are_reported_than_there_is_room_for(library: Library) -> None:
    logits = some_logits(6, 64)
    reported = report(library, logits, [True] * 6, capacity=2, n_rows=1000)
    np.testing.assert_array_equal(reported["logits"][:, :64], logits[:2])


@on_every_target
@pytest.mark.parametrize("name", ["rows_capacity", "n_slots"])
def test_rows_and_slots_that_do_not_exist_report_nothing(library: Library, name: str) -> None:
    reported = report(library, some_logits(6, 64), [True] * 6, **{name: 5})
    (expected,) = {"rows_capacity": {1}, "n_slots": {0}}[name]
    np.testing.assert_array_equal(reported["logits"][0, :64], some_logits(6, 64)[expected])


@on_every_target
@pytest.mark.parametrize(
    "name", ["logits_capacity", "rows_capacity", "n_slots", "vocabulary", "distributions_capacity"]
)
def test_senseless_scalars_are_refused(library: Library, name: str) -> None:
    scalars = ("logits_capacity", "rows_capacity", "n_slots", "vocabulary", "distributions_capacity")
    good = {**dict.fromkeys(scalars, 4), "flag": SAMPLING_DISTRIBUTION}
    kernel = library["distribution.1"]
    assert REFUSED not in kernel.extents(**good).values()
    for wrong in (0, -1):
        assert set(kernel.extents(**good | {name: wrong}).values()) == {REFUSED}
