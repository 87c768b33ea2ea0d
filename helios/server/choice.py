"""One choice of an answer: a running generation seen as growing text.

It knows engine events and the output pipeline, no JSON. Every choice ends with exactly one Delta that has a finish reason, or
with the error of its Failed event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.errors import InternalError, ShuttingDownError
from helios.output.events import ContentDelta, Ending, OutputEvent
from helios.output.pipeline import OutputPipeline
from helios.scheduler.request import Failed, Finished, FinishReason, Token, Usage

if TYPE_CHECKING:
    from helios.engine import Generation

_REASONS = {FinishReason.EOS: "stop", FinishReason.STOP: "stop", FinishReason.LIMIT: "length"}


@dataclass(frozen=True, slots=True)
class Delta:
    """What came since the last one. `tokens` are those whose text this is, kept only where log-probabilities were asked for."""

    text: str
    tokens: tuple[Token, ...] = ()
    finish_reason: str | None = None


class Choice:
    """`await next_delta()` until one has a finish reason; then `usage` is known. `cancel` ends it in any phase."""

    def __init__(self, index: int, generation: Generation, pipeline: OutputPipeline, *, keeps_tokens: bool) -> None:
        self.index = index
        self.usage: Usage | None = None
        self._generation = generation
        self._pipeline = pipeline
        self._keeps_tokens = keeps_tokens
        self._held_tokens: list[Token] = []

    def cancel(self) -> None:
        self._generation.cancel()

    async def next_delta(self) -> Delta:
        """What the next batch of events makes visible; possibly nothing, while text is held back for a stop."""
        texts: list[str] = []
        tokens: list[Token] = []
        for event in await self._generation.next_batch():
            if isinstance(event, Token):
                texts.append(self._push(event, tokens))
            elif isinstance(event, Finished):
                return self._finished(event, texts, tokens)
            elif isinstance(event, Failed):
                raise event.error
        return Delta("".join(texts), tuple(tokens))

    def _push(self, token: Token, shown: list[Token]) -> str:
        """Present one token. Its log-probability is shown together with its text, and never when a stop removes all of that."""
        was_done = self._pipeline.is_done
        text = _text(self._pipeline.push(token.token_id))
        is_end = self._pipeline.is_done and not self._pipeline.is_stopped
        if self._keeps_tokens and not was_done and not is_end:
            self._held_tokens.append(token)
        if text:
            shown += self._held_tokens
            self._held_tokens.clear()
        return text

    def _finished(self, event: Finished, texts: list[str], tokens: list[Token]) -> Delta:
        if event.reason is FinishReason.CANCELLED:
            raise ShuttingDownError
        if event.reason is FinishReason.STOP and not self._pipeline.is_stopped:
            raise InternalError("the model worker saw a stop that the presentation did not")
        self.usage = event.usage
        texts.append(_text(self._pipeline.finish(Ending(event.reason.value))))
        if self._pipeline.is_stopped:
            return Delta("".join(texts), tuple(tokens), "stop")
        return Delta("".join(texts), (*tokens, *self._held_tokens), _REASONS[event.reason])


def _text(events: list[OutputEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))
