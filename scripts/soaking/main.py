"""The command: starts a server, runs the requests, audits what is left, prints one verdict.

Concurrency is bounded; greedy and seeded probes are asked before, during and after, and must answer the same every time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helios.cli.server_process import ServerProcess
from helios.cli.streams import Endpoint
from helios.errors import HeliosError
from scripts.soaking.audit import Resources, is_settled, metric_breaches, read_metrics, resource_breaches
from scripts.soaking.client import ask, send
from scripts.soaking.shapes import random_shape

ROOT = Path(__file__).resolve().parents[2]
CONTEXT_TOKENS = 512
TEMPLATE_TOKENS = 64  # more than a chat template adds
MAX_ACTIVE = 8
CACHE_GB = 0.07  # less than eight whole contexts of the default model: page shortage is part of the run, and memory is soon level
CONCURRENCY = 20
QUEUE_CAPACITY = 10  # fewer than the clients, so that some are refused for lack of room
PROBE_EVERY = 250
BUSY_RETRY_S = 0.2
SETTLE_TIMEOUT_S = 20.0
N_LOOKS, LOOK_S = 10, 0.05


@dataclass(slots=True)
class Soak:
    """One run against one server; `pid` is None for a server that somebody else started."""

    endpoint: Endpoint
    pid: int | None
    seed: int
    n_requests: int
    n_busy: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    resources: list[Resources] = field(default_factory=list)  # before, after a quarter, at the end
    model: str = ""

    async def run(self) -> None:
        """Everything, into `outcomes` and `faults`."""
        self.model = json.loads(await self._get("/v1/models"))["data"][0]["id"]
        expected = [await ask(self.endpoint, body) for body in self._probes()]
        # What is made on first use exists before it is counted: every cache page once, then a few of everything.
        await asyncio.gather(*(ask(self.endpoint, self._filling_body()) for _ in range(MAX_ACTIVE)))
        await self._burst(range(-CONCURRENCY, 0))
        await self._settle()
        await self._take_resources()
        began_s = time.monotonic()
        quarter = self.n_requests // 4
        await self._span(range(quarter), expected, began_s)
        await self._settle()
        await self._take_resources()
        await self._span(range(quarter, self.n_requests), expected, began_s)
        await self._check_probes(expected, "after")
        await self._settle()
        await self._take_resources()
        self.faults += metric_breaches(read_metrics((await self._get("/metrics")).decode()))
        if self.pid is not None:
            self.faults += resource_breaches(*self.resources)

    async def _span(self, indices: range, expected: list[bytes], began_s: float) -> None:
        for start in range(indices.start, indices.stop, PROBE_EVERY):
            stop = min(start + PROBE_EVERY, indices.stop)
            await asyncio.gather(self._burst(range(start, stop)), self._check_probes(expected, "during"))
            resident = f", {Resources.of(self.pid).resident_bytes / (1 << 20):,.1f} MiB" if self.pid is not None else ""
            elapsed_s = time.monotonic() - began_s
            print(f"{stop:,} of {self.n_requests:,}, {elapsed_s:.0f} s{resident}", file=sys.stderr, flush=True)

    async def _burst(self, indices: range) -> None:
        """The requests numbered `indices`, at most CONCURRENCY at a time."""
        waiting = iter(indices)

        async def work() -> None:
            for index in waiting:
                shape = random_shape(self.seed, index, self.model, CONTEXT_TOKENS)
                while (outcome := await send(self.endpoint, shape)).kind == "busy":
                    self.n_busy += 1
                    await asyncio.sleep(BUSY_RETRY_S)
                self.outcomes[outcome.kind] += 1
                if outcome.fault:
                    self.faults.append(f"request {index}: {outcome.fault}")

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))

    def _probes(self) -> list[dict[str, Any]]:
        ask_for = {"model": self.model, "max_tokens": 24}
        return [
            ask_for | {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0},
            ask_for | {"messages": [{"role": "user", "content": "Write a poem. " * 20}], "temperature": 0},
            ask_for | {"messages": [{"role": "user", "content": "Tell me a story."}], "seed": 7, "n": 2},
        ]

    def _filling_body(self) -> dict[str, Any]:
        """A request that takes its slot's whole context."""
        text = "word " * (CONTEXT_TOKENS - TEMPLATE_TOKENS)
        message = {"role": "user", "content": text}
        return {"model": self.model, "messages": [message], "max_tokens": CONTEXT_TOKENS, "ignore_eos": True}

    async def _check_probes(self, expected: list[bytes], when: str) -> None:
        for body, first in zip(self._probes(), expected, strict=True):
            again = await ask(self.endpoint, body)
            if again != first:
                self.faults.append(f"a probe's answer changed {when} the run: {first!r} became {again!r}")

    async def _settle(self) -> None:
        """Until the last vanished client's request has ended and its connection is gone."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            metrics = read_metrics((await self._get("/metrics")).decode())
            if is_settled(metrics) and metrics["http_connections"] <= 1:
                return
            await asyncio.sleep(0.1)
        self.faults.append(f"requests were still open {SETTLE_TIMEOUT_S:.0f} s after the last client was gone")

    async def _get(self, path: str) -> bytes:
        return (await asyncio.to_thread(self.endpoint.get, path, 30.0))[1]

    async def _take_resources(self) -> None:
        """When the connection of the last question is gone too, which the server learns after its client."""
        if self.pid is None:
            return
        looks = [Resources.of(self.pid)]
        while len(looks) < N_LOOKS:
            await asyncio.sleep(LOOK_S)
            looks.append(Resources.of(self.pid))
        self.resources.append(min(looks, key=lambda look: look.n_descriptors))


def main() -> int:
    arguments = _parser().parse_args()
    began_s = time.monotonic()
    try:
        with ExitStack() as stack:
            server = None if arguments.url else stack.enter_context(ServerProcess(_serve_command(arguments)))
            endpoint = server.endpoint if server else Endpoint.from_url(arguments.url)
            soak = Soak(endpoint, server.pid if server else None, arguments.seed, arguments.requests)
            asyncio.run(soak.run())
            if server and server.exit_status is not None:
                soak.faults.append(f"the server ended with status {server.exit_status}: {server.last_words}")
    except HeliosError as error:
        print(f"soak: FAILED: {error}")
        return 1
    for fault in soak.faults[:20]:
        print(f"soak: {fault}")
    for when, resources in zip(("before", "after a quarter", "at the end"), soak.resources, strict=False):
        print(
            f"{when}: {resources.n_descriptors} descriptors, {resources.n_threads} threads, "
            f"{resources.resident_bytes / (1 << 20):,.1f} MiB"
        )
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(soak.outcomes.items()))
    verdict = f"FAILED with {len(soak.faults)} faults" if soak.faults else "ok"
    print(
        f"soak: {arguments.requests:,} requests, seed {arguments.seed}, {time.monotonic() - began_s:.0f} s: {counts}, "
        f"{soak.n_busy:,} times busy: {verdict}"
    )
    return 1 if soak.faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Random requests and vanishing clients, then an audit."
    )
    parser.add_argument("--requests", type=int, default=10_000, help="how many (default 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="names the run's requests (default 0)")
    parser.add_argument("--url", help="a server that runs already; its descriptors, threads and memory go unchecked")
    parser.add_argument("--model", default="", help="the model to serve (default: the default model)")
    parser.add_argument("--product", metavar="COMMAND", help="how to run Helios (default: python dist/helios.pyz)")
    return parser


def _serve_command(arguments: argparse.Namespace) -> list[str]:
    command = (
        shlex.split(arguments.product) if arguments.product else [sys.executable, str(ROOT / "dist" / "helios.pyz")]
    )
    limits = {
        "--port": 0,
        "--max-active": MAX_ACTIVE,
        "--context": CONTEXT_TOKENS,
        "--queue-capacity": QUEUE_CAPACITY,
        "--cache-gb": CACHE_GB,
    }
    flags = [str(part) for pair in limits.items() for part in pair]
    return [*command, "serve", *([arguments.model] if arguments.model else []), *flags]
