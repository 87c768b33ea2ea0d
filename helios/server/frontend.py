"""Request bodies to generation requests, on threads of their own.

It knows templates, tokens and the context limit; it knows no sockets and runs nothing. Parsing, rendering and tokenising one
body is one job for one of `frontend_workers` threads, so that a large prompt does not hold up the event loop (HTTP-1).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from helios.errors import ContextLengthError
from helios.output.pipeline import OutputPipeline, host_stop
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation, Message
from helios.scheduler.request import GenerationRequest
from helios.server.chat_request import read_chat_request
from helios.server.completion_request import Prompt, read_completion_request
from helios.server.fields import parse_body
from helios.server.options import GenerationOptions, Limits

if TYPE_CHECKING:
    from helios.engine import Engine

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A checked request body: what to generate, one GenerationRequest for each choice of the answer, in order."""

    options: GenerationOptions
    requests: tuple[GenerationRequest, ...]


class Frontend:
    """The preparation threads and what they share. Close it after the listener."""

    def __init__(self, engine: Engine, n_workers: int) -> None:
        self._tokenizer = engine.tokenizer
        self._context_tokens = engine.context_tokens
        self._eos_tokens = engine.eos_tokens
        self._bos_tokens = self._tokenizer.encode(engine.bos_text, allow_special=True) if engine.adds_bos else []
        self._limits = Limits(engine.served_id, engine.aliases, engine.vocabulary, engine.sampling_defaults)
        self._template = ChatTemplate(
            engine.chat_template,
            ControlTokens(engine.tokenizer),
            bos_text=engine.bos_text,
            eos_text=engine.eos_text,
            clock=datetime.now,
        )
        self._threads = ThreadPoolExecutor(n_workers, thread_name_prefix="helios-frontend")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def run(self, job: Callable[[bytes], _T], body: bytes) -> _T:
        """`job(body)` on a preparation thread. When the caller is cancelled, a job that has not begun never will."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, job, body)

    def prepare_chat(self, body: bytes) -> PreparedCall:
        """A chat request's body to generation requests."""
        request = read_chat_request(parse_body(body), self._limits, secrets.randbits(64))
        return self._prepared([self.chat_tokens(request.messages)], request.options)

    def prepare_completion(self, body: bytes) -> PreparedCall:
        """A plain completion's body to generation requests, each prompt with all its choices in turn."""
        request = read_completion_request(parse_body(body), self._limits, secrets.randbits(64))
        return self._prepared([self.prompt_tokens(prompt) for prompt in request.prompts], request.options)

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation that the assistant is to continue."""
        return self._template.encode(Conversation(tuple(messages)))

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """The tokens of a raw prompt. It is the caller's whole input, so control tokens may be spelled in it."""
        if not isinstance(prompt, str):
            return list(prompt)
        return self._bos_tokens + self._tokenizer.encode(prompt, allow_special=True)

    def pipeline(self, options: GenerationOptions) -> OutputPipeline:
        """The presentation of one choice."""
        return OutputPipeline(self._tokenizer, options.stops, self._eos_of(options))

    def _eos_of(self, options: GenerationOptions) -> tuple[int, ...]:
        return () if options.ignores_eos else self._eos_tokens

    def _prepared(self, prompts: Sequence[Sequence[int]], options: GenerationOptions) -> PreparedCall:
        requests = tuple(
            self._request(tokens, options, choice) for tokens in prompts for choice in range(options.n_choices)
        )
        return PreparedCall(options, requests)

    def _request(self, tokens: Sequence[int], options: GenerationOptions, choice: int) -> GenerationRequest:
        n_left = self._context_tokens - len(tokens)
        if n_left < 1:
            raise ContextLengthError(len(tokens), self._context_tokens - 1)
        return GenerationRequest(
            prompt_tokens=tuple(tokens),
            output_limit=min(options.output_limit or n_left, n_left),
            eos_tokens=self._eos_of(options),
            sampling=replace(options.sampling, seed=options.seed_of(choice)),
            host_stop=host_stop(self._tokenizer, options.stops),
        )
