"""The lm-eval harness in an environment of its own, run as its users run it: from the command line, on task files.

It knows nothing of Helios but a URL. Nothing is downloaded for a run: the tasks and their data are files here, and the tokenizer is
the server's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TASKS = Path(__file__).resolve().parent / "tasks"
ENVIRONMENT = ROOT / "build" / "evaluate"
REQUIREMENT = "lm_eval[api]==0.4.13"


@dataclass(frozen=True, slots=True)
class Sample:
    """One document of a task, what was asked of the model about it, and what the harness took from the answers."""

    arguments: list[tuple[str, ...]]
    responses: list[Any]


def harness_python() -> Path:
    """The Python of the harness's environment, made when it is not there (some minutes, once)."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "built"
    if stamp.exists() and stamp.read_text() == REQUIREMENT:
        return python
    print(f"installing {REQUIREMENT} (some minutes, once)", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
    stamp.write_text(REQUIREMENT)
    return python


def evaluate(
    python: Path, model: str, url: str, tasks: list[str], output: Path, *options: str, **arguments: Any
) -> dict[str, dict[str, float]]:
    """Run tasks with one of the harness's clients; returns the metrics by task. Its samples are left in `output`."""
    given = ",".join(f"{name}={value}" for name, value in ({"base_url": url} | arguments).items())
    command: list[str | Path] = [
        python,
        "-m",
        "lm_eval",
        "run",
        "--model",
        model,
        "--model_args",
        given,
        "--tasks",
        ",".join(tasks),
    ]
    command += ["--include_path", TASKS, "--output_path", output, "--log_samples", *options]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(output / "cache")}
    log = output / "log"
    output.mkdir(parents=True)
    with log.open("w") as words:
        done = subprocess.run(command, cwd=TASKS, env=os.environ | offline, stdout=words, stderr=words, check=False)
    if done.returncode:
        raise SystemExit(f"the harness failed; the end of {log} says why:\n{log.read_text()[-3000:]}")
    (results,) = output.rglob("results_*.json")
    found: dict[str, dict[str, float]] = json.loads(results.read_text())["results"]
    return found


def samples(output: Path, task: str) -> list[Sample]:
    """What a run has logged of a task's documents."""
    (path,) = output.rglob(f"samples_{task}_*.jsonl")
    return [_sample(json.loads(line)) for line in path.read_text().splitlines()]


def _sample(logged: dict[str, Any]) -> Sample:
    arguments = [tuple(each.values()) for each in logged["arguments"].values()]
    return Sample(arguments, [response[0] for response in logged["resps"]])
