"""What a front before two Helios workers does, looked at from both sides.

It starts two workers and then the front, in whose command {http1}, {grpc1}, {kv1}, {kv2} and so on stand for the workers' addresses
and {front} for the port that it is to take.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from scripts.scaling.checks import REST_S, cancels, chats, loses_none, sticks, streams
from scripts.scaling.scene import Scene
from scripts.scaling.worker import START_S, Worker, free_port


def main() -> int:
    """The line of each check, and 1 where one has failed."""
    parser = argparse.ArgumentParser(prog="scripts/scale-out", description=__doc__)
    parser.add_argument("command", help="the front; {http1}, {grpc1}, {kv1}, {front}, ... are filled in")
    parser.add_argument("--beside", action="append", default=[], help="a process that the front needs besides")
    parser.add_argument(
        "--worker", default="--context 1024 --cache-gb 0.1 --threads 1 --max-active 2", help="settings of the workers"
    )
    parser.add_argument("--model", default="", help="the name to ask for (the workers')")
    parser.add_argument("--helios", default="helios.py", help="what is started as a worker: helios.py or a helios.pyz")
    parser.add_argument("--sticky", action="store_true", help="repeats of a prefix are to reach the worker that has it")
    parser.add_argument("--log", type=Path, default=Path("/dev/null"), help="the front's output")
    arguments = parser.parse_args()
    workers = [Worker.start(arguments.helios, shlex.split(arguments.worker)) for _ in range(2)]
    processes = [worker.process for worker in workers]
    try:
        for worker in workers:
            worker.wait()
        port = free_port()
        with arguments.log.open("wb") as log:
            for command in (*arguments.beside, arguments.command):
                words = fill(command, workers, port)
                print("$", shlex.join(words))
                processes.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT))
        model = arguments.model or httpx.get(f"http://{workers[0].http}/v1/models").json()["data"][0]["id"]
        scene = Scene(f"http://127.0.0.1:{port}", workers, model)
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(httpx.HTTPError):
                if scene.chat("hi", 1).status_code == 200:
                    break
            time.sleep(0.5)
        else:
            print(f"FAILED start: the front has not answered for {START_S:g} s")
            return 1
        time.sleep(REST_S)
        checks = [chats, streams, cancels, *([sticks] if arguments.sticky else []), loses_none]
        seen = [look(check, scene) for check in checks]
        return int(not all(seen))
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()


def fill(command: str, workers: Sequence[Worker], port: int) -> list[str]:
    names = {f"{kind}{i}": getattr(w, kind) for i, w in enumerate(workers, 1) for kind in ("http", "grpc", "kv")}
    return shlex.split(command.format(front=port, **names))


def look(check: Callable[[Scene], str], scene: Scene) -> bool:
    """Do a check and print its line; whether it went well."""
    name = check.__name__
    try:
        seen = check(scene)
    except (AssertionError, httpx.HTTPError, StopIteration, json.JSONDecodeError) as error:
        print(f"FAILED {name}: {error or type(error).__name__}", flush=True)
        return False
    print(f"ok     {name}: {seen}", flush=True)
    return True
