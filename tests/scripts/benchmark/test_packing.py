"""The packing benchmark on the smallest core there is."""

from __future__ import annotations

from scripts.benchmark.packing import measure
from tests.golden.golden import core_path


def test_every_number_of_lanes_that_the_core_has_is_measured() -> None:
    """CON-9: packing, with its copy, with the launch; each takes some time."""
    ((n_lanes, times_us),) = measure(core_path("payload2-contract3"), 3)
    assert n_lanes == 1
    assert len(times_us) == 3
    assert all(time_us > 0 for time_us in times_us)
