"""`POST /v1/completions`: the JSON of OpenAI's plain text completions.

It knows the response's field names and no flow. Chunks and responses have the same entries here, so that clients read both
alike.
"""

from __future__ import annotations

from typing import Any

from helios.server.answer import Answer, answer
from helios.server.choice import Delta
from helios.server.exchange import Exchange
from helios.server.services import Services


async def create_completion(services: Services, exchange: Exchange) -> None:
    """Continue raw prompts."""
    await answer(services, exchange, services.frontend.prepare_completion, _CompletionShape())


class _CompletionShape:
    """See `answer.Shape`."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self, index: int) -> None:
        return None

    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        return _entry(index, delta.text, None)

    def ending(self, index: int, finish_reason: str) -> dict[str, Any]:
        return _entry(index, "", finish_reason)

    def whole(self, answer: Answer) -> dict[str, Any]:
        return _entry(answer.index, answer.text, answer.finish_reason)


def _entry(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
