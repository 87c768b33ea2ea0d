"""The alternated rounds: each figure of product and peer taken back to back, the order swapped every round.

It knows contenders only by `take` and `pid`. While one is measured the other must be idle; its processor time says whether
it was, and is part of the record.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from helios.cli.figures import BUSY_STREAMS
from helios.cli.measure import SPEED_FIGURES
from helios.cli.server_process import processor_s
from scripts.benchmark.busy import is_scheduled_ordinarily, share_kept
from scripts.benchmark.contenders import Contender, InProcessPeer, Product, Setup
from scripts.benchmark.floors import Floors

PRODUCT, PEER = "product", "peer"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. No round starts after `budget_s`, but `least_rounds` are always done."""

    rounds: int
    least_rounds: int
    start_rounds: int
    memory_rounds: int
    gap_rounds: int
    busy_rounds: int
    n_new_tokens: int
    budget_s: float


QUICK = Plan(
    rounds=7,
    least_rounds=3,
    start_rounds=3,
    memory_rounds=1,
    gap_rounds=1,
    busy_rounds=0,
    n_new_tokens=64,
    budget_s=170,
)
FULL = Plan(
    rounds=11,
    least_rounds=11,
    start_rounds=5,
    memory_rounds=3,
    gap_rounds=3,
    busy_rounds=7,
    n_new_tokens=128,
    budget_s=3600,
)
OTHER_FORMAT = replace(FULL, rounds=5, least_rounds=5, start_rounds=1, memory_rounds=1, gap_rounds=0, busy_rounds=0)


@dataclass(slots=True)
class Record:
    """Every value taken: contender -> figure -> one value a round; and the busiest that each was while it should idle."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=lambda: {PRODUCT: {}, PEER: {}})
    idle_share: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, who: str, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.values[who].setdefault(name, []).append(value)


def start_rounds(setup: Setup, plan: Plan, record: Record) -> None:
    """Start-up and memory, each time in fresh processes. A first start of each, not counted, warms files and caches."""
    Product.warm(setup)
    InProcessPeer.start(setup, with_memory=False)
    for index in range(plan.start_rounds):
        with_memory = index < plan.memory_rounds
        order = [(PRODUCT, Product.start), (PEER, InProcessPeer.start)]
        for who, start in order[:: -1 if index % 2 else 1]:
            record.add(who, start(setup, with_memory))
        _say(f"start {index + 1} of {plan.start_rounds}")


def gap_rounds(setup: Setup, plan: Plan, record: Record) -> None:
    """The largest gap beside a long prompt, on servers of their own that have room for it."""
    for index in range(plan.gap_rounds):
        order = [(PRODUCT, Product.gap), (PEER, InProcessPeer.gap)]
        for who, measure in order[:: -1 if index % 2 else 1]:
            record.add(who, {"gap_4000": measure(setup)})
        _say(f"gap {index + 1} of {plan.gap_rounds}")


def speed_rounds(
    product: Contender, peer: Contender, floors: Floors, plan: Plan, record: Record, began_s: float
) -> None:
    """Decode, prefill and time to first token, until the plan is done or its time is used up."""
    order = [(PRODUCT, product, peer), (PEER, peer, product)]
    longest_s = 0.0
    for index in range(plan.rounds):
        round_began_s = time.monotonic()
        if index >= plan.least_rounds and round_began_s + longest_s > began_s + plan.budget_s:
            break
        floors.take()
        for name in SPEED_FIGURES:
            for who, running, waiting in order[:: -1 if index % 2 else 1]:
                idle = PEER if who == PRODUCT else PRODUCT
                before_s, began_figure_s = processor_s(waiting.pid), time.monotonic()
                record.add(who, {name: running.take(name, plan.n_new_tokens)})
                used_s, elapsed_s = processor_s(waiting.pid) - before_s, time.monotonic() - began_figure_s
                if elapsed_s > 0.5:  # processor time is counted in hundredths of a second
                    record.idle_share[idle] = max(record.idle_share[idle], used_s / elapsed_s)
        longest_s = max(longest_s, time.monotonic() - round_began_s)
        _say(f"round {index + 1} of at most {plan.rounds}: {time.monotonic() - began_s:.0f} s")


def busy_rounds(product: Contender, peer: Contender, plan: Plan, record: Record) -> None:
    """The share of its speed that each keeps beside a busy loop, which comes before the quiet measurement in half of the rounds."""
    if plan.busy_rounds and not is_scheduled_ordinarily():
        _say("no rounds beside a busy loop: at real-time priority the loop would keep a processor to itself")
        return
    for index in range(plan.busy_rounds):
        order = [(PRODUCT, product), (PEER, peer)]
        for n_streams in BUSY_STREAMS:
            for who, running in order[:: -1 if index % 2 else 1]:
                kept = share_kept(running, n_streams, plan.n_new_tokens, is_busy_first=index % 4 > 1)
                record.add(who, {f"busy_{n_streams}": kept})
        _say(f"busy {index + 1} of {plan.busy_rounds}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
