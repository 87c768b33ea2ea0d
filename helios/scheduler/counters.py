"""What the scheduler counts from the start of the process.

It holds numbers and their metric names, no rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.metrics import SECONDS, Histogram, Number


@dataclass(slots=True)
class SchedulerCounters:
    """Totals; `n_restored` and `n_recomputed` are readmissions after a preemption, with and without reused tokens. The last two are
    MET-2's: the frames in flight right after a constrained submission are a maximum, not a sum."""

    n_rounds: int = 0
    n_prompt_tokens: int = 0
    n_reused_prompt_tokens: int = 0
    n_computed_tokens: int = 0
    n_output_tokens: int = 0
    n_preemptions: int = 0
    n_restored: int = 0
    n_recomputed: int = 0
    n_snapshots: int = 0
    n_snapshot_restores: int = 0
    n_mixed_grammar_steps: int = 0
    n_constrained_in_flight: int = 0
    queue_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def statistics(self) -> dict[str, Number]:
        """By metric name."""
        return {
            "queue_seconds": self.queue_s,
            "rounds_total": self.n_rounds,
            "prompt_tokens_total": self.n_prompt_tokens,
            "reused_prompt_tokens_total": self.n_reused_prompt_tokens,
            "computed_prompt_tokens_total": self.n_computed_tokens,
            "output_tokens_total": self.n_output_tokens,
            "preemptions_total": self.n_preemptions,
            'readmissions_total{by="restore"}': self.n_restored,
            'readmissions_total{by="recompute"}': self.n_recomputed,
            "snapshots_saved_total": self.n_snapshots,
            "snapshots_restored_total": self.n_snapshot_restores,
            "flare_mixed_grammar_decode_steps_total": self.n_mixed_grammar_steps,
            "flare_constrained_max_inflight": self.n_constrained_in_flight,
        }
