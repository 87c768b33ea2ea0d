"""A worker: a `helios serve` of its own, and what it says of itself.

It knows processes and metrics, no front.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from scripts.soaking.audit import read_metrics

START_S = 300.0
_ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@dataclass
class Worker:
    """A `helios serve` of its own. What it has done is read from its own metrics."""

    http: str
    grpc: str
    kv: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, helios: str, words: Sequence[str]) -> Worker:
        http, grpc, kv, replay = (free_port() for _ in range(4))
        command = [sys.executable, helios, "serve", "--port", str(http), "--grpc-port", str(grpc)]
        command += ["--kv-events", f"tcp://127.0.0.1:{kv}", "--kv-events-replay", f"tcp://127.0.0.1:{replay}"]
        command += ["--log-level", "warning", *words]
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL)
        return cls(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", f"tcp://127.0.0.1:{kv}", process)

    def number(self, name: str) -> float:
        """A metric, summed over its labels."""
        return read_metrics(httpx.get(f"http://{self.http}/metrics", timeout=10).text).get(name, 0.0)

    def wait(self) -> None:
        wait_for(f"http://{self.http}/ready", self.process)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            sys.exit(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    sys.exit(f"{url} never answered")
