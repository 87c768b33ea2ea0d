"""From an admitted request body to a delivered answer, whole or streamed: the one flow of every generating endpoint.

It knows no field names; a Shape writes the endpoint's JSON. Whatever happens, every generation is cancelled and every permit
released when `answer` returns, and not before the reader has taken the response (HTTP-1, HTTP-2).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from helios.errors import InternalError
from helios.scheduler.request import Token
from helios.server.choice import Choice, Delta
from helios.server.exchange import Exchange
from helios.server.frontend import PreparedCall
from helios.server.services import Services
from helios.server.sse import EventStream


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished choice."""

    index: int
    text: str
    tokens: tuple[Token, ...]
    finish_reason: str


class Shape(Protocol):
    """The JSON of one endpoint. Each method returns the `choices` entry or the parts around it."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def opening(self, index: int) -> dict[str, Any] | None:
        """The entry that opens a streamed choice, None when the endpoint has none."""

    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        """The entry of a streamed delta that has text or tokens."""

    def ending(self, index: int, finish_reason: str) -> dict[str, Any]:
        """The last entry of a streamed choice; it carries no text."""

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The entry of a finished choice in a response that is not streamed."""


async def answer(
    services: Services, exchange: Exchange, prepare: Callable[[bytes], PreparedCall], shape: Shape
) -> None:
    """Admit, prepare, generate, deliver. Raises HeliosError while no response has started."""
    arrived_s = services.clock()
    with ExitStack() as held:
        held.callback(services.engine.admit().release)
        call = await services.frontend.run(prepare, exchange.request.body)
        for _ in call.requests[1:]:  # every further choice takes room like a request of its own
            held.callback(services.engine.admit().release)
        choices = _start(services, call, held, arrived_s)
        delivery = _Delivery(services, exchange, shape, call)
        await (delivery.stream(choices) if call.options.is_stream else delivery.whole(choices))


def _start(services: Services, call: PreparedCall, held: ExitStack, arrived_s: float) -> list[Choice]:
    keeps_tokens = call.options.sampling.candidates is not None
    choices = []
    for index, request in enumerate(call.requests):
        generation = services.engine.submit(request, arrived_s)
        held.callback(generation.cancel)
        pipeline = services.frontend.pipeline(call.options)
        choices.append(Choice(index, generation, pipeline, keeps_tokens=keeps_tokens))
    return choices


class _Delivery:
    """One response being written."""

    def __init__(self, services: Services, exchange: Exchange, shape: Shape, call: PreparedCall) -> None:
        self._services = services
        self._exchange = exchange
        self._shape = shape
        self._call = call
        self._id = f"{shape.id_prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())

    async def whole(self, choices: Sequence[Choice]) -> None:
        answers = await _together([self._collect(choice) for choice in choices])
        document = self._document(self._shape.whole_object, [self._shape.whole(one) for one in answers])
        document["usage"] = self._usage(choices)
        await self._exchange.respond_json(document)

    async def stream(self, choices: Sequence[Choice]) -> None:
        async with EventStream(self._exchange, self._services.settings.ping_interval) as events:
            await _together([self._stream_choice(events, choice) for choice in choices])
            usage = self._usage(choices)
            if self._call.options.includes_usage:
                await events.send({**self._document(self._shape.chunk_object, []), "usage": usage})

    async def _collect(self, choice: Choice) -> Answer:
        texts: list[str] = []
        tokens: list[Token] = []
        while True:
            delta = await choice.next_delta()
            texts.append(delta.text)
            tokens += delta.tokens
            if delta.finish_reason is not None:
                return Answer(choice.index, "".join(texts), tuple(tokens), delta.finish_reason)

    async def _stream_choice(self, events: EventStream, choice: Choice) -> None:
        opening = self._shape.opening(choice.index)
        if opening is not None:
            await events.send(self._chunk(opening))
        while True:
            delta = await choice.next_delta()
            if delta.text or delta.tokens:
                await events.send(self._chunk(self._shape.piece(choice.index, delta)))
            if delta.finish_reason is not None:
                await events.send(self._chunk(self._shape.ending(choice.index, delta.finish_reason)))
                return

    def _chunk(self, entry: dict[str, Any]) -> dict[str, Any]:
        """OBS-4: where usage was asked for, every chunk before the last has it as null."""
        document = self._document(self._shape.chunk_object, [entry])
        return {**document, "usage": None} if self._call.options.includes_usage else document

    def _document(self, kind: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
        model = self._services.engine.served_id
        return {"id": self._id, "object": kind, "created": self._created, "model": model, "choices": entries}

    def _usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Token counts over all choices; choices of the same prompt read it once."""
        usages = [choice.usage for choice in choices if choice.usage is not None]
        if len(usages) != len(choices):
            raise InternalError("a choice ended without its usage")
        prompts = usages[:: self._call.options.n_choices]
        n_prompt = sum(usage.prompt_tokens for usage in prompts)
        n_output = sum(usage.output_tokens for usage in usages)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_output,
            "total_tokens": n_prompt + n_output,
            "prompt_tokens_details": {"cached_tokens": sum(usage.reused_prompt_tokens for usage in prompts)},
        }


async def _together(coroutines: Sequence[Any]) -> list[Any]:
    """Results in order; the first failure ends the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
