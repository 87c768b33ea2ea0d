"""`helios bench [MODEL | --url URL]`: decode, prefill, first token, start-up and memory of a server on this machine.

It measures through HTTP, servers that it starts itself or one that runs already; start-up and memory are a server's own and
need the former. What a server cannot be asked for is left out, and why is said. The same figures beside another engine are
what `scripts/bench` in the repository takes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from helios.cli import figures
from helios.cli.machine import processor
from helios.cli.measure import SPEED_FIGURES, HttpMeasure, start_figures
from helios.cli.model import add_settings, core_path, load_settings
from helios.cli.server_process import ServerProcess
from helios.cli.streams import Endpoint, add_endpoint, endpoint_of
from helios.corefile.reader import open_core
from helios.errors import SettingError, UnmeasurableError

CONTEXT_TOKENS = 2048  # of a request, while speed is measured
_MEMORY_CONTEXT_TOKENS = figures.MEMORY_PROMPT + figures.MEMORY_ANSWER
_SETTINGS = ("device", "threads", "kv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a .core, a .gguf, or nothing for the default model")
    add_endpoint(parser, "measure the server at this URL instead of starting one")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure of speed (default 5)")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of each decoded stream (default 128)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every measurement to FILE: tokens a second, seconds, bytes"
    )
    add_settings(parser, _SETTINGS)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the table. Raises RemoteError when a server does not answer as it should."""
    _check(arguments)
    endpoint = endpoint_of(arguments)
    taken = _Taken()
    if endpoint is not None:
        taken.speed(endpoint, arguments.rounds, arguments.tokens)
    else:
        taken.server(Server(arguments), arguments.rounds, arguments.tokens)
    print(figures.table({taken.model: taken.values}, {}))
    print(
        f"\nmedian (least..greatest) of {arguments.rounds} rounds{'' if endpoint else ', start-up and memory taken once'}; "
        f"{arguments.tokens} new tokens a stream, greedy"
    )
    print(f"{'asked from' if endpoint else 'on'} {processor()}, {len(os.sched_getaffinity(0))} processors")
    print(figures.meanings(tuple(taken.values), has_peer=False))
    for name, why in taken.left_out.items():
        print(f"left out: {figures.BY_NAME[name].title}: {why}")
    if arguments.json:
        arguments.json.write_text(json.dumps(taken.values, indent=2) + "\n")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """What can be said before anything is measured. Raises SettingError."""
    if arguments.url is not None:
        if arguments.model is not None:
            raise SettingError("a model and --url were both given", hint="a running server already has its model")
        for name in (*_SETTINGS, "config"):
            if getattr(arguments, name) is not None:
                raise SettingError(f"--{name} and --url were both given", hint="a running server has its own settings")
    if arguments.rounds < 1 or arguments.tokens < 16:
        raise SettingError(
            f"--rounds is {arguments.rounds} and --tokens {arguments.tokens}, at least 1 and 16 are needed"
        )
    if arguments.json and not arguments.json.parent.is_dir():
        raise SettingError(f"--json is {arguments.json}, and {arguments.json.parent} is not a directory")


class Server:
    """The commands that serve the model: this very program, on a free port, with no more room than the model was prepared for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        settings = load_settings(arguments)
        for name in ("tls_cert", "api_key_file"):
            if getattr(settings, name):
                raise SettingError(
                    f"setting {name} is given, and the server that is started here is asked without TLS and keys",
                    hint="start it with `helios serve` and measure it with --url",
                )
        with open_core(core_path(arguments.model, settings)) as core:  # prepared here, so that no start holds that
            self.context_tokens, self.concurrency = core.contract.context_tokens, core.contract.concurrency
        given = [(f"--{name}", getattr(arguments, name)) for name in (*_SETTINGS, "config")]
        self._flags = [str(word) for flag, value in given if value is not None for word in (flag, value)]
        self._model = [] if arguments.model is None else [arguments.model]

    def command(self, n_active: int, context_tokens: int) -> Sequence[str]:
        room = {
            "--max-active": min(n_active, self.concurrency),
            "--context": min(context_tokens, self.context_tokens),
        }
        flags = [str(word) for pair in {"--host": "127.0.0.1", "--port": 0, **room}.items() for word in pair]
        return [sys.executable, sys.argv[0], "serve", *self._model, *flags, *self._flags]


class _Taken:
    """Every measurement, and why a figure has none."""

    def __init__(self) -> None:
        self.model = ""
        self.values: dict[str, list[float]] = {}
        self.left_out: dict[str, str] = {}

    def server(self, server: Server, n_rounds: int, n_new_tokens: int) -> None:
        """All figures of a server that is started for them. The first start warms files and caches, and does not count."""
        fresh = server.command(figures.MEMORY_STREAMS, _MEMORY_CONTEXT_TOKENS)
        start_figures(fresh, with_memory=False)
        has_room = server.context_tokens >= _MEMORY_CONTEXT_TOKENS
        found = start_figures(fresh, with_memory=has_room)
        if not has_room:
            needed = f"it is measured with contexts of {_MEMORY_CONTEXT_TOKENS:,} tokens"
            self.left_out["rss"] = f"{needed}, the model was prepared for {server.context_tokens:,}"
        with ServerProcess(server.command(max(figures.DECODE_STREAMS), CONTEXT_TOKENS)) as running:
            self.speed(running.endpoint, n_rounds, n_new_tokens)
        self.values |= {name: [value] for name, value in found.items()}

    def speed(self, endpoint: Endpoint, n_rounds: int, n_new_tokens: int) -> None:
        """The figures of speed, round by round."""
        measure = HttpMeasure(endpoint)
        measure.warm()
        self.model = measure.workload.model
        for name in _progress([name for _ in range(n_rounds) for name in SPEED_FIGURES]):
            if name not in self.left_out:
                try:
                    self.values.setdefault(name, []).append(measure.take(name, n_new_tokens))
                except UnmeasurableError as error:
                    del self.values[name]
                    self.left_out[name] = str(error)


def _progress(names: list[str]) -> Iterable[str]:
    return tqdm(names, desc="measuring", unit="figure", delay=0.5, leave=False)
