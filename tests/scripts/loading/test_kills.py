"""scripts/kills in small: whatever a killed process left, the next start works and tidies up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.loading.kills import STAGES, Stage, kill_and_start


@pytest.mark.parametrize("make", STAGES)
def test_the_next_start_works(make: Callable[[Path], Stage], tmp_path: Path) -> None:
    """CLI-1: `kill -9` during prepare, serve, pull and the first extraction."""
    assert kill_and_start(make, tmp_path, n_kills=2, seed=1) == []
