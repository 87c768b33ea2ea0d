"""One choice of an answer: a running generation seen as growing text, reasoning and calls.

It knows engine events and the output pipeline, no JSON. Every choice ends with exactly one Delta that has a finish reason, or
with an error, which is raised once everything before it was given out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import NamedTuple, Protocol

from helios.errors import HeliosError, InternalError, ShuttingDownError
from helios.output.events import (
    ContentDelta,
    Ending,
    OutputEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from helios.output.pipeline import OutputPipeline
from helios.scheduler.request import Event, Failed, Finished, FinishReason, PromptScores, Token, Usage
from helios.server.attribution import Attribution, OpenToken, TokenPart
from helios.server.reading import Reading

_NO_TOKENS: Iterator[Sequence[TokenPart]] = iter(())


class Events(Protocol):
    """A running generation."""

    async def next_batch(self) -> list[Event]: ...
    def cancel(self) -> None: ...


class Part(NamedTuple):
    """An event with the tokens that its text came from, where anybody asked for them."""

    event: OutputEvent
    tokens: tuple[TokenPart, ...] = ()


class Delta(NamedTuple):
    """What came since the last one. `tokens` are all of them, shown or not, EOS and stop tokens included."""

    tokens: tuple[Token, ...]
    parts: tuple[Part, ...]
    scores: PromptScores | None = None
    finish_reason: str | None = None


class Choice:
    """`await next_delta()` until one has a finish reason; then `usage` is known. `cancel` ends it in any phase."""

    def __init__(
        self,
        index: int,
        generation: Events,
        pipeline: OutputPipeline,
        reading: Reading,
        attribution: Attribution | None,
    ) -> None:
        self.index = index
        self.usage: Usage | None = None
        self.n_reasoning_tokens = 0
        self._generation = generation
        self._pipeline = pipeline
        self._reading = reading
        self._attribution = attribution
        self._n_calls_begun = 0
        self._n_calls_complete = 0
        self._last_reasoning: Token | None = None
        self._held: Part | None = None  # of a token whose text is not over: it is shown in one piece
        self._error: HeliosError | None = None

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer, None without one."""
        return self._pipeline.stop

    def cancel(self) -> None:
        self._generation.cancel()

    async def next_delta(self) -> Delta:
        """What the next batch of events makes visible; possibly nothing, while text is held back."""
        if self._error is not None:
            raise self._error
        tokens: list[Token] = []
        parts: list[Part] = []
        scores: PromptScores | None = None
        for event in await self._generation.next_batch():
            if isinstance(event, Token):
                tokens.append(event)
                parts += self._push(event)
            elif isinstance(event, PromptScores):
                scores = event
            elif isinstance(event, Failed):
                self._error = event.error
                parts += self._release()
            elif error := self._error_of(event.reason):
                self._error = error
                parts += self._release()
            else:
                parts += self._finish(event)
                return self._delta(tokens, parts, scores, self._finish_reason())
        if self._error is not None and not tokens and not parts and scores is None:
            raise self._error
        return self._delta(tokens, parts, scores, None)

    def _delta(
        self, tokens: list[Token], parts: list[Part], scores: PromptScores | None, finish_reason: str | None
    ) -> Delta:
        if self._reading.is_silent:
            return Delta((), (), scores, "length" if finish_reason is not None else None)
        return Delta(tuple(tokens), tuple(parts if len(parts) < 2 else _joined(parts)), scores, finish_reason)

    def _push(self, token: Token) -> list[Part]:
        if self._attribution is not None and not self._pipeline.is_done:
            self._attribution.push(token)
        return self._parts(self._pipeline.push(token.token_id))

    def _error_of(self, reason: FinishReason) -> HeliosError | None:
        """What an ending is to the client that did not ask for it, None for a good one."""
        if reason is FinishReason.CANCELLED:
            return ShuttingDownError()
        if reason is FinishReason.STOP and not self._pipeline.is_stopped:
            return InternalError("the model worker saw a stop that the presentation did not")
        return None

    def _finish(self, event: Finished) -> list[Part]:
        self.usage = replace(event.usage, output_tokens=0) if self._reading.is_silent else event.usage
        if self._attribution is not None:
            self._attribution.finish()
        parts = [*self._parts(self._pipeline.finish(Ending(event.reason.value))), *self._release()]
        if (
            self._attribution is not None
            and event.reason is not FinishReason.STOP
            and (rest := self._attribution.rest())
        ):
            parts.append(Part(ContentDelta(""), tuple(rest)))  # an end token has a number and no text
        return parts

    def _parts(self, events: Sequence[OutputEvent]) -> list[Part]:
        """What is shown of the events that one token made certain."""
        if not events:
            return []
        tokens: Iterator[Sequence[TokenPart]] = _NO_TOKENS
        if self._attribution is not None:
            texts = [event for event in events if isinstance(event, ContentDelta | ReasoningDelta)]
            tokens = iter(self._attribution.take([(event.text, type(event)) for event in texts]))
        parts = [self._part(event, tokens) for event in events]
        return parts if self._attribution is None else self._with_whole_tokens(parts, self._attribution.open_token)

    def _with_whole_tokens(self, parts: list[Part], end: OpenToken | None) -> list[Part]:
        """What was held back and these; of the last text, the part of a token that goes on is held back in its turn."""
        *before, last = _joined([*self._release(), *parts])
        if end is None or not isinstance(last.event, ContentDelta):
            return [*before, last]
        shown, more = last.event.text[: -end.n_characters], last.event.text[-end.n_characters :]
        n_whole = len(last.tokens) - sum(any(part.token is token for token in end.tokens) for part in last.tokens)
        self._held = Part(ContentDelta(more), last.tokens[n_whole:])
        return [*before, Part(ContentDelta(shown), last.tokens[:n_whole])] if shown else before

    def _release(self) -> list[Part]:
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _part(self, event: OutputEvent, tokens: Iterator[Sequence[TokenPart]]) -> Part:
        match event:
            case ContentDelta():
                return Part(event, tuple(next(tokens, ())))
            case ToolCallStart():
                self._n_calls_begun += 1
            case ToolCallEnd():
                self._n_calls_complete += 1
            case ReasoningDelta():
                self._count_reasoning(next(tokens, ()))
        return Part(event)

    def _count_reasoning(self, parts: Sequence[TokenPart]) -> None:
        for part in parts:  # a token that reasoning got in two pieces is one
            self.n_reasoning_tokens += part.token is not self._last_reasoning
            self._last_reasoning = part.token

    def _finish_reason(self) -> str:
        """OpenAI's word. Calls are told only where the answer ended by itself, and all of them are complete (STOP-3)."""
        ending = self._pipeline.ending
        if ending is Ending.LIMIT:
            return "length"
        has_calls = 0 < self._n_calls_complete == self._n_calls_begun
        return "tool_calls" if ending is Ending.EOS and has_calls and not self._reading.names_tool else "stop"


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Neighbouring pieces of the same text as one, so that a batch of tokens is one chunk. All pieces of one are joined at once: a
    batch that has waited for a late event loop is long."""
    for _, pieces in groupby(parts, key=_kind):
        yield _join(list(pieces))


def _kind(part: Part) -> object:
    """What neighbours that are pieces of the same text have alike; an event that is no text has it to itself."""
    match part.event:
        case ContentDelta() | ReasoningDelta():
            return type(part.event)
        case ToolArgumentsDelta(index):
            return ToolArgumentsDelta, index
    return id(part)


def _join(pieces: Sequence[Part]) -> Part:
    if len(pieces) == 1:
        return pieces[0]
    text = "".join(_text(piece.event) for piece in pieces)
    tokens = tuple(chain.from_iterable(piece.tokens for piece in pieces))
    match pieces[0].event:
        case ReasoningDelta():
            return Part(ReasoningDelta(text), tokens)
        case ToolArgumentsDelta(index):
            return Part(ToolArgumentsDelta(index, text), tokens)
    return Part(ContentDelta(text), _one_part_each(tokens))


def _text(event: OutputEvent) -> str:
    match event:
        case ContentDelta(text) | ReasoningDelta(text) | ToolArgumentsDelta(_, text):
            return text
    return ""


def _one_part_each(parts: Sequence[TokenPart]) -> tuple[TokenPart, ...]:
    """The pieces of a token that stand side by side as one."""
    return tuple(
        TokenPart(pieces[0].token, b"".join(piece.spelled for piece in pieces))
        for _, group in groupby(parts, key=lambda part: id(part.token))
        for pieces in [list(group)]
    )
