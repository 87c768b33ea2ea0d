"""`POST /v1/messages` and `/v1/messages/count_tokens`: the JSON and the events of Anthropic's messages.

It knows the message's field names; blocks are another file's. Every message ends with one reason, and its usage parts the prompt
into what was read and what the cache held.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from helios.errors import InternalError
from helios.server.answer import generate, tell
from helios.server.anthropic_messages_content import ContentBlocks
from helios.server.anthropic_messages_errors import message_error
from helios.server.anthropic_messages_request import read_countable_request, read_message_request
from helios.server.chat_request import ChatRequest
from helios.server.choice import Choice
from helios.server.documents import Times
from helios.server.exchange import Exchange
from helios.server.fields import Fields
from helios.server.frontend import PreparedCall
from helios.server.options import Limits
from helios.server.services import Services
from helios.server.sse import Dialect, EventStream

_DIALECT = Dialect(error=message_error, ping=b'event: ping\ndata: {"type":"ping"}\n\n', closing=b"", names_events=True)


async def create_message(services: Services, exchange: Exchange) -> None:
    """Answer a conversation."""
    message = _Message(services, exchange)
    await generate(services, exchange, message.prepare, message.deliver)


async def count_message_tokens(services: Services, exchange: Exchange) -> None:
    """Say how long the prompt of a conversation is."""
    n_tokens = await services.frontend.run(
        lambda body: services.frontend.count_chat(body, read_countable_request), exchange.request.body
    )
    await exchange.respond_json({"input_tokens": n_tokens})


class _Message:
    """One message from its request's body to its last event."""

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._id = f"msg_{secrets.token_hex(12)}"
        self._content = ContentBlocks(shows_thinking=False)

    def prepare(self, body: bytes) -> PreparedCall:
        return self._services.frontend.prepare_chat(body, self._read)

    def _read(self, fields: Fields, limits: Limits, new_seed: int) -> ChatRequest:
        request = read_message_request(fields, limits, new_seed)
        self._content = ContentBlocks(shows_thinking=request.shows_thinking)
        return request.chat

    async def deliver(self, call: PreparedCall, choices: Sequence[Choice], times: Times | None) -> None:
        await (self._stream(call, choices[0]) if call.options.is_stream else self._whole(call, choices[0]))

    async def _whole(self, call: PreparedCall, choice: Choice) -> None:
        finish_reason = await tell(self._exchange, choice, self._content)
        ending = self._ending(call, choice, finish_reason)
        await self._exchange.respond_json(self._document(self._content.blocks, ending, self._usage(call, choice)))

    async def _stream(self, call: PreparedCall, choice: Choice) -> None:
        async with EventStream(self._exchange, self._services.settings.ping_interval, _DIALECT) as stream:
            n_prompt_tokens = len(call.requests[0].prompt_tokens)
            opening = self._document([], _NO_ENDING, {"input_tokens": n_prompt_tokens, "output_tokens": 0})
            await stream.send({"type": "message_start", "message": opening})
            finish_reason = await tell(self._exchange, choice, self._content, stream)
            ending = self._ending(call, choice, finish_reason)
            await stream.send({"type": "message_delta", "delta": ending, "usage": self._usage(call, choice)})
            await stream.send({"type": "message_stop"})

    # -- documents

    def _document(self, content: list[dict[str, Any]], ending: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._services.engine.served_id,
            "content": content,
            **ending,
            "usage": usage,
        }

    def _ending(self, call: PreparedCall, choice: Choice, finish_reason: str) -> dict[str, Any]:
        if choice.stop is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop}
        if finish_reason == "length":
            is_own_limit = call.requests[0].output_limit == call.options.output_limit
            return _ended("max_tokens" if is_own_limit else "model_context_window_exceeded")
        return _ended("tool_use" if self._content.has_calls else "end_turn")

    def _usage(self, call: PreparedCall, choice: Choice) -> dict[str, Any]:
        usage = choice.usage
        if usage is None:
            raise InternalError("a choice ended without its usage")
        document: dict[str, Any] = {
            "input_tokens": usage.prompt_tokens - usage.reused_prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.reused_prompt_tokens,
            "output_tokens": usage.output_tokens,
        }
        if self._services.frontend.has_reasoning(call.reading):
            document["output_tokens_details"] = {"thinking_tokens": choice.n_reasoning_tokens}
        return document


def _ended(reason: str | None) -> dict[str, Any]:
    return {"stop_reason": reason, "stop_sequence": None}


_NO_ENDING = _ended(None)
