"""Measures a running server through HTTP: decode, prefill and time to first token, as `figures.py` defines them.

It knows no peer and starts nothing. Every measurement uses prompts never sent before.
"""

from __future__ import annotations

import random

from helios.cli import figures
from helios.cli.figures import DECODE_PROMPT, FIRST_TOKEN_PROMPT
from helios.cli.streams import Endpoint
from helios.cli.workload import Workload
from helios.errors import RemoteError

ATTEMPTS = 3
SPEED_FIGURES = (
    *(f"decode_{n}" for n in figures.DECODE_STREAMS),
    *(f"prefill_{n}" for n in figures.PREFILL_TOKENS),
    "ttft",
)


class HttpMeasure:
    """The measurements of one server. `warm()` once before the first that counts."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.workload = Workload(endpoint, seed=random.SystemRandom().getrandbits(63))

    def warm(self) -> None:
        """One short answer, so that lazily made things exist."""
        self.workload.run(1, DECODE_PROMPT, 4)

    def decode(self, n_streams: int, n_new_tokens: int) -> float:
        """Tokens a second; tried again with other prompts when the model ended an answer before half of its length."""
        for _ in range(ATTEMPTS):
            timelines = self.workload.run(n_streams, DECODE_PROMPT, n_new_tokens)
            if all(timeline.n_output_tokens * 2 >= n_new_tokens for timeline in timelines):
                return figures.decode_tokens_per_s(timelines)
        raise RemoteError(f"the model ended its answers before {n_new_tokens // 2} tokens in {ATTEMPTS} attempts")

    def first_token_s(self, n_prompt_tokens: int) -> float:
        return self.workload.run(1, n_prompt_tokens, 1)[0].first_token_s

    def prefill(self, n_prompt_tokens: int) -> float:
        """Prompt tokens a second."""
        return n_prompt_tokens / self.first_token_s(n_prompt_tokens)

    def take(self, name: str, n_new_tokens: int) -> float:
        """The figure called `name`, one of SPEED_FIGURES."""
        kind, _, count = name.partition("_")
        if kind == "decode":
            return self.decode(int(count), n_new_tokens)
        if kind == "prefill":
            return self.prefill(int(count))
        return self.first_token_s(FIRST_TOKEN_PROMPT)
