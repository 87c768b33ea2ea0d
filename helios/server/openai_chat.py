"""`POST /v1/chat/completions`: the JSON of OpenAI's chat responses and stream chunks.

It knows the response's field names and no flow. The first chunk of a choice has the role, the last has the finish reason and
an empty delta, and those between have text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helios.scheduler.request import Token
from helios.server.answer import Answer, answer
from helios.server.choice import Delta
from helios.server.exchange import Exchange
from helios.server.services import Services
from helios.tokenizer.tokenizer import Tokenizer

_LEAST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI writes this


async def create_chat_completion(services: Services, exchange: Exchange) -> None:
    """Answer a conversation."""
    await answer(services, exchange, services.frontend.prepare_chat, _ChatShape(services.engine.tokenizer))


class _ChatShape:
    """See `answer.Shape`."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def opening(self, index: int) -> dict[str, Any]:
        return _entry(index, {"role": "assistant", "content": ""}, None, None)

    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        return _entry(index, {"content": delta.text}, self._logprobs(delta.tokens), None)

    def ending(self, index: int, finish_reason: str) -> dict[str, Any]:
        return _entry(index, {}, None, finish_reason)

    def whole(self, answer: Answer) -> dict[str, Any]:
        return {
            "index": answer.index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": self._logprobs(answer.tokens),
            "finish_reason": answer.finish_reason,
        }

    def _logprobs(self, tokens: Iterable[Token]) -> dict[str, Any] | None:
        content = [
            {
                **self._scored(token.token_id, token.logprob),
                "top_logprobs": [self._scored(token_id, logprob) for token_id, logprob in token.candidates],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None} if content else None

    def _scored(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        spelled = self._tokenizer.token_bytes(token_id)
        shown = max(logprob if logprob is not None else _LEAST_LOGPROB, _LEAST_LOGPROB)
        return {"token": spelled.decode("utf-8", errors="replace"), "logprob": shown, "bytes": list(spelled)}


def _entry(index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
