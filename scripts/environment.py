"""Goes on with a script in the checkout's `.venv`, where the packages are, whichever Python started it.

It knows no script and no package, and imports nothing but what is in Python. Each script calls it before its other imports.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def enter_environment() -> None:
    """Return if this process runs in `.venv`; else start it there again. One line says what to do when `.venv` is not whole."""
    environment = ROOT / ".venv"
    if Path(sys.prefix).resolve() == environment:
        return
    if not (environment / "test-packages.stamp").exists():  # `build.py serve` leaves it out
        sys.exit(f"{Path(sys.argv[0]).name}: its packages are not in {environment}; run `python3 build.py` first")
    python = str(environment / "bin" / "python")
    os.execv(python, [python, *sys.orig_argv[1:]])
