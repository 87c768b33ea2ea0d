"""Measures a server through HTTP, as `figures.py` defines the figures: a running one's speed, a fresh one's start and memory.

It knows no peer. Every measurement uses prompts never sent before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import cached_property

from helios.cli import figures
from helios.cli.figures import DECODE_PROMPT, FIRST_TOKEN_PROMPT, MEMORY_ANSWER, MEMORY_PROMPT, MEMORY_STREAMS
from helios.cli.server_process import ServerProcess, peak_bytes
from helios.cli.sharing import SHARING_FIGURES, SharedPrefixes
from helios.cli.streams import Endpoint
from helios.cli.workload import Workload
from helios.errors import RemoteError

ATTEMPTS = 3
SPEED_FIGURES = (
    *(f"decode_{n}" for n in figures.DECODE_STREAMS),
    *(f"prefill_{n}" for n in figures.PREFILL_TOKENS),
    "ttft",
    *SHARING_FIGURES,
)


class HttpMeasure:
    """The measurements of one server. `warm()` once before the first that counts."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.workload = Workload(endpoint, seed=random.SystemRandom().getrandbits(63))
        self._decode_prompt = max(DECODE_PROMPT, self.workload.overhead_tokens + 1)  # some templates are longer

    @cached_property
    def _sharing(self) -> SharedPrefixes:
        return SharedPrefixes(self.workload)

    def warm(self) -> None:
        """One short answer, so that lazily made things exist."""
        self.workload.run(1, self._decode_prompt, 4)

    def decode(self, n_streams: int, n_new_tokens: int) -> float:
        """Tokens a second; tried again with other prompts when the model ended an answer before half of its length."""
        for _ in range(ATTEMPTS):
            timelines = self.workload.run(n_streams, self._decode_prompt, n_new_tokens)
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
        if name in SHARING_FIGURES:
            return self._sharing.take(name)
        kind, _, count = name.partition("_")
        if kind == "decode":
            return self.decode(int(count), n_new_tokens)
        if kind == "prefill":
            return self.prefill(int(count))
        return self.first_token_s(FIRST_TOKEN_PROMPT)


def start_figures(command: Sequence[str], with_memory: bool) -> dict[str, float]:
    """Start-up seconds of the fresh server that `command` starts, and its peak bytes after the memory work when asked for."""
    with ServerProcess(command) as server:
        measure = HttpMeasure(server.endpoint)
        figures = {"startup": (time.perf_counter_ns() - server.started_ns) / 1e9}
        if with_memory:
            measure.workload.run(MEMORY_STREAMS, MEMORY_PROMPT, MEMORY_ANSWER)
            figures["rss"] = float(peak_bytes(server.pid))
        return figures
