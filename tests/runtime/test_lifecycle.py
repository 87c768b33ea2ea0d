"""Counting sequences: every one ends in exactly one count, and every gap between tokens is taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helios.errors import DeviceError
from helios.metrics import Histogram
from helios.runtime.lifecycle import Lifecycle
from helios.scheduler.request import Event, Failed, Finished, FinishReason, Token, Usage

ENDINGS: list[Event] = [*(Finished(reason, Usage(7, 3, 5)) for reason in FinishReason), Failed(DeviceError("gone"))]
COUNTS = [
    'requests_finished_total{reason="eos"}',
    'requests_finished_total{reason="limit"}',
    'requests_finished_total{reason="stop"}',
    "requests_cancelled_total",
    "requests_failed_total",
]  # of the endings above, in order


def histogram(lifecycle: Lifecycle, name: str) -> tuple[int, float]:
    found = lifecycle.statistics()[name]
    assert isinstance(found, Histogram)
    return found.count, round(found.sum, 9)


def test_a_sequences_times_are_those_of_its_deliveries() -> None:
    """MET-1: arrival to first token, every gap, arrival to the end."""
    lifecycle = Lifecycle()
    times = lifecycle.submit(10.0)
    lifecycle.take(times, [Token(1)], 10.5)
    lifecycle.take(times, [Token(2)], 10.75)
    lifecycle.take(times, [Token(3), Finished(FinishReason.EOS, Usage(7, 3, 5))], 12.0)
    assert histogram(lifecycle, "time_to_first_token_seconds") == (1, 0.5)
    assert histogram(lifecycle, "inter_token_seconds") == (2, 1.5)
    assert histogram(lifecycle, "request_seconds") == (1, 2.0)
    assert histogram(lifecycle, "request_prompt_tokens") == (1, 7)
    assert histogram(lifecycle, "request_output_tokens") == (1, 3)
    assert histogram(lifecycle, "request_reused_tokens") == (1, 5)


def test_sequences_that_did_not_finish_are_in_no_distribution_of_finished_ones() -> None:
    lifecycle = Lifecycle()
    lifecycle.take(lifecycle.submit(0.0), [Finished(FinishReason.CANCELLED, Usage(7, 0))], 1.0)
    lifecycle.take(lifecycle.submit(0.0), [Failed(DeviceError("gone"))], 1.0)
    assert histogram(lifecycle, "request_seconds") == (0, 0)
    assert histogram(lifecycle, "time_to_first_token_seconds") == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_every_submitted_sequence_ends_in_one_count(stories: list[tuple[int, int]]) -> None:
    """MET-1: what was submitted is what ended, and n tokens have n - 1 gaps."""
    lifecycle = Lifecycle()
    for n_tokens, ending in stories:
        times = lifecycle.submit(0.0)
        for _ in range(n_tokens):
            lifecycle.take(times, [Token(1)], 1.0)
        lifecycle.take(times, [ENDINGS[ending]], 2.0)
    statistics = lifecycle.statistics()
    assert statistics["requests_submitted_total"] == len(stories)
    for index, name in enumerate(COUNTS):
        assert statistics[name] == sum(1 for _, ending in stories if ending == index)
    assert histogram(lifecycle, "inter_token_seconds")[0] == sum(max(n_tokens - 1, 0) for n_tokens, _ in stories)
