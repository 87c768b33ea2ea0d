"""`POST /v1/responses`: the JSON of OpenAI's responses, and the events of one that is streamed. Nothing of either is kept.

It knows the response's field names; items are another file's. A stream's last event holds the whole response, and an error behind
the headers is such an event too: `response.failed`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from helios.errors import CapacityError, HeliosError, InternalError
from helios.scheduler.request import Usage
from helios.server.answer import generate, tell
from helios.server.chat_request import ChatRequest
from helios.server.choice import Choice
from helios.server.documents import Times
from helios.server.exchange import Exchange
from helios.server.fields import Fields
from helios.server.frontend import PreparedCall
from helios.server.openai_responses_output import OutputItems
from helios.server.openai_responses_request import read_response_request
from helios.server.options import Limits
from helios.server.services import Services
from helios.server.sse import Dialect, EventStream


async def create_response(services: Services, exchange: Exchange) -> None:
    """Answer a conversation that is given whole."""
    response = _Response(services, exchange)
    await generate(services, exchange, response.prepare, response.deliver)


class _Response:
    """One response from its request's body to its last event."""

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._id = f"resp_{secrets.token_hex(24)}"
        self._created = int(time.time())
        self._echo: Mapping[str, Any] = {}
        self._items = OutputItems(services.engine.tokenizer, has_logprobs=False)

    def prepare(self, body: bytes) -> PreparedCall:
        return self._services.frontend.prepare_chat(body, self._read)

    def _read(self, fields: Fields, limits: Limits, new_seed: int) -> ChatRequest:
        request = read_response_request(fields, limits, new_seed)
        self._echo = request.echo
        return request.chat

    async def deliver(self, call: PreparedCall, choices: Sequence[Choice], times: Times | None) -> None:
        has_logprobs = call.options.sampling.candidates is not None
        self._items = OutputItems(self._services.engine.tokenizer, has_logprobs=has_logprobs)
        await (self._stream(choices[0]) if call.options.is_stream else self._whole(choices[0]))

    async def _whole(self, choice: Choice) -> None:
        finish_reason = await tell(self._exchange, choice, self._items)
        await self._exchange.respond_json(self._final(choice, finish_reason))

    async def _stream(self, choice: Choice) -> None:
        dialect = Dialect(error=self._failed, closing=b"", names_events=True, numbers_events=True)
        async with EventStream(self._exchange, self._services.settings.ping_interval, dialect) as stream:
            for kind in ("created", "in_progress"):
                await stream.send(_lifecycle_event(kind, self._document("in_progress")))
            finish_reason = await tell(self._exchange, choice, self._items, stream)
            final = self._final(choice, finish_reason)
            await stream.send(_lifecycle_event(final["status"], final))

    # -- documents

    def _final(self, choice: Choice, finish_reason: str) -> dict[str, Any]:
        """The response as it ended, by itself or at its limit."""
        if choice.usage is None:
            raise InternalError("a choice ended without its usage")
        usage = _usage(choice.usage, choice.n_reasoning_tokens)
        if finish_reason == "length":
            return self._document("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=usage)
        return self._document("completed", completed_at=int(time.time()), usage=usage)

    def _failed(self, error: HeliosError) -> dict[str, Any]:
        for _ in self._items.end(is_cut=True):
            pass  # an item that is open stays as it is
        code = "rate_limit_exceeded" if isinstance(error, CapacityError) else "server_error"
        described = {"code": code, "message": str(error), "param": error.param, "type": error.code}
        return _lifecycle_event("failed", self._document("failed", error=described))

    def _document(
        self,
        status: str,
        *,
        error: Mapping[str, Any] | None = None,
        incomplete_details: Mapping[str, Any] | None = None,
        completed_at: int | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": completed_at,
            "status": status,
            "error": error,
            "incomplete_details": incomplete_details,
            "model": self._services.engine.served_id,
            "output": self._items.items,
            "usage": usage,
            **self._echo,
        }


def _lifecycle_event(kind: str, response: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": response}


def _usage(usage: Usage, n_reasoning_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.reused_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": n_reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
