"""What structured output costs: a mask, and what a constrained request takes from the unconstrained ones beside it.

Both are measured on the default model in this process. Runs with a constrained companion and with a free one of the same length
take turns, and only the ratios of neighbours in time count, since machines change their speed within seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from helios.engine import Engine
from helios.ignition.prepared_core import prepared_core
from helios.ignition.pull import pull_default_model
from helios.prompt.grammar.grammars import CompiledGrammar, Grammars
from helios.prompt.grammar.request import read_structured
from helios.scheduler.request import Failed, Finished, GenerationRequest, SamplingParameters, Token
from helios.settings import Settings

N_TOKENS = 64
N_FIRST = 4  # tokens of each run that are not counted: prompts are computed beside them
N_MASKS = 2000
# Documents long enough for any run.
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-constrained", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="runs of each kind for each number of neighbours")
    parser.add_argument("--neighbours", type=int, nargs="+", default=[1, 3, 7], help="unconstrained requests")
    chosen = parser.parse_args(arguments)
    core = prepared_core(pull_default_model(lambda n_done_bytes, n_total_bytes: None))
    with Engine.start(core, Settings(device="cpu", context=512)) as engine:
        grammar = Grammars(engine.tokenizer, engine.frontend, engine.vocabulary).compile(
            read_structured({"structured_outputs": {"json": SCHEMA}})
        )
        if grammar is None:
            sys.exit("the schema gave no grammar")
        masks_us = 1e6 * np.array(_mask_seconds(grammar, engine.eos_tokens))
        median, most = np.percentile(masks_us, [50, 99])
        print(f"one mask of {engine.vocabulary:,} tokens: median {median:.0f} us, p99 {most:.0f} us")
        for n_neighbours in chosen.neighbours:
            ratios = asyncio.run(_ratios(engine, grammar, n_neighbours, chosen.pairs))
            low, median, high = np.percentile(ratios, [25, 50, 75])
            print(
                f"{n_neighbours} beside a constrained request: {median:.3f} of their time (quartiles {low:.3f} to {high:.3f})"
            )
    return 0


def _mask_seconds(grammar: CompiledGrammar, eos_tokens: Sequence[int]) -> list[float]:
    """Of masks on the way of random documents."""
    source = np.random.default_rng(1)
    times: list[float] = []
    while len(times) < N_MASKS:
        constraint = grammar.start()
        for _ in range(200):
            started_s = time.perf_counter()
            mask = constraint.mask()
            times.append(time.perf_counter() - started_s)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            token = int(source.choice(allowed))
            if token in eos_tokens:
                break
            constraint.advance(token)
    return times


async def _ratios(engine: Engine, grammar: CompiledGrammar, n_neighbours: int, n_pairs: int) -> list[float]:
    await _token_seconds(engine, grammar, n_neighbours)
    ratios = []
    for pair in range(n_pairs):
        kinds = [grammar, None] if pair % 2 else [None, grammar]
        times = {kind is None: await _token_seconds(engine, kind, n_neighbours) for kind in kinds}
        ratios.append(times[False] / times[True])
    return ratios


async def _token_seconds(engine: Engine, grammar: CompiledGrammar | None, n_neighbours: int) -> float:
    """Seconds a token of the neighbours, beside a companion under `grammar` or a free one."""
    grammars = [grammar, *[None] * n_neighbours]
    runs = await asyncio.gather(*(_run(engine, each, seed) for seed, each in enumerate(grammars)))
    return statistics.median((times[-1] - times[N_FIRST]) / (len(times) - 1 - N_FIRST) for times in runs[1:])


async def _run(engine: Engine, grammar: CompiledGrammar | None, seed: int) -> list[float]:
    """When each token came."""
    prompt = engine.tokenizer.encode("Once upon a time there was", allow_special=False)
    sampling = SamplingParameters(temperature=1.0, seed=seed)
    constraint = None if grammar is None else grammar.start()
    generation = engine.submit(
        GenerationRequest(tuple(prompt), N_TOKENS, (), sampling, constraint=constraint, uses_cache=False)
    )
    times: list[float] = []
    while True:
        for event in await generation.next_batch():
            if isinstance(event, Token):
                times.append(time.perf_counter())
            elif isinstance(event, Failed):
                raise event.error
            elif isinstance(event, Finished):
                return times
