"""The command: what a decode step takes against the length of the context, and against the number of lanes.

The model runtime alone, round by round on this thread, as the model worker drives it: no server, no streams. All points are
measured in every round, in an order of its own; a point's figure is the median of its rounds, and is shown in steps of one lane at
the shortest context, since a machine's speed is its own. A prompt is computed once and found in the cache after that.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helios.cli.machine import processor
from helios.ignition.prepared_core import PrepareOptions, prepared_core
from helios.ignition.pull import pull_default_model
from helios.scheduler.request import GenerationRequest, SamplingParameters
from scripts.benchmark.plot import Curve, Value, plot
from tests.runtime.local_run import LoadedModel, Serving

CONTEXTS = (64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8000)
LANES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
N_SHORT, N_STEPS, N_PAGES = CONTEXTS[0], 24, 2400
_TOKENS = range(1000, 40000)  # of the default model: words and their parts


@dataclass(frozen=True, slots=True)
class Point:
    """`lanes` streams behind prompts of `context` tokens."""

    lanes: int
    context: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables, and write the plots where asked."""
    parser = argparse.ArgumentParser(prog="scripts/bench-curves", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all points (5)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of the CPU device")
    parser.add_argument(
        "--write",
        type=Path,
        help="write decode-context-CODE.svg and decode-lanes-CODE.svg to this folder, where CODE tells processors apart",
    )
    chosen = parser.parse_args(arguments)
    options = PrepareOptions(context_tokens=8192, concurrency=max(LANES))
    core = prepared_core(pull_default_model(lambda n_done_bytes, n_total_bytes: None), options=options)
    points = sorted(
        {Point(1, n) for n in CONTEXTS} | {Point(n, N_SHORT) for n in LANES}, key=lambda p: (p.lanes, p.context)
    )
    with LoadedModel(core, chosen.threads, N_PAGES, clock=time.monotonic) as model:
        found = _measure(model.serve(), points, chosen.rounds)
    base_s = statistics.median(found[Point(1, N_SHORT)])
    values = {point: [step_s / base_s for step_s in steps_s] for point, steps_s in found.items()}
    curves = (
        Curve("decode-context", "context, tokens", [_value(n, values[Point(1, n)]) for n in CONTEXTS]),
        Curve("decode-lanes", "lanes", [_value(n, values[Point(n, N_SHORT)]) for n in LANES]),
    )
    machine = processor()
    caption = f"{machine}, {chosen.threads} threads; one lane behind {N_SHORT} tokens: {base_s * 1e3:.2f} ms"
    print(f"{caption} a step; all others in steps of that")
    for curve in curves:
        print(curve.x_label)
        for value in curve.values:
            print(f"  {value.x:>6,}  {value.y:6.2f} ({value.least:.2f}..{value.most:.2f})")
        if chosen.write:
            picture = plot(curve, "time of a step, in steps of one lane", caption)
            (chosen.write / f"{curve.name}-{machine.code}.svg").write_text(picture)
    return 0


def _value(x: int, ratios: Sequence[float]) -> Value:
    return Value(x, statistics.median(ratios), min(ratios), max(ratios))


def _measure(serving: Serving, points: Sequence[Point], n_rounds: int) -> dict[Point, list[float]]:
    """Seconds of a step at each point, one for each round."""
    found: dict[Point, list[float]] = {point: [] for point in points}
    for index in range(n_rounds + 1):
        for point in random.Random(index).sample(points, len(points)):
            step_s = _step_seconds(serving, point)
            if index:  # the first round computes the prompts
                found[point].append(step_s)
    return found


def _step_seconds(serving: Serving, point: Point) -> float:
    """The median of the steps in which all lanes decode."""
    requests = [
        GenerationRequest(_prompt(lane, point.context), 2 * N_STEPS, sampling=SamplingParameters(temperature=0.0))
        for lane in range(point.lanes)
    ]
    outcomes = serving.submit(requests)
    while any(not outcome.tokens for outcome in outcomes):
        serving.step()
    seconds = []
    while all(outcome.ending is None for outcome in outcomes):
        started_s = time.perf_counter()
        serving.step()
        seconds.append(time.perf_counter() - started_s)
    serving.finish()
    return statistics.median(seconds)


def _prompt(lane: int, n_tokens: int) -> tuple[int, ...]:
    draw = random.Random(lane)
    return tuple(draw.choice(_TOKENS) for _ in range(n_tokens))
