"""`POST /v1/completions`: the JSON of OpenAI's plain text completions.

It knows the response's field names and no flow. Chunks and responses have the same entries here, so that clients read both
alike. An echoed prompt is the beginning of the text, and its tokens the first of the log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helios.output.events import ContentDelta
from helios.scheduler.request import PromptScores, Token
from helios.server.answer import answer
from helios.server.attribution import TokenPart
from helios.server.choice import Part
from helios.server.exchange import Exchange
from helios.server.frontend import PreparedCall
from helios.server.logprobs import completion_logprobs, prompt_logprobs
from helios.server.services import Services
from helios.server.whole_answer import Answer
from helios.tokenizer.tokenizer import Tokenizer


async def create_completion(services: Services, exchange: Exchange) -> None:
    """Continue raw prompts."""
    tokenizer = services.engine.tokenizer
    await answer(services, exchange, services.frontend.prepare_completion, lambda call: _Shape(tokenizer, call))


class _Shape:
    """See `answer.Shape`."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, call: PreparedCall) -> None:
        self._tokenizer = tokenizer
        self._call = call
        self._n_candidates = call.options.sampling.candidates
        self._n_prompt_candidates = call.options.n_prompt_candidates
        self._n_characters = [len(self._echo(index)) for index in range(len(call.requests))]

    def opening(self, index: int) -> dict[str, Any] | None:
        """An echo that has log-probabilities comes with the scores of the prompt."""
        is_scored = self._n_candidates is not None
        return _entry(index, self._echo(index), None, None) if self._call.echoes and not is_scored else None

    def scores(self, index: int, scores: PromptScores) -> tuple[dict[str, Any], dict[str, Any]]:
        has_logprobs = self._call.echoes and self._n_candidates is not None
        logprobs = self._prompt_part(index, scores) if has_logprobs else None
        entry = _entry(index, self._echo(index) if has_logprobs else "", logprobs, None)
        return entry | self._prompt_logprobs(scores), {}

    def part(self, index: int, part: Part) -> dict[str, Any] | None:
        if not isinstance(part.event, ContentDelta):
            return None
        logprobs = self._logprobs(part.tokens, self._n_characters[index])
        self._n_characters[index] += len(part.event.text)
        return _entry(index, part.event.text, logprobs, None)

    def observation(self, index: int) -> dict[str, Any]:
        return _entry(index, "", None, None)

    def ending(self, index: int, finish_reason: str) -> dict[str, Any]:
        return _entry(index, "", None, finish_reason)

    def whole(self, answer: Answer) -> dict[str, Any]:
        echo = self._echo(answer.index)
        logprobs = self._logprobs(answer.content_tokens, len(echo))
        if logprobs is not None and answer.scores is not None and self._call.echoes:
            first = self._prompt_part(answer.index, answer.scores)
            logprobs = {name: first[name] + logprobs[name] for name in logprobs}
        entry = _entry(answer.index, echo + answer.content, logprobs, answer.finish_reason)
        return entry if answer.scores is None else entry | self._prompt_logprobs(answer.scores)

    def beside(self, answers: Sequence[Answer]) -> dict[str, Any]:
        return {}

    def _echo(self, index: int) -> str:
        return self._call.echoes[index] if self._call.echoes else ""

    def _logprobs(self, parts: Sequence[TokenPart], n_before: int) -> dict[str, Any] | None:
        if self._n_candidates is None:
            return None
        return completion_logprobs(self._tokenizer, parts, self._n_candidates, n_before)

    def _prompt_part(self, index: int, scores: PromptScores) -> dict[str, Any]:
        """The echoed prompt's share of the lists: its first token has no score."""
        n_unseen = self._call.n_echoed_silently
        tokens = (Token(self._call.requests[index].prompt_tokens[0]), *scores.tokens)
        spelled = [self._tokenizer.token_bytes(token.token_id) for token in tokens]
        if self._tokenizer.has_dummy_prefix and n_unseen < len(spelled):
            spelled[n_unseen] = spelled[n_unseen].removeprefix(b" ")
        parts = [TokenPart(token, piece) for token, piece in zip(tokens, spelled, strict=True)]
        n_candidates = self._n_candidates or 0
        return completion_logprobs(self._tokenizer, parts, n_candidates, is_prompt=True, n_unseen=n_unseen)

    def _prompt_logprobs(self, scores: PromptScores) -> dict[str, Any]:
        """Only where they were asked for by name, not for an echo."""
        if not self._call.shows_prompt_logprobs:
            return {}
        return {"prompt_logprobs": prompt_logprobs(self._tokenizer, scores.tokens, self._n_prompt_candidates or 0)}


def _entry(index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
