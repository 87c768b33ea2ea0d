"""The audit after a soak: every kind of leak is a sentence, and a quiet server is none."""

from __future__ import annotations

import os

import pytest

from scripts.soaking.audit import Resources, is_settled, metric_breaches, read_metrics, resource_breaches

QUIET = {
    "requests_waiting": 0.0,
    "requests_running": 0.0,
    "requests_admitted": 0.0,
    "cache_pages_held": 0.0,
    "rounds_in_flight": 0.0,
    "slots_free": 8.0,
    "slots": 8.0,
    "requests_submitted_total": 100.0,
    "requests_finished_total": 70.0,
    "requests_cancelled_total": 30.0,
    "requests_failed_total": 0.0,
}
MIB = 1 << 20


def test_a_quiet_server_has_no_breach() -> None:
    assert is_settled(QUIET)
    assert metric_breaches(QUIET) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache_pages_held", 1),
        ("slots_free", 7),
        ("requests_running", 1),
        ("requests_cancelled_total", 29),
    ],
)
def test_one_leaked_thing_is_one_breach(name: str, value: float) -> None:
    assert len(metric_breaches(QUIET | {name: value})) == 1


def test_a_failed_request_is_a_breach() -> None:
    assert metric_breaches(QUIET | {"requests_failed_total": 1.0, "requests_finished_total": 69.0})


def test_metrics_are_added_up_over_their_labels() -> None:
    text = (
        "# HELP helios_slots x\nhelios_slots 3.0\n"
        'helios_requests_total{route="/"} 4.0\nhelios_requests_total{route="a b"} 1.0\nother 1e3\n'
    )
    assert read_metrics(text) == {"slots": 3.0, "requests_total": 5.0, "other": 1000.0}


@pytest.mark.parametrize(
    ("after", "word"),
    [
        (Resources(9, 8, 300 * MIB), "descriptors"),
        (Resources(8, 9, 300 * MIB), "threads"),
        (Resources(8, 8, 311 * MIB), "memory"),
    ],
)
def test_what_grew_is_named(after: Resources, word: str) -> None:
    (breach,) = resource_breaches(Resources(8, 8, 200 * MIB), Resources(8, 8, 300 * MIB), after)
    assert word in breach


def test_memory_may_settle_but_not_grow() -> None:
    assert resource_breaches(Resources(8, 8, 0), Resources(8, 8, 300 * MIB), Resources(7, 8, 309 * MIB)) == []


def test_resources_of_this_process_are_read() -> None:
    resources = Resources.of(os.getpid())
    assert resources.n_descriptors > 2
    assert resources.n_threads >= 1
    assert resources.resident_bytes > MIB
