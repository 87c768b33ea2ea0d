"""The file that `build.py` made, run as its user runs it: by a Python that has nothing installed."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.building.project import Project
from tests.repo.sources import ROOT


@pytest.fixture(scope="module")
def zipapp() -> Path:
    """`dist/helios.pyz`; build.py makes it before it runs the tests."""
    path = Project.load(ROOT).zipapp
    if not path.exists():
        pytest.skip("dist/helios.pyz is not there: run build.py")
    return path


def bare_python() -> list[str]:
    """The interpreter that the environment was made from, without the environment."""
    return [str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")), "-I"]


def test_it_serves_with_nothing_installed(zipapp: Path, default_core: Path) -> None:
    """Issue 2: every wheel that serving needs is inside, and the native libraries are found."""
    command = [*bare_python(), zipapp, "serve", default_core, "--port", "0", "--context", "512", "--max-active", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = []
        while not (address := re.search(r"http://([\d.]+):(\d+)", lines[-1] if lines else "")):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        connection = http.client.HTTPConnection(address[1], int(address[2]))
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.load(connection.getresponse())
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert answer["usage"]["completion_tokens"] == 2, answer


def test_every_verb_says_what_it_takes(zipapp: Path) -> None:
    """Every module that the command line names is inside."""
    help_text = subprocess.run([*bare_python(), zipapp, "--help"], capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^  (\w+) ", help_text.split("verbs:")[1], re.MULTILINE)
    assert {"serve", "pull", "prepare", "inspect", "chat", "bench"} <= set(verbs)
    for verb in verbs:
        result = subprocess.run([*bare_python(), zipapp, verb, "--help"], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
