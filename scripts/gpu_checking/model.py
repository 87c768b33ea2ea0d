"""A whole model on the device: its tokens against the CPU's and against themselves, and its speed.

The CPU's core is of the same family of kernels, bf16 activations and keys, so that both compute the same sums; only their order
within a block is the device's own. It drives the runtime round by round, without a server.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.prepared_core import PrepareOptions, prepared_core
from helios.ignition.signatures import host_target, target_of
from helios.owner import Owner
from helios.scheduler.request import GenerationRequest, SamplingParameters, Token
from tests.runtime.local_run import LoadedModel


@dataclass(frozen=True)
class Workload:
    """How much is asked of the model: requests that are compared, lanes that are timed, tokens of prompts and answers."""

    n_requests: int
    n_new_tokens: int
    lanes: tuple[int, ...]
    prompt_tokens: int
    chunk_tokens: int


LOGPROB_TOLERANCE = 0.5
GPU = Workload(16, 32, (1, 8, 32, 128, 256), 1024, 48)
TINY = Workload(3, 6, (1, 2), 40, 5)


@dataclass(frozen=True)
class Agreement:
    """What the comparison found: whether the device agrees with itself, how many tokens and how many first ones are the CPU's, and
    by how much log-probabilities of those are off."""

    is_exact: bool
    n_same_tokens: int
    n_tokens: int
    n_same_firsts: int
    n_firsts: int
    logprob_error: float

    def lines(self) -> list[str]:
        return [
            f"answers alone, together and in chunks: {'the same' if self.is_exact else 'DIFFERENT'}",
            f"tokens before the first that is not the CPU's: {self.n_same_tokens} of {self.n_tokens}; first tokens that are: "
            f"{self.n_same_firsts} of {self.n_firsts}; their log-probabilities are off by {self.logprob_error:.4f} at most",
        ]

    def wrong(self) -> list[str]:
        """Sums of another order may turn a token that was nearly another, seldom the first, and move a number a little."""
        found = [] if self.is_exact else ["an answer depends on its company or on the size of prefill chunks"]
        if 2 * self.n_same_firsts < self.n_firsts:
            found.append("most first tokens are not the CPU's")
        if not self.logprob_error < LOGPROB_TOLERANCE:
            found.append(f"log-probabilities are off by {self.logprob_error:.4f}, {LOGPROB_TOLERANCE} is allowed")
        return found


@dataclass(frozen=True)
class Decode:
    """Tokens a second of all lanes, and the processor time of the thread that plans and launches, a step."""

    n_lanes: int
    tokens_per_s: float
    host_us: float

    def __str__(self) -> str:
        return f"decode {self.n_lanes:4} lanes {self.tokens_per_s:12,.1f} tok/s, host {self.host_us:8,.1f} us a step"


class CheckedModel(Owner):
    """A checkpoint on the device, and prepared for the CPU; owner closes."""

    def __init__(self, checkpoint: Path, device: str, workload: Workload) -> None:
        self._workload = workload
        n_context = max(256, 2 * workload.prompt_tokens)
        options = PrepareOptions(n_context, max(workload.lanes), kv_format=KvFormat.BF16)
        core = prepared_core(checkpoint, options=options, target=target_of(device))
        cpu_target = replace(host_target(), row_form=RowForm.BF16)
        self._cpu_core = prepared_core(checkpoint, options=replace(options, concurrency=4), target=cpu_target)
        pages_per_lane = -(-max(192, workload.n_new_tokens * 2 + 32) // 16)
        n_context_pages = -(-n_context // 16)
        self._n_pages = max(max(workload.lanes) * pages_per_lane, n_context_pages)
        self._model = LoadedModel(core, 2, self._n_pages, device=device, clock=time.monotonic)
        self._vocabulary = self._model.bootstrap.contract.vocabulary

    def compare(self) -> Agreement:
        """Alone, together and in chunks on the device, bit for bit with log-probabilities; and alone on the CPU."""
        requests = self._requests()
        alone = [outcome.tokens for each in requests for outcome in self._model.run([each], max_active=1, frames=1)]
        together = [outcome.tokens for outcome in self._model.run(requests)]
        chunked = [outcome.tokens for outcome in self._model.run(requests, prefill_tokens=self._workload.chunk_tokens)]
        with LoadedModel(self._cpu_core, len(os.sched_getaffinity(0)), self._n_pages) as cpu:
            expected = [outcome.tokens for outcome in cpu.run(requests)]
        same = [_common(ours, cpus) for ours, cpus in zip(alone, expected, strict=True)]
        return Agreement(
            is_exact=alone == together == chunked,
            n_same_tokens=sum(map(len, same)),
            n_tokens=sum(map(len, expected)),
            n_same_firsts=sum(map(bool, same)),
            n_firsts=len(same),
            logprob_error=max(
                (
                    abs(a.logprob - b.logprob)
                    for a, b in itertools.chain(*same)
                    if a.logprob is not None and b.logprob is not None
                ),
                default=float("nan"),
            ),
        )

    def decode(self, n_lanes: int) -> Decode:
        """Two runs that differ only in the length of the answers: the difference is decoding."""
        self._run(n_lanes, 16, 2)
        short_s, short_host_s = self._run(n_lanes, 16, 1)
        n_steps = 2 * self._workload.n_new_tokens
        long_s, long_host_s = self._run(n_lanes, 16, 1 + n_steps)
        return Decode(n_lanes, n_lanes * n_steps / (long_s - short_s), (long_host_s - short_host_s) / n_steps * 1e6)

    def prefill_tokens_per_s(self) -> float:
        """One long prompt up to its first token, the better of two."""
        n_tokens = self._workload.prompt_tokens
        return n_tokens / min(self._run(1, n_tokens, 1)[0] for _ in range(2))

    def _run(self, n_lanes: int, n_prompt: int, n_new: int) -> tuple[float, float]:
        source = random.Random(n_lanes)
        requests = [
            GenerationRequest(self._prompt(source, n_prompt), n_new, (), SamplingParameters(temperature=0.0))
            for _ in range(n_lanes)
        ]
        serving = self._model.serve()
        begin_s, begin_host_s = time.perf_counter(), time.thread_time()
        serving.run(requests)
        return time.perf_counter() - begin_s, time.thread_time() - begin_host_s

    def _requests(self) -> list[GenerationRequest]:
        """Greedy ones, whose tokens the CPU's are compared with; every other one reports log-probabilities."""
        source = random.Random(1)
        return [
            GenerationRequest(
                self._prompt(source, source.choice((3, 16, 33, 90))),
                self._workload.n_new_tokens,
                (),
                SamplingParameters(temperature=0.0, candidates=5 if index % 2 else None),
            )
            for index in range(self._workload.n_requests)
        ]

    def _prompt(self, source: random.Random, n_tokens: int) -> tuple[int, ...]:
        return tuple(source.randrange(self._vocabulary * 9 // 10) for _ in range(n_tokens))

    def close(self) -> None:
        self._model.close()


def _common(ours: list[Token], cpus: list[Token]) -> list[tuple[Token, Token]]:
    """The common beginning: behind the first difference the texts are others."""
    pairs = zip(ours, cpus, strict=False)
    return list(itertools.takewhile(lambda pair: pair[0].token_id == pair[1].token_id, pairs))
