"""Request bodies to generation requests, on threads of their own.

It knows templates, tokens, grammars and the context limit; it knows no sockets and runs nothing. Parsing, rendering, tokenising and
compiling for one body is one job for one of `frontend_workers` threads, so that a large one does not hold up the loop (HTTP-1).
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from helios.contract.enums import ReasoningSyntax, ToolSyntax
from helios.errors import ContextLengthError, InvalidValueError
from helios.output.opening import open_answer
from helios.output.parser import AnswerParser
from helios.output.pipeline import OutputPipeline, host_stop
from helios.output.states import Phase
from helios.output.syntax import AnswerSyntax
from helios.prompt.boundaries import PrefixBoundaries
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation
from helios.prompt.grammar.opening import Opening
from helios.prompt.grammar.request import StructuredRequest
from helios.scheduler.request import GenerationRequest
from helios.server.chat_request import ChatRequest, read_chat_request
from helios.server.completion_request import Prompt, read_completion_request
from helios.server.fields import Fields, parse_body
from helios.server.options import GenerationOptions, Limits
from helios.server.reading import Reading

if TYPE_CHECKING:
    from helios.engine import Engine
    from helios.prompt.grammar.grammars import CompiledGrammar, Grammars

# Of one body: prompt tokens, each with its alternatives. Presenting so many takes 0.4 s of the loop and 10 MB.
MAX_PROMPT_SCORES = 1 << 17

_T = TypeVar("_T")
_Body = TypeVar("_Body")
_Tokens = TypeVar("_Tokens", bound=Sequence[int])
ChatReader = Callable[[Fields, Limits, int], ChatRequest]
_OPENINGS = {Phase.UNDECIDED: Opening.EITHER, Phase.REASONING: Opening.REASONING}


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A checked request body: what to generate, one GenerationRequest for each choice of the answer, in order.

    `echoes` are the texts that the answers begin with, one for each request, or none. `shows_prompt_logprobs`: they were asked for
    by that name.
    """

    options: GenerationOptions
    requests: tuple[GenerationRequest, ...]
    reading: Reading
    echoes: tuple[str, ...] = ()
    n_echoed_silently: int = 0
    shows_prompt_logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """A checked prompt as tokens, and what was asked of its answer."""

    tokens: list[int]
    options: GenerationOptions


class Frontend:
    """The preparation threads and what they share. Close it after the listener."""

    def __init__(self, engine: Engine, n_workers: int) -> None:
        self._tokenizer = engine.tokenizer
        self._declared = engine.frontend
        self._context_tokens = engine.context_tokens
        self._eos_tokens = engine.eos_tokens
        self._bos_tokens = self._tokenizer.encode(engine.bos_text, allow_special=True) if engine.adds_bos else []
        self._limits = Limits(
            engine.served_id,
            engine.aliases,
            engine.vocabulary,
            engine.sampling_defaults,
            calls_tools=engine.frontend.tool_syntax is not ToolSyntax.NONE,
            scores_prompts=engine.scores_prompts,
        )
        self._has_reasoning = engine.frontend.reasoning_syntax is not ReasoningSyntax.NONE
        self._syntax = AnswerSyntax(engine.frontend, engine.tokenizer)
        self._grammars: Grammars | None = None
        self._grammars_lock = threading.Lock()
        self._template = ChatTemplate(
            engine.chat_template,
            ControlTokens(engine.tokenizer, self._markers(engine.chat_template)),
            bos_text=engine.bos_text,
            eos_text=engine.eos_text,
            clock=datetime.now,
        )
        self._boundaries = (
            PrefixBoundaries(engine.frontend, self._template, engine.tokenizer) if engine.saves_boundaries else None
        )
        self._threads = ThreadPoolExecutor(n_workers, thread_name_prefix="helios-frontend")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _markers(self, template: str) -> Iterator[str]:
        """Spellings of tokens that mean something: to the parser of answers, or in the template itself."""
        markup = self._syntax.markup.characters
        for text, token_id in self._tokenizer.added_tokens.items():
            if token_id in markup or (text in template and not text.isspace()):
                yield text
        yield from (self._tokenizer.token_bytes(token_id).decode("utf-8", errors="replace") for token_id in markup)

    # -- jobs

    async def run(self, job: Callable[[_Body], _T], body: _Body) -> _T:
        """`job(body)` on a preparation thread. When the caller is cancelled, a job that has not begun never will."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, job, body)

    def prepare_chat(self, body: bytes, read: ChatReader = read_chat_request) -> PreparedCall:
        """A chat request's body to generation requests, in the form that `read` knows."""
        request = read(parse_body(body), self._limits, secrets.randbits(64))
        tokens = self.chat_tokens(request.conversation, fits=True)
        reading = self._chat_reading(request.structured, tokens)
        opening = self._opening(reading) if request.structured.is_constrained else Opening.ANSWER
        grammar = self._grammar(request.structured, opening)
        first, *others = self._requests([tokens], request.options, grammar, self._syntax_of(reading))
        if self._boundaries is not None:
            first = replace(first, boundaries=self._boundaries.of(request.conversation, tokens))
        requests = (first, *(replace(other, prompt_candidates=None) for other in others))  # their prompt is the same
        _check_scores(requests, "prompt_logprobs")
        return PreparedCall(
            request.options,
            requests,
            reading,
            shows_prompt_logprobs=request.options.n_prompt_candidates is not None,
        )

    def prepare_completion(self, body: bytes) -> PreparedCall:
        """A plain completion's body to generation requests, each prompt with all its choices in turn."""
        fields = parse_body(body)
        request = read_completion_request(fields, self._limits, secrets.randbits(64))
        grammar = self.plain_grammar(request.structured)
        prompts = [self.prompt_tokens(prompt, fits=True) for prompt in request.prompts]
        texts = [text for text in map(self._prompt_text, request.prompts) for _ in range(request.options.n_choices)]
        requests = self._requests(prompts, request.options, grammar, None)
        _check_scores(requests, "echo" if request.echoes else "prompt_logprobs")
        return PreparedCall(
            request.options,
            requests,
            Reading(is_structured=grammar is not None, is_silent=request.is_echo_only),
            echoes=tuple(texts) if request.echoes else (),
            n_echoed_silently=len(self._bos_tokens) if isinstance(request.prompts[0], str) else 0,
            shows_prompt_logprobs=fields.value("prompt_logprobs") is not None,
        )

    def chat_tokens(self, conversation: Conversation, *, fits: bool = False) -> list[int]:
        """The tokens of a conversation that the assistant is to continue. `fits`: a text that is much longer than the context is
        refused (ContextLengthError) and not encoded."""
        return self._template.encode(conversation, self._context_tokens - 1 if fits else None)

    def count_chat(self, body: bytes, read: ChatReader) -> int:
        """The length of a chat request's prompt, which may be longer than the context."""
        return len(self.chat_tokens(read(parse_body(body), self._limits, 0).conversation))

    def render_chat(self, body: bytes) -> Rendered:
        """The prompt of a chat request's body, which fits the context."""
        request = read_chat_request(parse_body(body), self._limits, 0)
        return Rendered(self._fitting(self.chat_tokens(request.conversation, fits=True)), request.options)

    def render_completion(self, body: bytes) -> list[Rendered]:
        """The same of a plain completion's, each prompt."""
        request = read_completion_request(parse_body(body), self._limits, 0)
        prompts = (self.prompt_tokens(prompt, fits=True) for prompt in request.prompts)
        return [Rendered(self._fitting(tokens), request.options) for tokens in prompts]

    def prompt_tokens(self, prompt: Prompt, *, adds_bos: bool = True, fits: bool = False) -> list[int]:
        """The tokens of a raw prompt. It is the caller's whole input, so control tokens may be spelled in it. `fits` as above."""
        if not isinstance(prompt, str):
            return list(prompt)
        if fits:
            self._tokenizer.check_length(prompt, self._context_tokens - 1)
        tokens = self._tokenizer.encode(prompt, allow_special=True)
        return self._bos_tokens + tokens if adds_bos else tokens

    def plain_grammar(self, structured: StructuredRequest) -> CompiledGrammar | None:
        """The grammar of an answer to a raw prompt, None where there is none."""
        return self._grammar(structured, Opening.PLAIN)

    def _grammar(self, structured: StructuredRequest, opening: Opening) -> CompiledGrammar | None:
        """None where every token is allowed. The library of grammars is loaded for the first one."""
        if not structured.is_constrained:
            return None
        with self._grammars_lock:
            if self._grammars is None:
                from helios.prompt.grammar.grammars import Grammars

                self._grammars = Grammars(self._tokenizer, self._declared, self._limits.vocabulary)
        return self._grammars.compile(structured, opening)

    def _prompt_text(self, prompt: Prompt) -> str:
        return prompt if isinstance(prompt, str) else self._tokenizer.decode(prompt)

    # -- answers

    def pipeline(self, call: PreparedCall) -> OutputPipeline:
        """The presentation of one choice."""
        reading = call.reading
        return OutputPipeline(
            self._tokenizer,
            call.options.stops.strings,
            self._eos_of(call.options),
            stop_sequences=call.options.stops.token_sequences,
            syntax=self._syntax_of(reading),
            tools=reading.tools,
            opening=reading.opening,
            is_structured=reading.is_structured,
        )

    def has_reasoning(self, reading: Reading) -> bool:
        """Whether tokens of the answer may be reasoning."""
        return reading.is_parsed and self._has_reasoning

    def _chat_reading(self, structured: StructuredRequest, tokens: Sequence[int]) -> Reading:
        return Reading(
            is_parsed=True,
            opening=open_answer(tokens, self._tokenizer, self._syntax),
            tools={tool.name: tool.parameters or {} for tool in structured.callable_tools},
            is_structured=structured.answer is not None,
            names_tool=structured.named is not None,
        )

    def _opening(self, reading: Reading) -> Opening:
        """Where the prompt leaves the answer, for its grammar."""
        if not self._syntax.is_parsed(has_tools=bool(reading.tools)):
            return Opening.ANSWER
        parser = AnswerParser(self._syntax, reading.tools, str, opening=reading.opening)
        return _OPENINGS.get(parser.phase, Opening.ANSWER)

    def _syntax_of(self, reading: Reading) -> AnswerSyntax | None:
        """What stops are matched on has to be the same for the model worker and for the presentation (STOP-3)."""
        return self._syntax if reading.is_parsed else None

    def _eos_of(self, options: GenerationOptions) -> tuple[int, ...]:
        return () if options.ignores_eos else self._eos_tokens

    # -- generation requests

    def _fitting(self, tokens: _Tokens) -> _Tokens:
        """The same, or ContextLengthError where they leave no room for an answer."""
        if len(tokens) >= self._context_tokens:
            raise ContextLengthError(len(tokens), self._context_tokens - 1)
        return tokens

    def _requests(
        self,
        prompts: Sequence[Sequence[int]],
        options: GenerationOptions,
        grammar: CompiledGrammar | None,
        syntax: AnswerSyntax | None,
    ) -> tuple[GenerationRequest, ...]:
        return tuple(
            self._request(tokens, options, choice, grammar, syntax)
            for tokens in prompts
            for choice in range(options.n_choices)
        )

    def _request(
        self,
        tokens: Sequence[int],
        options: GenerationOptions,
        choice: int,
        grammar: CompiledGrammar | None,
        syntax: AnswerSyntax | None,
    ) -> GenerationRequest:
        n_left = self._context_tokens - len(self._fitting(tokens))
        return GenerationRequest(
            prompt_tokens=tuple(tokens),
            output_limit=min(options.output_limit or n_left, n_left),
            eos_tokens=self._eos_of(options),
            sampling=replace(options.sampling, seed=options.seed_of(choice)),
            host_stop=host_stop(self._tokenizer, options.stops.strings, options.stops.token_sequences, syntax),
            constraint=None if grammar is None else grammar.start(),
            priority=options.priority,
            cache_salt=options.cache_salt,
            is_timed=options.observation.has_times,
            prompt_candidates=options.n_prompt_candidates,
        )


def _check_scores(requests: Sequence[GenerationRequest], param: str) -> None:
    """Raise InvalidValueError where more would be told of prompts than one response should hold."""
    n_scores = sum(
        len(request.prompt_tokens) * (1 + request.prompt_candidates)
        for request in requests
        if request.prompt_candidates is not None
    )
    if n_scores > MAX_PROMPT_SCORES:
        raise InvalidValueError(
            f"{n_scores:,} log-probabilities of prompt tokens are asked for, the limit is {MAX_PROMPT_SCORES:,}",
            hint="ask for fewer alternatives, choices or prompts",
            param=param,
        )
