"""One sequence of an answer: a running generation seen as deltas of tokens and text.

It knows engine events and the text machine, no messages. Every sequence ends with exactly one Delta that has an ending, or with the
error of its Failed event.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from helios.errors import HeliosError, InternalError, ShuttingDownError
from helios.scheduler.request import Event, Failed, Finished, FinishReason, PromptScores, Token
from helios.server.access_log import Tally
from helios.server.grpc.answer_text import AnswerText
from helios.server.grpc.preparation import PreparedGeneration
from helios.tokenizer.tokenizer import Tokenizer


class Ending(enum.Enum):
    """How a sequence ended, as callers are told."""

    LENGTH = "length"
    EOS = "eos"
    STOP_TOKEN = "stop token"
    STOP_STRING = "stop string"
    ABORTED = "aborted"

    @property
    def reason(self) -> str:
        """As the log has it."""
        return self.value if self in (Ending.LENGTH, Ending.ABORTED) else "stop"


@dataclass(frozen=True, slots=True)
class Finish:
    """`n_tokens` in all. `stop_string` for that ending."""

    ending: Ending
    n_tokens: int
    last_token: int | None
    stop_string: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """What came since the last one, and how it ended if it has."""

    text: str
    tokens: tuple[Token, ...]
    scores: PromptScores | None
    finish: Finish | None


class AnswerSequence:
    """`await next_delta()` until one has a finish. `is_aborted` says whether a cancelled generation was by the caller's wish."""

    def __init__(
        self,
        index: int,
        generation: Tally,
        call: PreparedGeneration,
        tokenizer: Tokenizer,
        is_aborted: Callable[[], bool],
    ) -> None:
        self.index = index
        self._generation = generation
        self._text = AnswerText(tokenizer, call.rules)
        self._eos_tokens = call.eos_tokens
        self._endings = call.eos_tokens | call.stop_tokens
        self._is_aborted = is_aborted
        self._is_whole = call.options.shown.is_whole
        self._events: deque[Event] = deque()
        self._n_tokens = 0
        self._last_token: int | None = None
        self._error: HeliosError | None = None

    async def next_delta(self) -> Delta:
        """What the next batch of events makes visible; the text may be empty while tokens are there. Tokens that came with an error
        are told before it."""
        if self._error is not None:
            raise self._error
        pieces: list[str] = []
        tokens: list[Token] = []
        scores: PromptScores | None = None
        finish: Finish | None = None
        for event in await self._next_events():
            if isinstance(event, Token):
                tokens.append(event)
                pieces.append(self._push(event.token_id))
            elif isinstance(event, PromptScores):
                scores = event
            elif isinstance(event, Failed):
                self._error = event.error
            else:
                pieces.append(self._text.finish())
                try:
                    finish = self._finish(event)
                except HeliosError as error:
                    self._error = error
        if self._error is not None and not tokens and scores is None:
            raise self._error
        return Delta("".join(pieces), tuple(tokens), scores, finish)

    async def _next_events(self) -> list[Event]:
        """A batch; of tokens that bring the whole vocabulary one at a time, as each is a large message."""
        if not self._is_whole:
            return await self._generation.next_batch()
        if not self._events:
            self._events.extend(await self._generation.next_batch())
        events = [self._events.popleft()]
        while self._events and not isinstance(self._events[0], Token):
            events.append(self._events.popleft())
        return events

    def _push(self, token_id: int) -> str:
        self._n_tokens += 1
        self._last_token = token_id
        return self._text.end(token_id) if token_id in self._endings else self._text.push(token_id)

    def _finish(self, event: Finished) -> Finish:
        return Finish(self._ending(event.reason), self._n_tokens, self._last_token, self._text.stop)

    def _ending(self, reason: FinishReason) -> Ending:
        if reason is FinishReason.CANCELLED:
            if self._is_aborted():
                return Ending.ABORTED
            raise ShuttingDownError
        if reason is FinishReason.LIMIT:  # a character that stays unfinished may be the end of a stop
            return Ending.STOP_STRING if self._text.stop else Ending.LENGTH
        if self._last_token in self._eos_tokens:
            return Ending.EOS
        if self._last_token in self._endings:
            return Ending.STOP_TOKEN
        if not self._text.stop:
            raise InternalError("the model worker saw a stop that the presentation did not")
        return Ending.STOP_STRING
