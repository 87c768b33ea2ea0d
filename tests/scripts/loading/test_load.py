"""scripts/load in small: connections held and requests beside them, on a server without a model."""

from __future__ import annotations

import pytest

from helios.cli.server_process import ServerProcess
from helios.errors import RemoteError
from scripts.loading.clients import HeldStreams, chat
from scripts.loading.main import Plan, faults, run, scripted_command


def test_a_small_load_is_held_refused_answered_and_forgotten() -> None:
    """HTTP-1, HTTP-2: 100 idle and 16 streaming connections at once, refusals beside them, and nothing is left of them."""
    plan = Plan(n_idle=100, n_streams=16, n_requests=64, seconds=0.5, n_stream_tokens=3000)
    with ServerProcess(scripted_command(plan.n_streams, 20)) as server:
        report = run(server.endpoint, server.pid, plan, server.endpoint)
    assert faults(plan, report) == []
    assert len(report.lines()) == 6
    assert report.tokens_per_s > 0
    assert 0 <= report.loop_us <= report.all_us
    assert 0 < report.before.loop_s < report.before.all_s
    assert report.refused.quantile_s(0.5) <= report.refused.quantile_s(0.99)
    assert len(report.accepted.times_s) == 64


def test_a_stream_that_finds_no_room_stops_the_run() -> None:
    with ServerProcess(scripted_command(2, 20)) as server:
        streams = HeldStreams()
        streams.add(server.endpoint, chat(3000, is_stream=True))
        streams.add(server.endpoint, chat(3000, is_stream=True))
        with pytest.raises(RemoteError, match="429"):
            streams.add(server.endpoint, chat(3000, is_stream=True))
        streams.close()
