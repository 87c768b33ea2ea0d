"""A test that cannot run here is skipped, and in CI fails: a suite that tries nothing must not pass there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.sources import ROOT

SKIPPED = """
import pytest

@pytest.fixture
def program():
    pytest.skip("no program")

@pytest.mark.skipif(True, reason="no right")
def test_by_mark(): pass
def test_by_fixture(program): pass
def test_by_itself(): pytest.skip("no reason")
def test_that_runs(): pass
"""


@pytest.mark.parametrize(
    ("ci", "summary"), [({}, "1 passed, 3 skipped"), ({"CI": "true"}, "1 failed, 1 passed, 2 errors")]
)
def test_what_is_skipped_elsewhere_fails_in_ci(tmp_path: Path, ci: dict[str, str], summary: str) -> None:
    path = tmp_path / "test_skipped.py"
    path.write_text(SKIPPED)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | ci
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert summary in result.stdout
    assert ("skipped in CI" in result.stdout) == bool(ci)
