"""The rounds: who is measured when, beside what, and what is recorded."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from helios.cli.measure import SPEED_FIGURES
from scripts.benchmark import busy, rounds
from scripts.benchmark.floors import Floors
from scripts.benchmark.rounds import PEER, PRODUCT, QUICK, Record, busy_rounds, speed_rounds

PLAN = replace(QUICK, rounds=4, least_rounds=4, busy_rounds=4, n_new_tokens=32)


class ScriptedContender:
    """Says when it was asked for what, in one list for both."""

    pid = os.getpid()

    def __init__(self, who: str, asked: list[tuple[str, str]], speed: float) -> None:
        self.who, self.asked, self.speed = who, asked, speed

    def take(self, name: str, n_new_tokens: int) -> float:
        assert n_new_tokens == PLAN.n_new_tokens
        self.asked.append((self.who, name))
        return self.speed

    def close(self) -> None: ...


@pytest.fixture
def asked() -> list[tuple[str, str]]:
    return []


def both(asked: list[tuple[str, str]]) -> tuple[ScriptedContender, ScriptedContender]:
    return ScriptedContender(PRODUCT, asked, 200.0), ScriptedContender(PEER, asked, 100.0)


def test_each_figure_is_taken_from_both_at_once_and_the_order_swaps(
    asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Floors, "take", lambda self: None)
    record = Record()
    speed_rounds(*both(asked), Floors(1, 1, 1, 1), PLAN, record, began_s=0.0)
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert [name for (_, name), _ in pairs] == list(SPEED_FIGURES) * PLAN.rounds
    assert all(first[1] == second[1] and first[0] != second[0] for first, second in pairs)
    firsts = [first[0] for first, _ in pairs[:: len(SPEED_FIGURES)]]
    assert firsts == [PRODUCT, PEER, PRODUCT, PEER]
    assert record.values[PRODUCT] == {name: [200.0] * PLAN.rounds for name in SPEED_FIGURES}


def test_beside_a_busy_loop_each_order_of_contenders_meets_each_order_of_loop_and_quiet(
    asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[tuple[str, bool]] = []

    def kept(running: ScriptedContender, n_streams: int, n_new_tokens: int, is_busy_first: bool) -> float:
        if n_streams == 1:
            orders.append((running.who, is_busy_first))
        return busy.share_kept(running, n_streams, n_new_tokens, is_busy_first)

    monkeypatch.setattr(rounds, "share_kept", kept)
    monkeypatch.setattr(rounds, "is_scheduled_ordinarily", lambda: True)  # however the tests are run
    record = Record()
    busy_rounds(*both(asked), PLAN, record)
    assert len(set(orders[::2])) == 4
    assert record.values[PRODUCT] == {"busy_1": [1.0] * 4, "busy_8": [1.0] * 4} == record.values[PEER]


def test_no_busy_loop_is_started_at_real_time_priority(
    asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_FIFO)
    busy_rounds(*both(asked), PLAN, Record())
    assert not asked
    assert "no rounds beside a busy loop" in capsys.readouterr().err
