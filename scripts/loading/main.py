"""The command: holds idle and streaming connections at once, asks beside them, and prints what the server did and what it cost.

`--scripted` serves a device that says letters, one round for all streams each `--round-ms`: what is left is the cost of scheduler,
engine and HTTP edge. Otherwise the model is served and its rounds take what they take.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from helios.cli.server_process import ServerProcess
from helios.cli.streams import Endpoint
from helios.errors import HeliosError, RemoteError
from scripts.loading.clients import HeldStreams, Rates, chat, connect, measure, read_response, request
from scripts.loading.costs import Costs

ROOT = Path(__file__).resolve().parents[2]
N_ASKING = 8  # connections that ask at once for the rates
SETTLE_S = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything. `n_stream_tokens` outlast the run."""

    n_idle: int
    n_streams: int
    n_requests: int
    seconds: float
    n_stream_tokens: int


@dataclass(frozen=True, slots=True)
class Report:
    """One run. CPU is per streamed token, memory per connection or stream."""

    n_idle: int
    n_streams: int
    idle_bytes: float
    stream_bytes: float
    tokens_per_s: float
    loop_us: float
    all_us: float
    refused: Rates
    accepted: Rates
    before: Costs
    after: Costs

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"held at once            {self.n_idle:,} idle, {self.n_streams:,} streaming",
            f"memory                  {self.idle_bytes / 1024:.1f} KiB an idle connection, "
            f"{self.stream_bytes / 1024:.1f} KiB a stream",
            f"streamed                {self.tokens_per_s:,.0f} tokens/s; CPU a token {self.loop_us:.1f} us in the event loop, "
            f"{self.all_us:.1f} us in all threads",
            f"refused (429)           {self.refused.per_second:,.0f}/s, p50 {self.refused.quantile_s(0.5) * 1e3:.2f} ms, "
            f"p99 {self.refused.quantile_s(0.99) * 1e3:.2f} ms",
            f"accepted, one token     {self.accepted.per_second:,.0f}/s, p99 {self.accepted.quantile_s(0.99) * 1e3:.2f} ms",
            f"afterwards              {self.after.n_descriptors} descriptors ({self.before.n_descriptors} before), "
            f"{self.after.resident_bytes / (1 << 20):.1f} MiB ({self.before.resident_bytes / (1 << 20):.1f} before)",
        ]


def run(endpoint: Endpoint, pid: int, plan: Plan, unpaced: Endpoint) -> Report:
    """Everything, in order; `unpaced` is the server whose rounds take as long as they take. RemoteError when one does not do what
    it should."""
    with ExitStack() as held:
        measure(endpoint, chat(1), N_ASKING, N_ASKING)  # what is made on first use
        before = settled(endpoint, pid)
        for _ in range(plan.n_idle):
            connection = held.enter_context(connect(endpoint))
            connection.sendall(request("GET", "/health"))
            read_response(connection)
        with_idle = Costs.of(pid)
        streams = HeldStreams()
        held.callback(streams.close)
        for _ in range(plan.n_streams):
            streams.add(endpoint, chat(plan.n_stream_tokens, is_stream=True))
        streams.pump(1.0, plan.n_streams)
        with_streams = Costs.of(pid)
        began_s = time.monotonic()
        n_tokens = streams.pump(plan.seconds, plan.n_streams)
        elapsed_s, flowed = time.monotonic() - began_s, Costs.of(pid)
        refused = measure(endpoint, chat(1), N_ASKING, plan.n_requests)
        n_streams = len(streams)
    after = settled(endpoint, pid)
    accepted = measure(unpaced, chat(1), N_ASKING, plan.n_requests)
    return Report(
        plan.n_idle,
        n_streams,
        (with_idle.resident_bytes - before.resident_bytes) / max(plan.n_idle, 1),
        (with_streams.resident_bytes - with_idle.resident_bytes) / max(plan.n_streams, 1),
        n_tokens / elapsed_s,
        (flowed.loop_s - with_streams.loop_s) / max(n_tokens, 1) * 1e6,
        (flowed.all_s - with_streams.all_s) / max(n_tokens, 1) * 1e6,
        refused,
        accepted,
        before,
        after,
    )


def settled(endpoint: Endpoint, pid: int) -> Costs:
    """When every connection but the asking one is gone; that one is open."""
    deadline_s = time.monotonic() + SETTLE_S
    with connect(endpoint) as connection:
        while True:
            connection.sendall(request("GET", "/metrics"))
            _, page = read_response(connection)
            if b"helios_http_connections 1.0" in page:
                return Costs.of(pid)
            if time.monotonic() > deadline_s:
                raise RemoteError(f"connections are open {SETTLE_S:.0f} s after their clients left: {page[:100]!r}")
            time.sleep(0.05)


def faults(plan: Plan, report: Report) -> list[str]:
    """What a report may not show: statuses that are not as asked for, streams that ended, descriptors that stayed."""
    found = [
        f"{name} requests were answered {dict(rates.statuses)}"
        for name, rates, status in (("surplus", report.refused, 429), ("good", report.accepted, 200))
        if set(rates.statuses) != {status}
    ]
    if report.n_streams != plan.n_streams:
        found.append(f"{report.n_streams} of {plan.n_streams} streams were open in the end")
    if report.after.n_descriptors > report.before.n_descriptors:
        found.append(f"{report.after.n_descriptors} descriptors are open, {report.before.n_descriptors} were before")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/load", description=__doc__)
    parser.add_argument("--idle", type=int, default=1000, help="connections held open without a request (1,000)")
    parser.add_argument("--streams", type=int, default=256, help="streams held open beside them (256)")
    parser.add_argument("--requests", type=int, default=2000, help="requests for each of the two rates (2,000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long tokens are counted (5)")
    parser.add_argument("--scripted", action="store_true", help="serve a device that says letters instead of the model")
    parser.add_argument("--round-ms", type=float, default=50.0, help="time of a scripted round (50)")
    parser.add_argument("--product", metavar="COMMAND", help="how to run Helios (python dist/helios.pyz)")
    arguments = parser.parse_args()
    plan = Plan(
        arguments.idle, arguments.streams, arguments.requests, arguments.seconds, 3000 if arguments.scripted else 1500
    )
    try:
        with ExitStack() as stack:
            if arguments.scripted:
                server = stack.enter_context(ServerProcess(scripted_command(plan.n_streams, arguments.round_ms)))
                unpaced = stack.enter_context(ServerProcess(scripted_command(plan.n_streams, 0)))
            else:
                server = unpaced = stack.enter_context(ServerProcess(_model_command(arguments)))
            report = run(server.endpoint, server.pid, plan, unpaced.endpoint)
    except HeliosError as error:
        print(f"load: FAILED: {error}")
        return 1
    print("\n".join(report.lines()))
    found = faults(plan, report)
    print("\n".join(f"load: {fault}" for fault in found) or "load: ok")
    return 1 if found else 0


def scripted_command(n_streams: int, round_ms: float) -> list[str]:
    """Room for so many streams and none beside them."""
    module = [sys.executable, "-m", "scripts.loading.scripted_server", str(n_streams - 1), str(round_ms)]
    return [*module, "port=0", "queue_capacity=1", "idle_timeout=600", "log_level=warning"]


def _model_command(arguments: argparse.Namespace) -> list[str]:
    product = shlex.split(arguments.product or f"{sys.executable} {ROOT / 'dist' / 'helios.pyz'}")
    n_active = min(16, arguments.streams - 1)
    limits = {
        "--port": 0,
        "--max-active": n_active,
        "--context": 2048,
        "--queue-capacity": arguments.streams - n_active,
        "--idle-timeout": 600,
        "--log-level": "warning",
    }
    return [*product, "serve", *(str(part) for pair in limits.items() for part in pair)]
