"""What scripts/scale-out starts, and what it prints of a check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from scripts.scaling.main import fill, look


def test_addresses_are_filled_in_by_worker() -> None:
    workers: Any = [SimpleNamespace(http=f"h{i}", grpc=f"g{i}", kv=f"k{i}") for i in (1, 2)]
    words = fill("front --port {front} --to http://{http1} {grpc2} --events {kv1}={kv2}", workers, 80)
    assert words == ["front", "--port", "80", "--to", "http://h1", "g2", "--events", "k1=k2"]


@pytest.mark.parametrize("error", [AssertionError("no"), httpx.ReadError("gone"), StopIteration()])
def test_a_check_that_fails_is_told_and_the_others_go_on(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    scene: Any = None

    def fails(scene: object) -> str:
        raise error

    assert look(lambda scene: "seen", scene)
    assert not look(fails, scene)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["ok     <lambda>", "FAILED fails"]
