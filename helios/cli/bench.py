"""`helios bench [MODEL | --url URL]`: decode, prefill, first token, start-up and memory of a server on this machine.

It measures through HTTP, a server that it starts itself or one that runs already; start-up and memory are a server's own
and need the former. The same figures beside another engine are what `scripts/bench` in the repository takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from tqdm import tqdm

from helios.cli import figures
from helios.cli.measure import SPEED_FIGURES, HttpMeasure
from helios.cli.server_process import ServerProcess, peak_bytes
from helios.cli.streams import add_endpoint, endpoint_of
from helios.errors import SettingError

CONTEXT_TOKENS = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a .core, a .gguf, or nothing for the default model")
    add_endpoint(parser, "measure the server at this URL instead of starting one")
    parser.add_argument("--threads", type=int, help="worker threads of the server that is started")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure (default 5)")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of each decoded stream (default 128)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the table. Raises RemoteError when the server does not answer as it should."""
    if arguments.url is not None and arguments.model:
        raise SettingError("a model and --url were both given", hint="a running server already has its model")
    if arguments.rounds < 1 or arguments.tokens < 16:
        raise SettingError(
            f"--rounds is {arguments.rounds} and --tokens {arguments.tokens}, at least 1 and 16 are needed"
        )
    values: dict[str, list[float]] = {}
    with ExitStack() as stack:
        endpoint = endpoint_of(arguments)
        server = None
        if endpoint is None:
            server = stack.enter_context(ServerProcess(_serve_command(arguments)))
            endpoint = server.endpoint
        measure = HttpMeasure(endpoint)
        if server:
            values["startup"] = [(time.perf_counter_ns() - server.started_ns) / 1e9]
        for name in _progress([name for _ in range(arguments.rounds) for name in SPEED_FIGURES]):
            values.setdefault(name, []).append(measure.take(name, arguments.tokens))
        if server:
            values["rss"] = [float(peak_bytes(server.pid))]
    print(figures.table({measure.workload.model: values}, {}))
    print(f"\nmedian (least..greatest) of {arguments.rounds} rounds; {arguments.tokens} new tokens a stream, greedy")
    print(figures.meanings(tuple(values)))
    if arguments.json:
        arguments.json.write_text(json.dumps(values, indent=2) + "\n")
    return 0


def _serve_command(arguments: argparse.Namespace) -> list[str]:
    """This very program, serving on a free port with room for the widest measurement."""
    flags = ["--port", "0", "--max-active", str(max(figures.DECODE_STREAMS)), "--context", str(CONTEXT_TOKENS)]
    if arguments.threads:
        flags += ["--threads", str(arguments.threads)]
    return [sys.executable, sys.argv[0], "serve", *([arguments.model] if arguments.model else []), *flags]


def _progress(names: list[str]) -> Iterable[str]:
    return tqdm(names, desc="measuring", unit="figure", delay=0.5, leave=False)
