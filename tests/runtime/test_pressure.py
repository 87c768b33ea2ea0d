"""A cache so small that preemption, eviction, offload and restores never stop: the real model answers as it does with room."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helios.scheduler.request import GenerationRequest, SamplingParameters
from tests.runtime.local_run import LoadedModel, Outcome
from tests.runtime.test_exactness import make_requests

ROOMY_PAGES = 600
N_PAGES, N_ROWS, N_HOST_PAGES, N_HOST_ROWS = 28, 4, 40, 30  # the longest request takes 25 pages
GREEDY = SamplingParameters(temperature=0.0)

# What has to have happened for the test to have tested anything.
HAPPENED = (
    "preemptions_total",
    "reused_prompt_tokens_total",
    "snapshots_saved_total",
    "snapshots_restored_total",
    "cache_pages_evicted_total",
    "cache_snapshots_evicted_total",
    "cache_pages_offloaded_total",
    "cache_pages_reloaded_total",
    "cache_snapshots_offloaded_total",
    "cache_snapshots_reloaded_total",
    "offload_bytes_total",
    "reload_bytes_total",
    'graph_launches_total{operation="restore"}',
    'graph_launches_total{operation="snapshot"}',
    'graph_launches_total{operation="scored_prefill"}',
)

Answer = tuple[object, list[object], object]


def answer_of(outcome: Outcome) -> Answer:
    """All that a client sees of a generation, with log-probabilities and the prompt's scores, but not how much was reused."""
    return outcome.scores, list(outcome.tokens), outcome.reason


def second_turn(request: GenerationRequest, answer: Outcome, n_new: int) -> GenerationRequest:
    """The conversation goes on: prompt, answer, and something new."""
    new = [random.Random(len(answer.ids)).randrange(49_000) for _ in range(n_new)]
    return replace(request, prompt_tokens=(*request.prompt_tokens, *answer.ids, *new))


@pytest.fixture(scope="module")
def roomy(default_core: Path) -> Iterator[LoadedModel]:
    with LoadedModel(default_core, 2, ROOMY_PAGES) as loaded:
        yield loaded


def test_pressure_changes_no_byte_of_any_answer(roomy: LoadedModel, default_core: Path) -> None:
    """CACHE-3, CACHE-5, CACHE-6, design 7: greedy and seeded, with penalties and log-probabilities, preempted and restored."""
    firsts = [
        replace(r, output_limit=r.output_limit + 30 * (i % 2), prompt_candidates=3 if i % 3 == 1 else None)
        for i, r in enumerate(make_requests(9, 12))
    ]
    first_outcomes = [roomy.run([request], max_active=1, frames=1)[0] for request in firsts]
    pairs = zip(firsts, first_outcomes, strict=True)
    seconds = [second_turn(request, outcome, 9) for request, outcome in pairs if len(request.prompt_tokens) < 250]
    alone = {id(request): answer_of(outcome) for request, outcome in zip(firsts, first_outcomes, strict=True)}
    alone |= {id(request): answer_of(roomy.run([request], max_active=1, frames=1)[0]) for request in seconds}
    happened: dict[str, int] = dict.fromkeys(HAPPENED, 0)
    with LoadedModel(
        default_core, 2, N_PAGES, n_rows=N_ROWS, n_host_pages=N_HOST_PAGES, n_host_rows=N_HOST_ROWS
    ) as small:
        for case in range(3):
            source = random.Random(case)
            before = small.runtime.statistics()
            serving = small.serve(max_active=source.choice([8, 16]), prefill_tokens=source.choice([33, 128, 512]))
            for batch in (firsts, [*seconds, *firsts[:5]]):
                requests = source.sample(batch, len(batch))
                outcomes = serving.run(requests, arrive=lambda index: source.choice([0, 0, 1, 4]))  # noqa: B023
                for request, outcome in zip(requests, outcomes, strict=True):
                    assert answer_of(outcome) == alone[id(request)]
            after = serving.statistics()
            happened = {name: count + after[name] - before.get(name, 0) for name, count in happened.items()}
    assert {name for name, count in happened.items() if not count} == set()


def prompt_of(n_tokens: int, seed: int = 0) -> GenerationRequest:
    tokens = [random.Random(seed).randrange(49_000) for _ in range(n_tokens)]
    return GenerationRequest(tuple(tokens), 21, (), GREEDY)


@pytest.mark.parametrize("n_prompt", [100, 107, 108, 5])
def test_a_second_turn_computes_only_its_new_tokens(roomy: LoadedModel, n_prompt: int) -> None:
    """CACHE-5: the answer's end is a snapshot; its last token was never fed, so it is computed with the new ones."""
    serving = roomy.serve()
    request = prompt_of(n_prompt)
    (first,) = serving.run([request])
    assert (len(first.ids), serving.n_prompt_rows, first.n_reused) == (21, n_prompt, 0)
    second = second_turn(request, first, 30)
    (outcome,) = serving.run([second])
    assert (serving.n_prompt_rows, outcome.n_reused) == (n_prompt + 1 + 30, n_prompt + 20)
    assert answer_of(outcome) == answer_of(roomy.run([second])[0])


@pytest.mark.parametrize(("n_prompt", "n_reused"), [(100, 99), (97, 96), (2, 1), (96, 80)])
def test_a_repeated_prompt_computes_its_last_token_only(roomy: LoadedModel, n_prompt: int, n_reused: int) -> None:
    """CACHE-5: one token has to be computed to have something to sample from. A prompt that ends with its page has no partial page
    of its own, and computes the last one."""
    serving = roomy.serve()
    outcomes = [serving.run([prompt_of(n_prompt)])[0] for _ in range(3)]
    assert [outcome.n_reused for outcome in outcomes] == [0, n_reused, n_reused]
    assert serving.n_prompt_rows == n_prompt + 2 * (n_prompt - n_reused)
    assert answer_of(outcomes[0]) == answer_of(outcomes[1]) == answer_of(outcomes[2])


def test_another_salt_reuses_nothing(roomy: LoadedModel) -> None:
    """CACHE-3: who must not share a prefix computes it anew, and answers the same."""
    serving = roomy.serve()
    requests = [replace(prompt_of(50), cache_salt=salt) for salt in ("", "a", "b", "a")]
    outcomes = [serving.run([request])[0] for request in requests]
    assert [outcome.n_reused for outcome in outcomes] == [0, 0, 0, 49]
    assert all(answer_of(outcome) == answer_of(outcomes[0]) for outcome in outcomes)


def test_what_the_device_has_lost_comes_back_from_host_memory(default_core: Path) -> None:
    """CACHE-3, CACHE-5: pages and the row of the last one."""
    with LoadedModel(default_core, 2, 30, n_rows=2, n_host_pages=80, n_host_rows=16) as loaded:
        serving = loaded.serve()
        requests = [prompt_of(200, seed) for seed in range(5)]
        firsts = [serving.run([request])[0] for request in requests]
        before = serving.statistics()
        (again,) = serving.run(requests[:1])
        after = serving.statistics()
    assert answer_of(again) == answer_of(firsts[0])
    assert again.n_reused == 199
    assert before["cache_pages_evicted_total"] >= 3 * 12
    assert after["cache_pages_reloaded_total"] - before["cache_pages_reloaded_total"] == 12
    page_and_row_nbytes = 12 * loaded.bootstrap.contract.page_nbytes + loaded.bootstrap.contract.row_nbytes
    assert after["reload_bytes_total"] - before["reload_bytes_total"] == page_and_row_nbytes
