"""The command: a long random run of the scheduler over a hashing device: scripts/soak-scheduler [--steps N] [--seed S]."""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from tests.scheduler.hashing_device import VOCABULARY
from tests.scheduler.turmoil import Turmoil

STEPS_OF_A_WORLD = 800


def main() -> int:
    """Print what happened how often; an assertion fails when a request gets other tokens than alone."""
    parser = argparse.ArgumentParser(prog="scripts/soak-scheduler", description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="steps of all worlds together (50000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first world; the next ones follow (0)")
    arguments = parser.parse_args()
    started_s = time.monotonic()
    counts: Counter[str] = Counter()
    seed = arguments.seed
    while counts["steps"] < arguments.steps:
        try:
            counts += run_world(seed, STEPS_OF_A_WORLD)
        except BaseException:
            print(f"world {seed} failed")
            raise
        seed += 1
    counts["worlds"] = seed - arguments.seed
    for name, count in sorted(counts.items()):
        print(f"{count:10,} {name}")
    print(f"{time.monotonic() - started_s:10.1f} seconds")
    return 0


def run_world(seed: int, n_steps: int) -> Counter[str]:
    """One scheduler with sizes of its own, through `n_steps` random steps and to the end of everything."""
    source = random.Random(seed)
    has_rows = source.random() < 0.8
    world = Turmoil(
        n_slots=source.randint(1, 6),
        n_pages=source.choice([6, 7, 8, 10, 12, 16, 26]),
        n_rows=source.randint(1, 6) if has_rows else 0,
        n_host_pages=source.choice([0, 4, 16, 40]),
        n_host_rows=source.choice([0, 2, 4]) if has_rows else 0,
        chunk=source.choice([4, 16, 40]),
        is_recurrent=has_rows and source.random() < 0.3,
    )
    arrivals, patience = source.uniform(0.05, 0.4), source.uniform(0.1, 0.9)
    while world.counts["steps"] < n_steps:
        step(world, source, arrivals, patience)
    world.finish()
    return world.counts


def step(world: Turmoil, source: random.Random, arrivals: float, patience: float) -> None:
    """One random step. `arrivals`: share of submissions; `patience`: how rarely copies end."""
    roll = source.random()
    if roll < arrivals * 0.5 and len(world.live) < 12:
        own = tuple(source.randrange(VOCABULARY) for _ in range(source.choice([0, 1, 2, 5, 15, 16, 17, 40, 80])))
        n_shared = source.choice([0, 5, 16, 31, 32, 47, 64, 64, 79, 95])
        world.submit(
            source.choice([0, 0, 0, 1, 2, source.randrange(20)]),
            n_shared,
            own,
            source.choice([1, 2, 5, 20, 40]),
            source.randrange(60),
            source.randrange(6),
            source.randrange(84),
        )
    elif roll < 0.22 and source.random() < 0.08:
        world.cancel(source.randrange(20))
    elif roll < 0.24 and source.random() < 0.5:
        world.jump(source.choice([0.001, 0.05, 0.5, 5.0, 100.0]))
    elif roll < 0.27:
        world.fault(source.randrange(8), source.randrange(20))
    elif roll < 0.2705:
        world.die()
    elif roll < 0.45 and source.random() > patience:
        world.finish_transfer(source.randrange(20))
    elif roll < 0.55:
        world.execute()
    elif roll < 0.8:
        world.plan()
    else:
        world.retire()
