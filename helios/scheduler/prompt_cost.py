"""What a prompt token costs, by where in its prompt it stands: the later it comes, the more positions it attends to.

It knows token counts, positions and durations, no requests and no rounds. The cost is a line over the position: its level follows
the newest observations, its slope is a property of model and machine and forgets eight times as slowly. No estimate is negative,
and none falls with the position.
"""

from __future__ import annotations

from math import isinf

# Tokens after which level and slope have half forgotten them.
LEVEL_HALF_LIFE_TOKENS = 1024
SLOPE_HALF_LIFE_TOKENS = 8192
# How far one observation may stray from the estimate: a suspended process is not a slow program.
MOST_STRAY = 4.0
# Positions that stand closer together than this tell little about the slope.
LEAST_SPREAD_TOKENS = 64
# The least part of the level that an estimate may be, whatever the slope: matrices cost the same at every position.
LEAST_OF_LEVEL = 0.25


class PromptCost:
    """Weighted sums over the tokens observed, which fade."""

    def __init__(self) -> None:
        self._level = [0.0] * 3  # tokens, positions, seconds
        self._slope = [0.0] * 5  # the same, squares of positions, seconds times positions

    def observe(self, n_tokens: int, position: float, duration_s: float) -> None:
        """`n_tokens` tokens around `position` took `duration_s`."""
        duration_s = max(0.0, duration_s)
        expected_s = self.token_s(position)
        if expected_s:
            duration_s = min(duration_s, MOST_STRAY * expected_s * n_tokens)
        position_sum = n_tokens * position
        level = [n_tokens, position_sum, duration_s]
        _fade_in(self._level, level, n_tokens / LEVEL_HALF_LIFE_TOKENS)
        slope = [*level, position_sum * position, duration_s * position]
        _fade_in(self._slope, slope, n_tokens / SLOPE_HALF_LIFE_TOKENS)

    def token_s(self, position: float) -> float | None:
        """What one token at `position` takes; None while unknown."""
        n_tokens, position_sum, duration_s = self._level
        if not n_tokens:
            return None
        level_s = duration_s / n_tokens
        return max(LEAST_OF_LEVEL * level_s, level_s + self._slope_s() * (position - position_sum / n_tokens))

    def tokens_within(self, duration_s: float, position: float) -> int | None:
        """How many tokens from `position` on fit in `duration_s`; None while unknown, or where they cost next to nothing."""
        first_s = self.token_s(position)
        if not first_s or isinf(duration_s / first_s):
            return None
        mean_s = self.token_s(position + max(0.0, duration_s) / first_s / 2)
        return max(0, int(duration_s / mean_s)) if mean_s else None

    def _slope_s(self) -> float:
        """Seconds that a token takes longer for each position before it."""
        n_tokens, position_sum, duration_s, square_sum, product_sum = self._slope
        mean_position = position_sum / n_tokens
        variance = square_sum / n_tokens - mean_position * mean_position
        covariance = product_sum / n_tokens - mean_position * duration_s / n_tokens
        return max(0.0, covariance / (max(0.0, variance) + LEAST_SPREAD_TOKENS**2))


def _fade_in(sums: list[float], new: list[float], n_half_lives: float) -> None:
    fade = 0.5**n_half_lives
    sums[:] = [old * fade + part for old, part in zip(sums, new, strict=True)]
