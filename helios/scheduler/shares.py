"""How many prompt tokens each prompt under way gets in a round: a budget, and its division.

It knows counts only. The budget bounds the gap between two tokens of a running stream; within it shares are max-min fair, so that a
short prompt never waits for the whole of a long one.
"""

from __future__ import annotations

from collections.abc import Sequence as List

# Prompt tokens that ride along with decoding streams: as long as nothing was measured, and at least, so that prompts progress.
UNMEASURED_PROMPT_TOKENS = 128
LEAST_PROMPT_TOKENS = 16


def mixed_budget(n_most: int, n_within_gap: int | None) -> int:
    """Prompt tokens of a round with decoding streams. `n_within_gap`: what fits the gap target by measured costs, None if
    unknown."""
    n_wanted = UNMEASURED_PROMPT_TOKENS if n_within_gap is None else max(LEAST_PROMPT_TOKENS, n_within_gap)
    return min(n_most, n_wanted)


def fair_shares(budget: int, n_wanted: List[int]) -> list[int]:
    """Divide `budget`: nobody gets more than wanted, and what one leaves is shared by those that want more."""
    shares = [0] * len(n_wanted)
    n_waiting = len(n_wanted)
    for index in sorted(range(len(n_wanted)), key=n_wanted.__getitem__):
        shares[index] = min(n_wanted[index], budget // n_waiting)
        budget -= shares[index]
        n_waiting -= 1
    return shares
