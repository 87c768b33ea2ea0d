"""An engine without a model: it answers every request with a given text, or with exactly the events that a test gives it.

It keeps the promises of `helios.engine.Engine` that the server builds on: permits are counted, stops and limits are decided where
tokens are made, and every generation ends with exactly one Finished or Failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from helios.contract.frontend import Frontend
from helios.contract.schema import contract_pb2
from helios.errors import HeliosError, QueueFullError, ShuttingDownError
from helios.scheduler.request import (
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Token,
    Usage,
)
from helios.tokenizer.tokenizer import Tokenizer

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Defaults:
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


def plain_frontend() -> Frontend:
    """A frontend without calls and reasoning."""
    message = contract_pb2.FrontendContract(
        tool_syntax=contract_pb2.TOOL_SYNTAX_NONE,
        reasoning_syntax=contract_pb2.REASONING_SYNTAX_NONE,
        eos_tokens=[1],
        image_preparation=contract_pb2.IMAGE_PREPARATION_NONE,
        image_layout=contract_pb2.IMAGE_LAYOUT_NONE,
    )
    return Frontend.from_message(message)


class ScriptedGeneration:
    """A generation that a test can feed from any thread."""

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.is_cancelled = False
        self.n_taken = 0
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._n_output = 0
        self.has_ended = False

    async def next_batch(self) -> list[Event]:
        batch = [await self._queue.get()]
        while not self._queue.empty():
            batch.append(self._queue.get_nowait())
        self.n_taken += len(batch)
        return batch

    def cancel(self) -> None:
        self.is_cancelled = True
        self._end(Finished(FinishReason.CANCELLED, self._usage()))

    def give(self, token_id: int, logprob: float | None = None, candidates: tuple[tuple[int, float], ...] = ()) -> None:
        """One token, and the ending that it brings about."""
        completed_s = time.monotonic() if self.request.is_timed else None
        self._loop.call_soon_threadsafe(
            self._give, Token(token_id, logprob, candidates=candidates, completed_s=completed_s)
        )

    def send(self, event: Event) -> None:
        """Any event that ends nothing."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    def fail(self, error: HeliosError) -> None:
        self._loop.call_soon_threadsafe(self._end, Failed(error))

    def _give(self, token: Token) -> None:
        if self.has_ended:
            return
        self._n_output += 1
        self._queue.put_nowait(token)
        is_stopped = self.request.host_stop is not None and self.request.host_stop(token.token_id)
        if token.token_id in self.request.eos_tokens:
            self._end(Finished(FinishReason.EOS, self._usage()))
        elif is_stopped:
            self._end(Finished(FinishReason.STOP, self._usage()))
        elif self._n_output >= self.request.output_limit:
            self._end(Finished(FinishReason.LIMIT, self._usage()))

    def _end(self, event: Event) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._queue.put_nowait(event)

    def _usage(self) -> Usage:
        return Usage(len(self.request.prompt_tokens), self._n_output, reused_prompt_tokens=1)


@dataclass
class ScriptedPermit:
    engine: ScriptedEngine
    is_released: bool = False

    def release(self) -> None:
        if not self.is_released:
            self.is_released = True
            self.engine.n_admitted -= 1


@dataclass
class ScriptedEngine:
    """`answer` None leaves every generation to the test."""

    tokenizer: Tokenizer
    answer: str | None = "Hello world"
    logprob: float | None = None
    context_tokens: int = 4096
    capacity: int = 100
    served_id: str = "scripted-1b"
    aliases: tuple[str, ...] = ("scripted",)
    chat_template: str = TEMPLATE
    bos_text: str = "<|im_start|>"
    eos_text: str = "<|im_end|>"
    adds_bos: bool = False
    frontend: Frontend = field(default_factory=plain_frontend)
    scores_prompts: bool = False
    saves_boundaries: bool = False
    reports_distributions: bool = False
    reports_prompt_distributions: bool = False
    sampling_defaults: Defaults = field(default_factory=Defaults)
    n_admitted: int = 0
    is_draining: bool = False
    is_broken: bool = False
    is_closed: bool = False
    journal: None = None
    fault: HeliosError | None = None
    submit_error: HeliosError | None = None
    generations: list[ScriptedGeneration] = field(default_factory=list)
    permits: list[ScriptedPermit] = field(default_factory=list)

    def __post_init__(self) -> None:
        end = self.tokenizer.token_id("<|im_end|>")
        assert end is not None
        self.eos_tokens = (end,)
        self.vocabulary = self.tokenizer.vocabulary_size

    def admit(self) -> ScriptedPermit:
        if self.is_draining:
            raise ShuttingDownError
        if self.n_admitted >= self.capacity:
            raise QueueFullError(self.n_admitted, self.capacity)
        self.n_admitted += 1
        self.permits.append(ScriptedPermit(self))
        return self.permits[-1]

    def submit(self, request: GenerationRequest, arrived_s: float | None = None) -> ScriptedGeneration:
        if self.submit_error is not None:
            raise self.submit_error
        generation = ScriptedGeneration(request)
        self.generations.append(generation)
        if self.answer is not None:
            tokens = self.tokenizer.encode(self.answer, allow_special=False)
            if not request.eos_tokens:  # nothing but the limit ends it
                tokens += tokens[-1:] * (request.output_limit - len(tokens))
            for token_id in tokens:
                generation.give(token_id, self.logprob, ((token_id, -0.5), (0, -2.0)) if self.logprob else ())
            for token_id in request.eos_tokens[:1]:
                generation.give(token_id)
        return generation

    def is_ready(self) -> bool:
        return not self.is_draining

    def is_alive(self) -> bool:
        return not self.is_broken

    def statistics(self) -> Mapping[str, int | float]:
        return {"requests_admitted": self.n_admitted, "submissions_total": len(self.generations)}

    async def drain(self, timeout_s: float) -> None:
        self.is_draining = True

    def close(self) -> None:
        self.is_closed = True
