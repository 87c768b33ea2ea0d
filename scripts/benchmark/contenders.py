"""Product and peer behind one shape, so that the rounds cannot treat them differently.

Each contender takes the figures of `helios.cli.figures` by name; the product through HTTP, the peer in process. Both are given
the same checkpoint, threads, sequences and context, and both are fresh processes for start-up and memory.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from helios.cli.figures import (
    CHAT_ANSWER,
    CHAT_PROMPT,
    CHATS,
    DECODE_PROMPT,
    FIRST_TOKEN_PROMPT,
    LONG_PROMPT,
    MEMORY_ANSWER,
    MEMORY_PROMPT,
    MEMORY_STREAMS,
    PREFIX_PROMPT,
)
from helios.cli.measure import HttpMeasure, start_figures
from helios.cli.server_process import ServerProcess, peak_bytes
from scripts.benchmark.gap import largest_gap_s
from scripts.benchmark.peer import Peer

PREFIX_TOKENS = 1000  # of PREFIX_PROMPT, for the peer, whose prompts have no template
CHAT_PREFIX_TOKENS = 400  # of CHAT_PROMPT


@dataclass(frozen=True, slots=True)
class Setup:
    """What both are given: context_tokens for a request in the rounds, so that a prompt of 1,024 has room for its answer, and
    memory_context_tokens for start-up and memory."""

    gguf: Path
    product_command: tuple[str, ...]
    n_threads: int = 2
    n_sequences: int = 16
    context_tokens: int = 2048
    memory_context_tokens: int = MEMORY_PROMPT + MEMORY_ANSWER
    kv_format: str = "f16"  # the product's
    is_peer_plain: bool = False

    def serve(self, n_active: int) -> list[str]:
        limits = {"--port": 0, "--threads": self.n_threads, "--max-active": n_active, "--context": self.context_tokens}
        flags = [str(part) for pair in {**limits, "--kv": self.kv_format}.items() for part in pair]
        return [*self.product_command, "serve", str(self.gguf), *flags]

    def peer(self, n_sequences: int) -> Peer:
        return Peer(self.gguf, self.n_threads, n_sequences, self.context_tokens, self.is_peer_plain)

    def for_memory(self) -> Setup:
        """The same for start-up and memory."""
        return replace(self, context_tokens=self.memory_context_tokens)

    def with_8_bit_cache(self) -> Setup:
        """The same for a product that keeps keys and values as 8-bit numbers."""
        return replace(self, kv_format="q8")

    def for_long_prompts(self) -> Setup:
        """The same with room for a long prompt beside a stream."""
        return replace(self, context_tokens=2 * LONG_PROMPT, n_sequences=2)


class Contender(Protocol):
    """A running one, warm."""

    pid: int

    def take(self, name: str, n_new_tokens: int) -> float:
        """One measurement of the figure `name`, in its measured unit."""

    def close(self) -> None: ...


class Product:
    """Helios behind HTTP."""

    def __init__(self, setup: Setup) -> None:
        self.server = ServerProcess(setup.serve(setup.n_sequences))
        self.pid = self.server.pid
        self.measure = HttpMeasure(self.server.endpoint)
        self.measure.warm()

    def take(self, name: str, n_new_tokens: int) -> float:
        return self.measure.take(name, n_new_tokens)

    def close(self) -> None:
        self.server.close()

    @staticmethod
    def warm(setup: Setup) -> None:
        """Start once with each cache, so that its core is prepared and its files are in memory."""
        Product._start(setup, with_memory=False)
        Product._start(setup.with_8_bit_cache(), with_memory=False)

    @staticmethod
    def start(setup: Setup, with_memory: bool) -> dict[str, float]:
        """Start-up seconds of a fresh server, and its peak bytes after the memory work, with either cache, when asked for."""
        figures = Product._start(setup, with_memory)
        if with_memory:
            figures["rss_q8"] = Product._start(setup.with_8_bit_cache(), with_memory)["rss"]
        return figures

    @staticmethod
    def _start(setup: Setup, with_memory: bool) -> dict[str, float]:
        return start_figures(setup.for_memory().serve(MEMORY_STREAMS), with_memory)

    @staticmethod
    def gap(setup: Setup) -> float:
        """The largest gap, in seconds, of one stream beside a long prompt."""
        roomy = setup.for_long_prompts()
        with ServerProcess(roomy.serve(roomy.n_sequences)) as server:
            measure = HttpMeasure(server.endpoint)
            measure.warm()
            return largest_gap_s(measure.workload)


class InProcessPeer:
    """llama.cpp in a worker process."""

    def __init__(self, setup: Setup) -> None:
        self.peer = setup.peer(setup.n_sequences)
        self.pid = self.peer.pid
        self.facts = self.peer.ask("facts")
        self.peer.ask("first_token", n_prompt=DECODE_PROMPT, seed=0)

    def take(self, name: str, n_new_tokens: int) -> float:
        kind, _, count = name.partition("_")
        seed = random.getrandbits(31)
        if name == "prefix_ttft":
            n_new = PREFIX_PROMPT - PREFIX_TOKENS
            answer = self.peer.ask("prefix_first_token", n_prefix=PREFIX_TOKENS, n_new_prompt=n_new, seed=seed)
            return float(answer["seconds"])
        if name == "chats_32":
            return self._chats_tokens_per_s(seed)
        if kind == "decode":
            answer = self.peer.ask(
                "decode", n_streams=int(count), n_prompt=DECODE_PROMPT, n_new=n_new_tokens, seed=seed
            )
            return float(answer["tokens_per_s"])
        n_prompt = int(count) if count else FIRST_TOKEN_PROMPT
        first_token_s = float(self.peer.ask("first_token", n_prompt=n_prompt, seed=seed)["seconds"])
        return n_prompt / first_token_s if kind == "prefill" else first_token_s

    def _chats_tokens_per_s(self, seed: int) -> float:
        n_question = CHAT_PROMPT - CHAT_PREFIX_TOKENS
        answer = self.peer.ask(
            "chats",
            n_chats=CHATS,
            n_prefix=CHAT_PREFIX_TOKENS,
            n_question=n_question,
            n_new=CHAT_ANSWER,
            seed=seed,
        )
        return float(answer["tokens_per_s"])

    def close(self) -> None:
        self.peer.close()

    @staticmethod
    def gap(setup: Setup) -> float:
        """Seconds that a long prompt takes: while it is computed, no other sequence gets a token."""
        roomy = setup.for_long_prompts()
        with roomy.peer(roomy.n_sequences) as peer:
            peer.ask("first_token", n_prompt=DECODE_PROMPT, seed=1)
            return float(peer.ask("first_token", n_prompt=LONG_PROMPT, seed=2)["seconds"])

    @staticmethod
    def start(setup: Setup, with_memory: bool) -> dict[str, float]:
        with setup.for_memory().peer(MEMORY_STREAMS) as peer:
            peer.ask("first_token", n_prompt=DECODE_PROMPT, seed=1)
            figures = {"startup": (time.perf_counter_ns() - peer.started_ns) / 1e9}
            if with_memory:
                peer.ask("decode", n_streams=MEMORY_STREAMS, n_prompt=MEMORY_PROMPT, n_new=MEMORY_ANSWER, seed=2)
                figures["rss"] = figures["rss_q8"] = float(peak_bytes(peer.pid))
            return figures
