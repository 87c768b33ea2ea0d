"""Scripts run in the checkout's `.venv`, whichever Python starts them, and say so where it is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.environment import ROOT

PYTHON = Path(sys.base_prefix) / "bin" / "python3"  # outside `.venv`
SCRIPTS = [
    path.name
    for path in sorted((ROOT / "scripts").iterdir())
    if path.is_file() and path.suffix == "" and "python" in path.read_text().split("\n", 1)[0]
]


@pytest.fixture(scope="module")
def bare_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts alone."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "scripts", root / "scripts")
    return root


def start(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, *words], capture_output=True, text=True, check=False)


def test_a_script_finds_its_packages() -> None:
    result = start(ROOT / "scripts" / "soak-scheduler", "--help")
    assert result.returncode == 0, result.stderr
    assert "--steps" in result.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_without_packages_one_line_says_what_to_do(bare_checkout: Path, name: str) -> None:
    result = start(bare_checkout / "scripts" / name)
    assert result.returncode == 1
    assert result.stderr == f"{name}: its packages are not in {bare_checkout / '.venv'}; run `python3 build.py` first\n"
