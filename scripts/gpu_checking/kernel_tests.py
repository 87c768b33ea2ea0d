"""The kernels' tests on the device in question, in a process of their own: a kernel that breaks the device breaks it there.

It knows pytest's report, not what is tested. At the end of its time pytest is interrupted, and what it has not run is counted.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What no other test covers comes first: a row's bits alone and among many, and in every place of a tile.
TESTS = (Path("tests/kernels/test_exactness.py"), Path("tests/kernels"))
GRACE_S = 10.0  # for pytest to end by itself


@dataclass(frozen=True)
class Outcome:
    """How many tests passed; those that failed, or why none ran; how many found no time; kernels that none has launched."""

    n_passed: int
    failed: tuple[str, ...]
    n_left_out: int
    not_launched: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.n_passed} passed, {len(self.failed)} failed, {self.n_left_out} left out"


def run(target: str, paths: Sequence[Path], limit_s: float) -> Outcome:
    """Run the tests under `paths` that are for `target`, cuda or simt."""
    options = ["-v", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "scripts.gpu_checking.launched_kernels"]
    command = [sys.executable, "-u", "-m", "pytest", *options, "-k", target, *map(str, paths)]
    environment = os.environ | {"COLUMNS": "400"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            text, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                text, _ = process.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
    return read_report(text)


def read_report(text: str) -> Outcome:
    """What pytest -v has said, be it to the end or not."""
    results = re.findall(r"^\S+::.* (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b", text, re.MULTILINE)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.+)", text, re.MULTILINE)
    failed = failed or re.findall(
        r"^(\S+::.*) (?:FAILED|ERROR)\b", text, re.MULTILINE
    )  # it was killed before its summary
    selected = re.search(r"^collected (\d+) items?(?: / (?:\d+ deselected / )?(\d+) selected)?", text, re.MULTILINE)
    n_selected = int(selected.group(2) or selected.group(1)) if selected else 0
    if not results:
        lines = [line for line in text.splitlines() if line.strip()] or ["pytest said nothing"]
        failed = [lines[-1].strip("= ")]
    launched = re.search(r"^never launched: ?(.*)", text, re.MULTILINE)
    return Outcome(
        results.count("PASSED"),
        tuple(failed),
        max(0, n_selected - len(results)),
        tuple(launched.group(1).split()) if launched else (),
    )
