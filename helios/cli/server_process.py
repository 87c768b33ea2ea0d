"""A server started as a child for a measurement: spawned, found by the URL it prints, watched and ended.

It knows a server only as a command that prints its URL and answers /ready. The child's output is always drained, and the
child never outlives its owner's close().
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from helios.cli.streams import Endpoint
from helios.errors import RemoteError
from helios.owner import Owner

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
READY_POLL_S = 0.005
URL = re.compile(r"http://[\w.\[\]:-]+:\d+")


class ServerProcess(Owner):
    """One child server. `started_ns` is when it was spawned; it is ready when the constructor returns."""

    def __init__(self, command: Sequence[str]) -> None:
        self._last_lines: deque[str] = deque(maxlen=5)
        self._url: str | None = None
        self._url_seen = threading.Event()
        self.started_ns = time.perf_counter_ns()
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._drain, name="server-output", daemon=True)
        self._reader.start()
        try:
            self.endpoint = self._wait_ready(time.monotonic() + START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def last_words(self) -> str:
        return " / ".join(self._last_lines) or "it printed nothing"

    @property
    def exit_status(self) -> int | None:
        return self._child.poll()

    def close(self) -> None:
        """SIGTERM, wait for the drain, then SIGKILL."""
        self._child.terminate()
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join()
        if self._child.stdout:
            self._child.stdout.close()

    def _drain(self) -> None:
        for line in self._child.stdout or ():
            self._last_lines.append(line.strip()[:300])
            if self._url is None and (match := URL.search(line)):
                self._url = match.group()
                self._url_seen.set()
        self._url_seen.set()

    def _wait_ready(self, deadline_s: float) -> Endpoint:
        if not self._url_seen.wait(max(0.0, deadline_s - time.monotonic())):
            raise RemoteError(f"the server printed no URL in {START_TIMEOUT_S:,.0f} s: {self.last_words}")
        if self._url is None:
            self._child.wait()
            raise RemoteError(f"the server ended with status {self.exit_status}: {self.last_words}")
        endpoint = Endpoint.from_url(self._url)
        while not _is_ready(endpoint):
            if self.exit_status is not None or time.monotonic() > deadline_s:
                raise RemoteError(f"the server at {self._url} did not become ready: {self.last_words}")
            time.sleep(READY_POLL_S)
        return endpoint


def _is_ready(endpoint: Endpoint) -> bool:
    try:
        return endpoint.get("/ready", timeout_s=5)[0] == 200
    except RemoteError:
        return False


def peak_bytes(pid: int) -> int:
    """The largest resident memory that process `pid` has had, its children's included (Linux's VmHWM)."""
    total = _status_kib(pid, "VmHWM") << 10
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(peak_bytes(int(child)) for child in children)


def processor_s(pid: int) -> float:
    """Processor time that process `pid` has used, user and system (fields 14 and 15 of /proc/pid/stat, in 1/100 s)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0
