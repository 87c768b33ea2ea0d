"""From an admitted request body to a delivered answer, whole or streamed: the one flow of every generating endpoint.

It knows no field names of an endpoint: a Shape writes `choices`, and other forms deliver what `generate` began. Whatever happens,
every generation is cancelled and every permit released when that returns, and not before the reader has taken the response (HTTP-1,
HTTP-2).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

from helios.output.events import ContentDelta, OutputEvent, ReasoningDelta
from helios.scheduler.request import PromptScores, Token
from helios.server.access_log import Tally
from helios.server.attribution import Attribution
from helios.server.choice import Choice, Part
from helios.server.documents import Envelope, Times, observed_tokens
from helios.server.exchange import Exchange, to_json
from helios.server.frontend import PreparedCall
from helios.server.services import Services
from helios.server.sse import EventStream
from helios.server.text_frame import MARK, TextFrame
from helios.server.whole_answer import Answer

_Prepare = Callable[[bytes], PreparedCall]
_Deliver = Callable[[PreparedCall, Sequence[Choice], Times | None], Awaitable[None]]


class Shape(Protocol):
    """The JSON of one endpoint. Each method returns the `choices` entry or the parts around it."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def opening(self, index: int) -> dict[str, Any] | None:
        """The entry that opens a streamed choice, None when the endpoint has none."""

    def scores(self, index: int, scores: PromptScores) -> tuple[dict[str, Any], dict[str, Any]]:
        """The entry of a streamed choice whose prompt was scored, and what goes beside the choices."""

    def part(self, index: int, part: Part) -> dict[str, Any] | None:
        """The entry of a streamed event, None for one that clients do not see."""

    def observation(self, index: int) -> dict[str, Any]:
        """An entry that says nothing, for what was observed."""

    def ending(self, index: int, finish_reason: str) -> dict[str, Any]:
        """The last entry of a streamed choice; it carries no text."""

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The entry of a finished choice in a response that is not streamed."""

    def beside(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """What goes beside the choices of a response that is not streamed."""


class Content(Protocol):
    """What an answer becomes in an API of typed events. Each method gives the events that tell of what it does."""

    def add(self, part: Part) -> Iterable[Mapping[str, Any]]:
        """Grow by the next part."""

    def end(self, *, is_cut: bool) -> Iterable[Mapping[str, Any]]:
        """Close what is open: the answer has ended, `is_cut` before the model ended it."""


async def answer(
    services: Services, exchange: Exchange, prepare: _Prepare, make_shape: Callable[[PreparedCall], Shape]
) -> None:
    """Generate, and deliver as `choices`."""

    async def deliver(call: PreparedCall, choices: Sequence[Choice], times: Times | None) -> None:
        delivery = _Delivery(services, exchange, make_shape(call), call, choices, times)
        await (delivery.stream() if call.options.is_stream else delivery.whole())

    await generate(services, exchange, prepare, deliver)


async def generate(services: Services, exchange: Exchange, prepare: _Prepare, deliver: _Deliver) -> None:
    """Admit, prepare, begin, deliver. Raises HeliosError while no response has started."""
    ingress_s = services.clock()
    with ExitStack() as held:
        held.callback(services.engine.admit().release)
        call = await services.frontend.run(prepare, exchange.request.body)
        for _ in call.requests[1:]:  # every further choice takes room like a request of its own
            held.callback(services.engine.admit().release)
        is_timed = call.options.observation.has_times
        times = Times(services.origin_s, ingress_s, services.clock()) if is_timed else None
        await deliver(call, _start(services, exchange, call, held, ingress_s), times)


async def tell(exchange: Exchange, choice: Choice, content: Content, stream: EventStream | None = None) -> str:
    """Have `content` grow by a whole answer, and its events sent where there is a stream; how the answer finished."""
    finish_reason: str | None = None
    while finish_reason is None:
        delta = await choice.next_delta()
        events = [event for part in delta.parts for event in content.add(part)]
        finish_reason = delta.finish_reason
        if finish_reason is not None:
            events += content.end(is_cut=finish_reason == "length")
            exchange.outcome.finish_reasons[choice.index] = finish_reason
        if stream is not None:
            for event in events:
                await stream.send(event)
    return finish_reason


def _start(
    services: Services, exchange: Exchange, call: PreparedCall, held: ExitStack, ingress_s: float
) -> list[Choice]:
    tallies = _record(services, exchange, call)
    needs_tokens = call.options.sampling.candidates is not None or services.frontend.has_reasoning(call.reading)
    choices = []
    for index, request in enumerate(call.requests):
        salt = services.access.cache_salt(exchange.request.headers, request.cache_salt)
        generation = Tally(services.engine.submit(replace(request, cache_salt=salt), ingress_s), services.clock)
        held.callback(generation.cancel)
        tallies.append(generation)
        pipeline = services.frontend.pipeline(call)
        keeps_all = not call.reading.is_parsed  # plain completions: one entry a token
        attribution = Attribution(services.engine.tokenizer, keeps_all=keeps_all) if needs_tokens else None
        choices.append(Choice(index, generation, pipeline, call.reading, attribution))
    return choices


def _record(services: Services, exchange: Exchange, call: PreparedCall) -> list[Tally]:
    """Begin what the log tells of the answer; its generations are added to the list."""
    prompts = [request.prompt_tokens for request in call.requests[:: call.options.n_choices]]
    outcome = exchange.outcome
    outcome.n_prompt_tokens = sum(map(len, prompts))
    if services.settings.log_prompts:
        outcome.prompts = [services.engine.tokenizer.decode(tokens) for tokens in prompts]
    outcome.tallies = []
    return outcome.tallies


class _Delivery:
    """One response being written. `times` where they were asked for."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        shape: Shape,
        call: PreparedCall,
        choices: Sequence[Choice],
        times: Times | None,
    ) -> None:
        self._exchange = exchange
        self._shape = shape
        self._options = call.options
        self._prompt_tokens = call.requests[0].prompt_tokens
        self._choices = choices
        self._times = times
        self._ping_interval_s = services.settings.ping_interval
        self._envelope = Envelope(
            response_id=f"{shape.id_prefix}-{secrets.token_hex(12)}",
            created=int(time.time()),
            model=services.engine.served_id,
            n_choices=call.options.n_choices,
            has_reasoning=services.frontend.has_reasoning(call.reading),
        )
        self._is_first = True
        # Texts that come with nothing of their own are alike but for the text.
        self._has_frames = self._options.sampling.candidates is None and not self._options.observation.has_token_ids
        self._frames: dict[tuple[int, type[OutputEvent]], TextFrame | None] = {}
        self._n_open = len(choices)

    async def whole(self) -> None:
        answers = await _together([_collect(choice) for choice in self._choices])
        self._exchange.outcome.finish_reasons = {one.index: one.finish_reason for one in answers}
        entries = [self._shape.whole(one) for one in answers]
        document = self._envelope.document(self._shape.whole_object, entries) | self._shape.beside(answers)
        document["usage"] = self._envelope.usage(self._choices)
        if self._options.observation.has_token_ids:
            document["prompt_token_ids"] = list(self._prompt_tokens)
            document |= self._envelope.observed(self._choices, self._times)
            for entry, one in zip(entries, answers, strict=True):
                entry.update(observed_tokens(one.tokens, self._times))
        await self._exchange.respond_json(document)

    async def stream(self) -> None:
        async with EventStream(self._exchange, self._ping_interval_s) as events:
            await _together([self._stream_choice(events, choice) for choice in self._choices])
            if self._options.observation.includes_usage:
                await events.send(self._envelope.document(self._shape.chunk_object, []) | self._final())

    async def _stream_choice(self, events: EventStream, choice: Choice) -> None:
        opening = self._shape.opening(choice.index)
        finish_reason: str | None = None
        while finish_reason is None:
            delta = await choice.next_delta()
            if opening is not None:  # not before there is an answer: until then a failure has a status
                await events.send(self._chunk(opening))
                opening = None
            if delta.scores is not None:
                entry, beside = self._shape.scores(choice.index, delta.scores)
                await events.send(self._chunk(entry) | beside)
            if self._options.observation.has_token_ids:
                for token in delta.tokens:
                    await events.send(self._chunk(self._observed(choice.index, token)))
            for part in delta.parts:
                data = self._part_data(choice.index, part)
                if data is not None:
                    await events.send_data(data)
            finish_reason = delta.finish_reason
        self._exchange.outcome.finish_reasons[choice.index] = finish_reason
        await events.send(self._last_chunk(self._shape.ending(choice.index, finish_reason)))

    def _part_data(self, index: int, part: Part) -> bytes | None:
        """The encoded chunk of a streamed event, None for one that clients do not see."""
        event = part.event
        if not self._has_frames or not isinstance(event, ContentDelta | ReasoningDelta):
            return self._encoded(self._shape.part(index, part))
        key = index, type(event)
        if key not in self._frames:
            entry = self._shape.part(index, Part(type(event)(MARK)))
            self._frames[key] = None if entry is None else TextFrame(self._chunk(entry))
        frame = self._frames[key]
        return None if frame is None else frame.data(event.text)

    def _encoded(self, entry: dict[str, Any] | None) -> bytes | None:
        return None if entry is None else to_json(self._chunk(entry))

    def _observed(self, index: int, token: Token) -> dict[str, Any]:
        return self._shape.observation(index) | observed_tokens((token,), self._times)

    def _chunk(self, entry: dict[str, Any]) -> dict[str, Any]:
        """OBS-1, OBS-4: the first chunk has the prompt's ids; where usage comes last, every chunk before has it as null."""
        document = self._envelope.document(self._shape.chunk_object, [entry])
        if self._is_first and self._options.observation.has_token_ids:
            document["prompt_token_ids"] = list(self._prompt_tokens)
        self._is_first = False
        return {**document, "usage": None} if self._options.observation.includes_usage else document

    def _last_chunk(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A choice's last chunk. An observed stream without a usage chunk has its usage on the last of these."""
        chunk = self._chunk(entry)
        self._n_open -= 1
        observation = self._options.observation
        is_final = observation.has_token_ids and not observation.includes_usage and not self._n_open
        return chunk | self._final() if is_final else chunk

    def _final(self) -> dict[str, Any]:
        usage = {"usage": self._envelope.usage(self._choices)}
        if not self._options.observation.has_token_ids:
            return usage
        return usage | self._envelope.observed(self._choices, self._times)


async def _collect(choice: Choice) -> Answer:
    answer = Answer(choice.index)
    while answer.finish_reason is None:
        answer.add(await choice.next_delta())
    return answer


async def _together(coroutines: Sequence[Any]) -> list[Any]:
    """Results in order; the first failure ends the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
