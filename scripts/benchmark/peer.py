"""llama.cpp as the peer: its own environment, built once, and a worker process in it that answers one command a line.

It knows nothing of Helios. The worker waits in a read between commands, and is told what to do with JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from helios.owner import Owner

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / "build" / "bench" / "peer"
FORMATS = ("q4_0",)  # those that the peer can make of a checkpoint, and is faster with


def peer_python() -> Path:
    """The Python of the peer's environment, made and built when it is not there (four minutes on two cores, once)."""
    python = ENVIRONMENT / "bin" / "python"
    (requirement,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["bench"]
    stamp = ENVIRONMENT / "built"
    recipe = requirement + "\n" + (HERE / "tile_config.h").read_text()
    if stamp.exists() and stamp.read_text() == recipe:
        return python
    log = ENVIRONMENT.with_name("peer-build.log")
    print(
        f"building the peer, {requirement} (some minutes, once; {log.relative_to(ROOT)})", file=sys.stderr, flush=True
    )
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    # Always from source, for this processor (its -march=native default), with the one correction tile_config.h explains.
    variables = os.environ | {"CXXFLAGS": f"-include {HERE / 'tile_config.h'}", "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    install = [python, "-m", "pip", "install", "--no-cache-dir", "--no-binary", "llama-cpp-python", requirement]
    with log.open("w") as output:
        if subprocess.run(install, env=variables, stdout=output, stderr=subprocess.STDOUT, check=False).returncode != 0:
            raise SystemExit(f"the peer does not build; the end of {log} says why")
    stamp.write_text(recipe)
    return python


def in_format(gguf: Path, name: str) -> Path:
    """The checkpoint in one of FORMATS, made under build/bench when it is not there."""
    with gguf.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    made = ENVIRONMENT.with_name(f"{gguf.stem}-{name}-{digest[:8]}.gguf")
    if made.exists():
        return made
    part, log = made.with_suffix(".part"), ENVIRONMENT.with_name("peer-quantise.log")
    with log.open("w") as output:
        command: list[str | Path] = [peer_python(), HERE / "peer_quantise.py", gguf, name, part]
        if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode != 0:
            raise SystemExit(f"the peer does not make {name} of {gguf}; the end of {log} says why")
    part.rename(made)
    return made


class Peer(Owner):
    """One worker. `started_ns` is when it was spawned; the first answer comes after it has loaded the model."""

    def __init__(self, gguf: Path, n_threads: int, n_sequences: int, context_tokens: int, is_plain: bool) -> None:
        settings = {
            "gguf": str(gguf),
            "n_threads": n_threads,
            "n_sequences": n_sequences,
            "n_context": n_sequences * context_tokens,
            "is_repacked": not is_plain,
            "is_unified": False,
        }
        command = [str(peer_python()), str(HERE / "peer_worker.py"), json.dumps(settings)]
        self.started_ns = time.perf_counter_ns()
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Run one command of peer_worker.py and return its answer."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"the peer ended with status {self._child.wait()} during {do}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._child.communicate()
