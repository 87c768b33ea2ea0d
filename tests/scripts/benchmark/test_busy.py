"""What is kept of a speed beside a busy loop: the quotient, its order, and that the loop is there only while it should be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.benchmark.busy import share_kept


def n_children() -> int:
    return sum(
        len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")
    )  # of every thread of this process


class ScriptedContender:
    """Decodes 100 tokens a second alone, and 40 while this process has one child more than when it was made."""

    pid = os.getpid()

    def __init__(self) -> None:
        self.n_children = n_children()
        self.taken: list[tuple[str, int, bool]] = []

    def take(self, name: str, n_new_tokens: int) -> float:
        is_busy = n_children() > self.n_children
        self.taken.append((name, n_new_tokens, is_busy))
        return 40.0 if is_busy else 100.0

    def close(self) -> None: ...


@pytest.mark.parametrize("is_busy_first", [True, False])
def test_the_share_is_speed_beside_the_loop_by_speed_without_it(is_busy_first: bool) -> None:
    contender = ScriptedContender()
    assert share_kept(contender, 8, 32, is_busy_first) == 0.4
    assert contender.taken == [("decode_8", 32, is_busy_first), ("decode_8", 32, not is_busy_first)]
    assert n_children() == contender.n_children


def test_a_failed_measurement_leaves_no_loop_behind() -> None:
    contender = ScriptedContender()

    def fail(name: str, n_new_tokens: int) -> float:
        raise OSError("gone")

    contender.take = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="gone"):
        share_kept(contender, 1, 32, is_busy_first=True)
    assert n_children() == contender.n_children
