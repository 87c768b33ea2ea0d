"""A finished choice, put together from its deltas: the same events that a stream shows, in one value.

It knows no JSON. Reasoning, content and each call's arguments are the joined pieces, so that both forms of a response agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.output.events import ContentDelta, ReasoningDelta, ToolArgumentsDelta, ToolCallStart
from helios.scheduler.request import PromptScores, Token
from helios.server.attribution import TokenPart
from helios.server.choice import Delta, Part


@dataclass(slots=True)
class AnsweredCall:
    """A call as far as it came."""

    call_id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """Grows by `add` until it has a finish reason."""

    index: int
    reasoning: str = ""
    content: str = ""
    calls: list[AnsweredCall] = field(default_factory=list)
    content_tokens: list[TokenPart] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    scores: PromptScores | None = None
    finish_reason: str | None = None

    def add(self, delta: Delta) -> None:
        self.tokens += delta.tokens
        self.scores = delta.scores or self.scores
        self.finish_reason = delta.finish_reason
        for part in delta.parts:
            self._add_part(part)

    def _add_part(self, part: Part) -> None:
        match part.event:
            case ContentDelta(text):
                self.content += text
                self.content_tokens += part.tokens
            case ReasoningDelta(text):
                self.reasoning += text
            case ToolCallStart(_, call_id, name):
                self.calls.append(AnsweredCall(call_id, name))
            case ToolArgumentsDelta(index, fragment):
                self.calls[index].arguments += fragment
