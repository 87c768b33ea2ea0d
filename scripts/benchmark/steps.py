"""The command: what a decode step costs the host, by part and by thread, engine alone and through HTTP in alternated rounds.

The engine runs the default model on the CPU in a process of its own; the client that reads the streams lives in this one. A busy
machine makes the figures worthless. Two ways to have it for itself: give its session a high weight (`/proc/self/autogroup`), which
keeps ordinary scheduling, or real-time priority (`chrt -f 10`), under which this program raises Python's threads above the pool's.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection

from helios.cli.streams import Endpoint
from helios.cli.workload import Workload
from helios.engine import Engine
from helios.ignition.prepared_core import prepared_core
from helios.ignition.pull import pull_default_model
from helios.scheduler.request import Failed, Finished, GenerationRequest
from helios.server.access import Access
from helios.server.listener import Listener, bind
from helios.server.server import Server
from helios.settings import Settings
from scripts.benchmark.step_probe import PARTS, StepProbe, Steps, ThreadUse

N_PROMPT = 40
WAYS = ("engine", "HTTP")
_NO_USE = ThreadUse(0.0, 0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print microseconds a step, and the ratio of a step through HTTP to one of the engine alone."""
    parser = argparse.ArgumentParser(prog="scripts/bench-steps", description=__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4, 8, 16, 32], help="streams at once")
    parser.add_argument("--tokens", type=int, default=160, help="new tokens a stream (160)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each with both ways (5)")
    chosen = parser.parse_args(arguments)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, max(chosen.lanes)), daemon=True)
    server.start()
    theirs.close()  # so that the server's end is noticed here
    raise_python_threads()
    bench = _Bench(ours, Workload(Endpoint("127.0.0.1", ours.recv()), seed=1), chosen.tokens)
    for n_lanes in chosen.lanes:
        bench.take("engine", n_lanes)  # so that the cost of every program is known
        found: dict[str, list[Steps]] = {way: [] for way in WAYS}
        for index in range(chosen.rounds):
            for way in WAYS if index % 2 == 0 else reversed(WAYS):
                found[way].append(bench.take(way, n_lanes))
        _show(n_lanes, found)
    ours.send(None)
    server.join()
    return 0


class _Bench:
    """Asks the server process to generate, and reads what it streams."""

    def __init__(self, pipe: Connection, workload: Workload, n_tokens: int) -> None:
        self._pipe = pipe
        self._workload = workload
        self._n_tokens = n_tokens

    def take(self, way: str, n_lanes: int) -> Steps:
        """The steps of so many streams, one of WAYS."""
        self._pipe.send((way, n_lanes, self._n_tokens))
        if way == "HTTP":
            self._pipe.recv()
            self._workload.run(n_lanes, N_PROMPT, self._n_tokens)
            self._pipe.send(None)
        steps: Steps = self._pipe.recv()
        return steps


def _show(n_lanes: int, found: dict[str, list[Steps]]) -> None:
    ratios = [http.wall_us / engine.wall_us for engine, http in zip(found["engine"], found["HTTP"], strict=True)]
    print(f"{n_lanes} streams: HTTP / engine {_spread(ratios, '.3f')}")
    for way, rounds in found.items():
        print(f"  {way:6} step {_spread([steps.wall_us for steps in rounds])} us, starved ", end="")
        print(_spread([steps.starved for steps in rounds], ".2f"))
        for part in PARTS:
            print(f"    {part:20} {_spread([steps.parts_us[part] for steps in rounds])}")
        for name in sorted({name for steps in rounds for name in steps.threads}):
            uses = [steps.threads.get(name, _NO_USE) for steps in rounds]
            running, ready = [use.running_us for use in uses], [use.ready_us for use in uses]
            print(f"    thread {name:13} {_spread(running)}, waits for a processor {_spread(ready)}")
    print(end="", flush=True)


def _spread(values: Sequence[float], form: str = ".0f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def raise_python_threads() -> None:
    """At real-time priority a thread that wakes waits until another of its priority sleeps, which those of the pool do not in
    decoding; in ordinary scheduling it does not wait so."""
    if os.sched_getscheduler(0) != os.SCHED_FIFO:
        return
    above = os.sched_param(os.sched_getparam(0).sched_priority + 1)
    for thread in threading.enumerate():
        if thread.native_id is not None:
            os.sched_setscheduler(thread.native_id, os.SCHED_FIFO, above)


# -- the server process


def _serve(pipe: Connection, n_most: int) -> None:
    core = prepared_core(pull_default_model(lambda n_done_bytes, n_total_bytes: None))
    settings = Settings(port=0, device="cpu", context=512, max_active=max(16, n_most))
    with Engine.start(core, settings) as engine, bind(settings) as listener:
        asyncio.run(_serve_until_told(pipe, engine, settings, listener))


async def _serve_until_told(pipe: Connection, engine: Engine, settings: Settings, listener: Listener) -> None:
    loop = asyncio.get_running_loop()
    probe = StepProbe(engine)
    server = Server(engine, settings, Access())
    await server.start(listener)
    pipe.send(listener.socket.getsockname()[1])
    while (asked := await loop.run_in_executor(None, pipe.recv)) is not None:
        raise_python_threads()
        way, n_lanes, n_tokens = asked
        probe.begin(n_lanes)
        if way == "HTTP":
            pipe.send(None)
            await loop.run_in_executor(None, pipe.recv)
        else:
            await asyncio.gather(*(_generate(engine, index, n_tokens) for index in range(n_lanes)))
        pipe.send(probe.end())
    await server.stop()


async def _generate(engine: Engine, index: int, n_tokens: int) -> None:
    """One stream, read as the server reads it and shown to nobody."""
    text = f"Story {index}: " + "once upon a time there was " * N_PROMPT
    prompt = engine.tokenizer.encode(text, allow_special=False)[:N_PROMPT]
    generation = engine.submit(GenerationRequest(tuple(prompt), n_tokens, (), uses_cache=False))
    while not isinstance(last := (await generation.next_batch())[-1], Finished):
        if isinstance(last, Failed):
            raise last.error
