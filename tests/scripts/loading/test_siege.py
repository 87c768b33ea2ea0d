"""scripts/siege in small: every attack on a server without a model, probes beside it, nothing left behind."""

from __future__ import annotations

import pytest

from helios.cli.server_process import ServerProcess
from scripts.loading.attacks import ATTACKS
from scripts.loading.main import scripted_command
from scripts.loading.siege import N_STREAMS, Siege


@pytest.mark.parametrize(("n", "names"), [(100, tuple(ATTACKS)), (3000, ("open and close",))])
def test_hostile_clients_hold_up_nobody_and_leave_nothing(n: int, names: tuple[str, ...]) -> None:
    """HTTP-1, HTTP-2."""
    with ServerProcess(scripted_command(N_STREAMS, 0)) as server:
        siege = Siege(server.endpoint, server.pid)
        lines = list(siege.run(n, names))
    assert siege.faults == []
    assert len(lines) == len(names)
    assert siege.n_probes > len(names)
