"""A tiny model served whole on the simt device: the engine, the programs and the CUDA kernels, with the CPU device's tokens."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gguf import GGMLQuantizationType as Q

from helios.device import libraries
from helios.engine import Engine, Generation
from helios.ignition.prepare import PrepareOptions, prepare
from helios.ignition.signatures import cuda_target, host_target
from helios.scheduler.request import Finished, GenerationRequest, SamplingParameters, Token
from helios.settings import Settings
from tests.ignition.tiny_model import TinyModel, write_tiny
from tests.simt.conduct import CONDUCTS, Conduct, conducted

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NAMESPACE = "simt-tests"
MODELS = {
    "float32": TinyModel(type=Q.F32),
    "float16, grouped heads, biases": TinyModel(type=Q.F16, n_kv_heads=1, biases=("attn_q", "attn_k", "attn_v")),
    "q8_0": TinyModel(type=Q.Q8_0),
    "q4_0": TinyModel(type=Q.Q4_0),
    "q4_1": TinyModel(type=Q.Q4_1),
}
REQUESTS = [
    GenerationRequest(tuple((i * 7 + 20) % 250 for i in range(20)), 10, sampling=SamplingParameters(temperature=0)),
    GenerationRequest((3, 1, 4, 1, 5), 10, sampling=SamplingParameters(top_k=40, top_p=0.9, min_p=0.01, seed=7)),
    GenerationRequest(
        tuple((i * 5 + 1) % 250 for i in range(33)),
        10,
        sampling=SamplingParameters(repetition_penalty=1.2, presence_penalty=0.5, seed=9, candidates=3),
    ),
]


async def tokens_of(generation: Generation) -> list[Token]:
    """The tokens of an answer that ends as it should."""
    tokens: list[Token] = []
    while True:
        for event in await generation.next_batch():
            if isinstance(event, Finished):
                return tokens
            assert isinstance(event, Token), event
            tokens.append(event)


def answers(core: Path, device: str, requests: list[GenerationRequest]) -> list[list[Token]]:
    """What the requests get when all are there at once."""

    async def ask(engine: Engine) -> list[list[Token]]:
        return [await tokens_of(generation) for generation in [engine.submit(request) for request in requests]]

    settings = Settings(device=device, threads=1, context=512, accept=NAMESPACE)
    with Engine.start(core, settings) as engine:
        assert f"on {device}" in engine.description
        return asyncio.run(ask(engine))


def prepared(directory: Path, model: TinyModel, device: str) -> Path:
    checkpoint = write_tiny(directory / "tiny.gguf", model)
    core = directory / f"{device}.core"
    target = host_target() if device == "cpu" else cuda_target(libraries.simt_kernel_library())
    prepare(checkpoint, core, target, PrepareOptions(concurrency=3), key=KEY, namespace=NAMESPACE)
    return core


def check_agreement(ours: list[Token], theirs: list[Token], tolerance: float) -> None:
    """The same tokens, up to a step at which two of them are equally likely within the tolerance."""
    assert len(ours) == len(theirs) == 10
    for a, b in zip(ours, theirs, strict=True):
        if a.token_id != b.token_id:
            likely = dict(a.candidates)
            assert likely[a.token_id] - likely[b.token_id] < 2 * tolerance
            return
        assert a.logprob == (None if b.logprob is None else pytest.approx(b.logprob, abs=tolerance))


@pytest.mark.parametrize("name", MODELS)
def test_a_core_is_served_with_the_tokens_of_the_cpu_device(name: str, tmp_path: Path) -> None:
    """CARD-3: greedy, seeded and penalised requests in one batch. With 8-bit activations a last bit may become a whole step, so
    those models are asked for their likeliest tokens, and ties are looked at."""
    core, host_core = (prepared(tmp_path, MODELS[name], device) for device in ("simt", "cpu"))
    is_float = name.startswith("float")
    greedy = SamplingParameters(temperature=0, candidates=5)
    requests = REQUESTS if is_float else [replace(request, sampling=greedy) for request in REQUESTS]
    with conducted(Conduct()):
        emulated = answers(core, "simt", requests)
    for ours, theirs in zip(emulated, answers(host_core, "cpu", requests), strict=True):
        check_agreement(ours, theirs, 1e-4 if is_float else 0.05)


def test_a_request_has_the_same_tokens_alone_and_in_any_order_of_threads(tmp_path: Path) -> None:
    """Design 7, CARD-3."""
    core = prepared(tmp_path, MODELS["q4_0"], "simt")
    with conducted(Conduct()):
        together = answers(core, "simt", REQUESTS)
    for conduct in (CONDUCTS[-1], CONDUCTS[3]):
        with conducted(conduct):
            assert answers(core, "simt", REQUESTS) == together
            assert [answers(core, "simt", [request])[0] for request in REQUESTS] == together
