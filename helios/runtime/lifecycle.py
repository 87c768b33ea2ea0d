"""What became of the requests and how long it took: counters and distributions, taken where events are delivered.

It knows events and times, no text and no HTTP. One clock reading serves a whole delivery, and one observation costs well under a
microsecond; whoever calls it sees to it that only one thread does so at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helios.metrics import GAP_SECONDS, SECONDS, TOKENS, Histogram, Number
from helios.scheduler.request import Event, Failed, Finished, FinishReason, Token

_GOOD_ENDINGS: tuple[FinishReason, ...] = tuple(
    reason for reason in FinishReason if reason is not FinishReason.CANCELLED
)


@dataclass(slots=True)
class Times:
    """Moments of one sequence, in seconds of one clock. `last_token_s` None: it has no token yet."""

    arrived_s: float
    last_token_s: float | None = None


class Lifecycle:
    """Counts sequences from submission to their one ending."""

    def __init__(self) -> None:
        self._n_submitted = 0
        self._n_failed = 0
        self._n_cancelled = 0
        self._n_finished: dict[FinishReason, int] = dict.fromkeys(_GOOD_ENDINGS, 0)
        self._first_token_s = Histogram(SECONDS)
        self._gap_s = Histogram(GAP_SECONDS)
        self._request_s = Histogram(SECONDS)
        self._prompt_tokens = Histogram(TOKENS)
        self._output_tokens = Histogram(TOKENS)
        self._reused_tokens = Histogram(TOKENS)

    def submit(self, arrived_s: float) -> Times:
        """Count a sequence in."""
        self._n_submitted += 1
        return Times(arrived_s)

    def take(self, times: Times, events: Sequence[Event], now_s: float) -> None:
        """Events of one sequence that are delivered now."""
        for event in events:
            if isinstance(event, Token):
                last_s, times.last_token_s = times.last_token_s, now_s
                if last_s is None:
                    self._first_token_s.observe(now_s - times.arrived_s)
                else:
                    self._gap_s.observe(now_s - last_s)
            elif isinstance(event, Failed):
                self._n_failed += 1
            elif isinstance(event, Finished) and event.reason is FinishReason.CANCELLED:
                self._n_cancelled += 1
            elif isinstance(event, Finished):
                self._finish(times, event, now_s)

    def _finish(self, times: Times, event: Finished, now_s: float) -> None:
        if event.reason is FinishReason.CANCELLED:
            self._n_cancelled += 1
            return
        self._n_finished[event.reason] += 1
        self._request_s.observe(now_s - times.arrived_s)
        self._prompt_tokens.observe(event.usage.prompt_tokens)
        self._output_tokens.observe(event.usage.output_tokens)
        self._reused_tokens.observe(event.usage.reused_prompt_tokens)

    def statistics(self) -> dict[str, Number]:
        """By metric name."""
        finished = {
            f'requests_finished_total{{reason="{reason.value}"}}': count for reason, count in self._n_finished.items()
        }
        return {
            "requests_submitted_total": self._n_submitted,
            **finished,
            "requests_cancelled_total": self._n_cancelled,
            "requests_failed_total": self._n_failed,
            "time_to_first_token_seconds": self._first_token_s,
            "inter_token_seconds": self._gap_s,
            "request_seconds": self._request_s,
            "request_prompt_tokens": self._prompt_tokens,
            "request_output_tokens": self._output_tokens,
            "request_reused_tokens": self._reused_tokens,
        }
