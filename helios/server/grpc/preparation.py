"""From a request message to generation requests: tokens, limits, stops and masks, on a preparation thread.

It knows the tokenizer, the grammars and the context limit, no sockets, and runs nothing. The sequences of one request differ in
their seeds and in nothing else, so that they share one prefill through the cache.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helios.errors import ContextLengthError, InvalidValueError
from helios.packing.values import MAX_EOS
from helios.prompt.token_filter import TokenFilter
from helios.scheduler.request import GenerationRequest, TokenConstraint
from helios.server.frontend import Frontend
from helios.server.grpc.answer_text import TextRules, host_stop
from helios.server.grpc.generate_request import Asked, GenerateOptions, read_generate_request
from helios.server.grpc.whole_vocabulary import MAX_REPORTED
from helios.server.options import Limits, seed_bits

if TYPE_CHECKING:
    from helios.engine import Engine
    from helios.prompt.grammar.grammars import CompiledGrammar

MAX_PROMPT_CANDIDATES = 1 << 18  # of one request, by rank or by id: an object each while they wait


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """`requests` has one for each sequence, in order. `eos_tokens` and `stop_tokens` end them, the latter by the caller's wish."""

    options: GenerateOptions
    rules: TextRules
    eos_tokens: frozenset[int]
    stop_tokens: frozenset[int]
    requests: tuple[GenerationRequest, ...]

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        return self.requests[0].prompt_tokens


class Preparation:
    """What all requests share. `n_default`: new tokens of a request without a limit, None for as many as fit."""

    def __init__(self, engine: Engine, frontend: Frontend, n_default: int | None) -> None:
        self._frontend = frontend
        self._tokenizer = engine.tokenizer
        self._eos_tokens = engine.eos_tokens
        self._context_tokens = engine.context_tokens
        self._n_default = n_default
        self._limits = Limits(
            engine.served_id,
            engine.aliases,
            engine.vocabulary,
            engine.sampling_defaults,
            scores_prompts=engine.scores_prompts,
            reports_distributions=engine.reports_distributions,
            reports_prompt_distributions=engine.reports_prompt_distributions,
        )

    def prepare(self, asked: Asked) -> PreparedGeneration:
        """A job for `Frontend.run`. Raises RequestError."""
        options = read_generate_request(asked, self._limits, self._n_default, secrets.randbits(64))
        grammar = self._frontend.plain_grammar(options.form)
        prompt_tokens = self._prompt_tokens(options)
        stopping = options.stopping
        rules = TextRules(stopping.strings, stopping.n_least, stopping.shows_stop, options.shown.skips_special)
        eos_tokens = () if stopping.ignores_eos else self._eos_tokens
        first = GenerationRequest(
            prompt_tokens=prompt_tokens,
            output_limit=self._output_limit(options, len(prompt_tokens)),
            eos_tokens=_device_endings(eos_tokens, stopping.token_ids),
            sampling=options.sampling,
            priority=options.priority,
            cache_salt=options.cache.salt,
            uses_cache=options.cache.uses_cache,
            retention=options.cache.retention(len(prompt_tokens)),
        )
        self._check_reported(options, len(prompt_tokens), first.output_limit)
        constrain = self._constraints(options, grammar)
        requests = tuple(self._sequence(options, first, rules, constrain, i) for i in range(options.n_sequences))
        return PreparedGeneration(options, rules, frozenset(eos_tokens), frozenset(stopping.token_ids), requests)

    def _sequence(
        self,
        options: GenerateOptions,
        first: GenerationRequest,
        rules: TextRules,
        constrain: Callable[[], TokenConstraint | None],
        index: int,
    ) -> GenerationRequest:
        """One of the sequences: each can be had again alone, by its own seed. The prompt is scored once."""
        host_stops = [token_id for token_id in options.stopping.token_ids if token_id not in first.eos_tokens]
        scored = options.shown.prompt_candidates if index == 0 else None
        return replace(
            first,
            sampling=replace(first.sampling, seed=seed_bits(first.sampling.seed + index)),
            host_stop=host_stop(self._tokenizer, rules, host_stops),
            constraint=constrain(),
            prompt_candidates=None if scored is None else scored.n_best or 0,
            named_prompt_candidates=() if scored is None else scored.named,
            has_prompt_distributions=scored is not None and scored.is_whole,
        )

    def _prompt_tokens(self, options: GenerateOptions) -> tuple[int, ...]:
        tokens = self._frontend.prompt_tokens(options.prompt, fits=not options.n_kept)
        if options.n_kept:
            n_most = self._context_tokens - (options.stopping.n_most or 1)
            if options.n_kept > n_most:
                raise InvalidValueError(
                    f"truncate_prompt_tokens is {options.n_kept:,}, the context has room for {max(n_most, 0):,}",
                    param="truncate_prompt_tokens",
                )
            tokens = tokens[-options.n_kept :]
        if not tokens:
            raise InvalidValueError("text has no tokens, at least 1 is needed", param="text")
        if len(tokens) >= self._context_tokens:
            raise ContextLengthError(len(tokens), self._context_tokens - 1)
        return tuple(tokens)

    def _output_limit(self, options: GenerateOptions, n_prompt: int) -> int:
        n_left = self._context_tokens - n_prompt
        n_most = min(options.stopping.n_most or n_left, n_left)
        if options.stopping.n_least > n_most:
            raise InvalidValueError(
                f"stopping.min_new_tokens is {options.stopping.n_least:,}, the most that can be generated is {n_most:,}",
                param="stopping.min_new_tokens",
            )
        return n_most

    def _check_reported(self, options: GenerateOptions, n_prompt: int, n_most: int) -> None:
        """The memory of an answer is bounded before anything runs."""
        shown, vocabulary = options.shown, self._limits.vocabulary
        if shown.is_whole:
            param, n_fit = "response.output_candidates.all", MAX_REPORTED // vocabulary
            hint = f"set stopping.max_new_tokens to {n_fit} at most"
            _check_count(options.n_sequences * n_most * vocabulary, MAX_REPORTED, param, hint)
        if shown.is_prompt_whole:
            param, n_fit = "response.prompt_candidates.all", MAX_REPORTED // vocabulary + 1
            _check_count((n_prompt - 1) * vocabulary, MAX_REPORTED, param, f"its prompt may have {n_fit} tokens")
        elif shown.prompt_candidates is not None:
            n_each = len(shown.prompt_candidates.named) or shown.prompt_candidates.n_best or 0
            n_candidates = (n_prompt - 1) * n_each
            _check_count(n_candidates, MAX_PROMPT_CANDIDATES, "response.prompt_candidates", "ask for fewer")

    def _constraints(
        self, options: GenerateOptions, grammar: CompiledGrammar | None
    ) -> Callable[[], TokenConstraint | None]:
        """Makes the constraint of each sequence."""

        def begin() -> TokenConstraint | None:
            return None if grammar is None else grammar.start()

        n_least = options.stopping.n_least
        if not options.allowed_tokens and not n_least:
            return begin
        endings = {*options.stopping.token_ids, *(() if options.stopping.ignores_eos else self._eos_tokens)}
        filter_ = TokenFilter(self._limits.vocabulary, options.allowed_tokens, endings, n_least)
        return lambda: filter_.start(begin())


def _check_count(n_candidates: int, n_most: int, param: str, hint: str) -> None:
    if n_candidates > n_most:
        raise InvalidValueError(
            f"{param} asks for up to {n_candidates:,} candidates, the limit is {n_most:,}", hint=hint, param=param
        )


def _device_endings(eos_tokens: tuple[int, ...], stop_tokens: tuple[int, ...]) -> tuple[int, ...]:
    """All of them where the device can hold so many, else its own alone: then the host looks for the others."""
    endings = tuple(dict.fromkeys((*eos_tokens, *stop_tokens)))
    return endings if len(endings) <= MAX_EOS else eos_tokens
