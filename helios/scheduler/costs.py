"""What rounds and copies cost, measured on completed ones: the record from which programs, shares and reloads are chosen.

It knows durations and counts, no requests and no device. A cost is unknown until a round of that program and size class was
measured, and stale when the last one was long ago. Costs steer what is done when; tokens never depend on them (design 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.scheduler.prompt_cost import MOST_STRAY, PromptCost

# Weight of the newest observation.
SMOOTHING = 0.25
# Machines throttle and neighbours come and go: a cost that is older is not believed.
STALE_S = 60.0
# Copies after which their rate has half forgotten them.
HALF_LIFE_COPIES = 1024


@dataclass(slots=True)
class _Cost:
    duration_s: float
    observed_s: float


class _Rate:
    """Seconds a unit, from sums that forget: robust when many units are reported at one instant."""

    def __init__(self) -> None:
        self._duration_s = 0.0
        self._n_units = 0.0

    def observe(self, duration_s: float, n_units: int) -> None:
        fade = 0.5 ** (n_units / HALF_LIFE_COPIES)
        self._duration_s = self._duration_s * fade + duration_s
        self._n_units = self._n_units * fade + n_units

    @property
    def unit_s(self) -> float | None:
        return self._duration_s / self._n_units if self._n_units else None


class CostRecord:
    """Costs by program and size class; a class holds row counts of the same bit length. `now_s` is the caller's clock."""

    def __init__(self) -> None:
        self._costs: dict[tuple[int, int], _Cost] = {}
        self._prompt = PromptCost()
        self._scored = PromptCost()
        self._reload = _Rate()

    # -- rounds

    def observe_round(self, program: int, n_rows: int, duration_s: float, now_s: float) -> None:
        """A round of `program` with `n_rows` rows had the device to itself for `duration_s`."""
        duration_s = max(0.0, duration_s)
        cost = self._costs.get((program, n_rows.bit_length()))
        if cost is None:
            self._costs[program, n_rows.bit_length()] = _Cost(duration_s, now_s)
            return
        if abs(now_s - cost.observed_s) > STALE_S:
            cost.duration_s = duration_s
        else:
            bounded_s = min(duration_s, MOST_STRAY * cost.duration_s) if cost.duration_s else duration_s
            cost.duration_s += SMOOTHING * (bounded_s - cost.duration_s)
        cost.observed_s = now_s

    def round_s(self, program: int, n_rows: int, now_s: float) -> float | None:
        """What such a round takes; None while that is unknown or stale."""
        cost = self._costs.get((program, n_rows.bit_length()))
        return cost.duration_s if cost is not None and abs(now_s - cost.observed_s) <= STALE_S else None

    def last_round_s(self, program: int, n_rows: int) -> float | None:
        """The same without a doubt about its age: good for an estimate."""
        cost = self._costs.get((program, n_rows.bit_length()))
        return None if cost is None else cost.duration_s

    # -- prompt tokens

    def observe_prompt(self, n_tokens: int, position: float, duration_s: float, *, is_scored: bool = False) -> None:
        """`n_tokens` prompt tokens around `position` made a round longer by `duration_s`. Scored ones take longer and are counted
        apart."""
        (self._scored if is_scored else self._prompt).observe(n_tokens, position, duration_s)

    def prompt_s(self, n_tokens: int, position: float) -> float | None:
        """What computing so many prompt tokens around `position` takes; None while unknown."""
        token_s = self._prompt.token_s(position)
        return None if token_s is None else n_tokens * token_s

    def prompt_tokens_within(self, duration_s: float, position: float, *, is_scored: bool = False) -> int | None:
        """How many prompt tokens from `position` on fit in `duration_s`; None while their cost is unknown."""
        return (self._scored if is_scored else self._prompt).tokens_within(duration_s, position)

    # -- copies from host memory

    def observe_reload(self, duration_s: float) -> None:
        """One page or row came back from host memory, `duration_s` after it was started or the one before it had come."""
        self._reload.observe(max(0.0, duration_s), 1)

    def reloads(self, n_copies: int, n_tokens: int, position: float) -> bool:
        """Whether bringing back `n_copies` beats computing the `n_tokens` around `position` that they hold. Unmeasured, a copy is
        believed cheaper."""
        copy_s, compute_s = self._reload.unit_s, self.prompt_s(n_tokens, position)
        return copy_s is None or compute_s is None or n_copies * copy_s <= compute_s
