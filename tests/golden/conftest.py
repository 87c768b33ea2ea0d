"""What golden cores need around them: a home directory of their own, and the key of the sealed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.golden import CORE_KEY


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HELIOS_HOME, where acceptances are recorded."""
    directory = tmp_path / "home"
    monkeypatch.setenv("HELIOS_HOME", str(directory))
    monkeypatch.setenv("HELIOS_CORE_KEY", CORE_KEY.hex())
    return directory
