"""The promise: the same request gives the same bytes, whatever else the device is doing (design 7), on the real model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.prepared_core import PrepareOptions, prepared_core
from helios.ignition.signatures import host_target
from helios.scheduler.request import Finished, FinishReason, GenerationRequest, SamplingParameters
from tests.runtime.local_run import LoadedModel

N_PAGES = 600
SAMPLINGS = [
    SamplingParameters(temperature=0.0),
    SamplingParameters(temperature=0.0, candidates=5),
    SamplingParameters(temperature=1.0, seed=7),
    SamplingParameters(temperature=0.8, top_k=40, top_p=0.9, seed=2**63 + 11),
    SamplingParameters(temperature=1.3, min_p=0.05, frequency_penalty=0.6, presence_penalty=0.3, seed=3, candidates=0),
    SamplingParameters(temperature=0.0, repetition_penalty=1.3, logit_bias=((28, -4.0), (260, 1.5))),
]


def make_requests(seed: int, n_requests: int) -> list[GenerationRequest]:
    """Requests of random shape; a third of them continue a common prefix."""
    source = random.Random(seed)
    common = [source.randrange(49_000) for _ in range(40)]
    requests = []
    for _ in range(n_requests):
        own = [source.randrange(49_000) for _ in range(source.choice([1, 3, 15, 16, 17, 60, 200, 300]))]
        prompt = (common if source.random() < 0.33 else []) + own
        requests.append(GenerationRequest(tuple(prompt), source.randint(1, 24), (2,), source.choice(SAMPLINGS)))
    return requests


@dataclass(frozen=True, slots=True)
class Setup:
    """How keys, values and activations are kept, and the number of threads."""

    kv: KvFormat
    activations: RowForm
    n_threads: int


SETUPS = [
    Setup(KvFormat.F16, RowForm.Q8, 1),
    Setup(KvFormat.F16, RowForm.Q8, 2),
    Setup(KvFormat.Q8, RowForm.Q8, 2),
    Setup(KvFormat.F16, RowForm.Q12, 2),
]


@pytest.fixture(scope="module", params=SETUPS, ids=lambda s: f"{s.kv}, {s.activations}, {s.n_threads} threads")
def setup(request: pytest.FixtureRequest) -> Setup:
    assert isinstance(request.param, Setup)
    return request.param


@pytest.fixture(scope="module")
def core(setup: Setup, default_gguf: Path) -> Path:
    target = replace(host_target(), row_form=setup.activations)
    return prepared_core(default_gguf, options=PrepareOptions(kv_format=setup.kv), target=target)


@pytest.fixture(scope="module")
def model(setup: Setup, core: Path) -> Iterator[LoadedModel]:
    with LoadedModel(core, setup.n_threads, N_PAGES) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def alone(core: Path) -> list[tuple[list[object], object]]:
    """Every request served alone, on one thread, one round at a time, with the largest prefill chunk."""
    with LoadedModel(core, 1, N_PAGES) as loaded:
        return [
            (outcome.tokens, outcome.reason)
            for request in make_requests(1, 16)
            for outcome in loaded.run([request], max_active=1, frames=1)
        ]


@pytest.mark.parametrize("case", range(6))
def test_a_request_gets_the_same_bytes_in_any_company(
    model: LoadedModel, alone: list[tuple[list[object], object]], case: int
) -> None:
    """SPEC-7, CON-7: arrival order, batch size, chunk size, frames and threads change no token and no log-probability."""
    source = random.Random(case)
    order = list(range(16))
    source.shuffle(order)
    requests = make_requests(1, 16)
    outcomes = model.run(
        [requests[i] for i in order],
        max_active=source.choice([1, 2, 5, 16]),
        prefill_tokens=source.choice([5, 16, 33, 128, 512]),
        frames=source.choice([1, 2]),
        arrive=lambda index: source.choice([0, 0, 1, 3]),
    )
    for i, outcome in zip(order, outcomes, strict=True):
        assert (outcome.tokens, outcome.reason) == alone[i]


def test_a_seed_names_its_draws(model: LoadedModel) -> None:
    """Design 6: (seed, position, purpose) names each draw: same seed, same answer; another seed, another answer."""

    def request(seed: int) -> GenerationRequest:
        return GenerationRequest((1, 520, 9531), 16, (), SamplingParameters(temperature=1.0, seed=seed))

    first, again, other = (outcome.ids for outcome in model.run([request(5), request(5), request(6)]))
    assert first == again != other


def test_the_output_limit_and_eos_are_decided_on_the_device(model: LoadedModel) -> None:
    """FE-7: EOS counts as output and ends with its own reason; the limit ends with the other."""
    greedy = SamplingParameters(temperature=0.0)
    (plain,) = model.run([GenerationRequest((1, 520, 9531), 8, (), greedy)])
    assert isinstance(plain.ending, Finished)
    assert (plain.ending.reason, len(plain.ids)) == (FinishReason.LIMIT, 8)
    end = plain.ids[4]
    (ended,) = model.run([GenerationRequest((1, 520, 9531), 8, (end,), greedy)])
    assert isinstance(ended.ending, Finished)
    assert ended.ending.reason is FinishReason.EOS
    assert ended.ids == plain.ids[: plain.ids.index(end) + 1]
