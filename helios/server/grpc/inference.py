"""`vllm.Inference`: whole and streamed answers.

It knows the flow of a call and no fields. Whatever happens, every generation is cancelled and every permit released when a call
ends, queued or running, and a stream goes no faster than its reader takes it (GRPC-4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from helios.server.access_log import Tally
from helios.server.frontend import Frontend
from helios.server.grpc.calls import Call, Calls
from helios.server.grpc.context import CallContext
from helios.server.grpc.generate_request import Asked
from helios.server.grpc.messages import fill_output, fill_prompt
from helios.server.grpc.preparation import Preparation, PreparedGeneration
from helios.server.grpc.response_fields import Shown
from helios.server.grpc.schema import inference_pb2
from helios.server.grpc.sequence import AnswerSequence, Delta
from helios.server.grpc.whole_vocabulary import N_MOST_CALLS, serialized
from helios.server.services import Services


class InferenceService:
    """Its methods answer one call each and raise HeliosError."""

    def __init__(self, services: Services, preparation: Preparation, calls: Calls) -> None:
        self._services = services
        self._preparation = preparation
        self._calls = calls
        self._whole = asyncio.Semaphore(N_MOST_CALLS)  # of calls that report the whole vocabulary

    async def generate(
        self, message: inference_pb2.GenerateRequest, context: CallContext
    ) -> inference_pb2.GenerateResponse | bytes:
        with self._admitted(message, context) as (call, held):
            prepared = await self._prepare(message, context, is_stream=False)
            shown = prepared.options.shown
            if shown.has_whole:
                await self._take_whole_turn(call, held)
            (sequence,) = self._start(prepared, context, call, held)
            delta = await _collect(sequence)
            _note(context, 0, delta)
            response = inference_pb2.GenerateResponse()
            await _fill_prompt(response, prepared.prompt_tokens, delta, shown, self._services.frontend)
            fill_output(response.outputs, 0, delta, shown)
            if not shown.has_whole:
                return response
            return await _with_candidates(response, delta, shown, self._services.frontend)

    async def generate_stream(self, message: inference_pb2.GenerateRequest, context: CallContext) -> None:
        with self._admitted(message, context) as (call, held):
            prepared = await self._prepare(message, context, is_stream=True)
            if prepared.options.shown.has_whole:
                await self._take_whole_turn(call, held)
            sequences = self._start(prepared, context, call, held)
            stream = _Stream(context, prepared, self._services)
            await _together([stream.send_sequence(sequence) for sequence in sequences])

    @contextmanager
    def _admitted(
        self, message: inference_pb2.GenerateRequest, context: CallContext
    ) -> Iterator[tuple[Call, ExitStack]]:
        """The call, with a permit like any HTTP request's; everything ends with the block."""
        if not message.request_id:
            message.request_id = context.request_id
        context.tell(message.request_id)
        context.check_rank()
        with ExitStack() as held:
            held.callback(self._services.engine.admit().release)
            yield held.enter_context(self._calls.listed(message.request_id)), held

    async def _prepare(
        self, message: inference_pb2.GenerateRequest, context: CallContext, *, is_stream: bool
    ) -> PreparedGeneration:
        asked = Asked(message, is_stream, lambda salt: self._services.access.cache_salt(context.headers, salt))
        prepared = await self._services.frontend.run(self._preparation.prepare, asked)
        context.end_turn()
        context.tell(message.request_id, prepared.options.cache.unknown_actions)
        return prepared

    async def _take_whole_turn(self, call: Call, held: ExitStack) -> None:
        if await call.take(self._whole):
            held.callback(self._whole.release)

    def _start(
        self, prepared: PreparedGeneration, context: CallContext, call: Call, held: ExitStack
    ) -> list[AnswerSequence]:
        """Every further sequence takes room like a request of its own."""
        engine, outcome = self._services.engine, context.outcome
        outcome.n_prompt_tokens = len(prepared.prompt_tokens)
        if self._services.settings.log_prompts:
            outcome.prompts = [engine.tokenizer.decode(prepared.prompt_tokens)]
        for _ in prepared.requests[1:]:
            held.callback(engine.admit().release)
        sequences = []
        for index, request in enumerate(prepared.requests):
            generation = Tally(engine.submit(request, context.arrived_s), self._services.clock)
            outcome.tallies.append(generation)
            call.add(generation)
            sequences.append(AnswerSequence(index, generation, prepared, engine.tokenizer, lambda: call.is_aborted))
        return sequences


class _Stream:
    """One streamed answer. Messages of several sequences are sent one after the other, the prompt's first."""

    def __init__(self, context: CallContext, prepared: PreparedGeneration, services: Services) -> None:
        self._context = context
        self._frontend = services.frontend
        self._shown = prepared.options.shown
        self._prompt_tokens = prepared.prompt_tokens
        self._has_scores = self._shown.prompt_candidates is not None
        self._is_sending = asyncio.Lock() if len(prepared.requests) > 1 else None
        self._is_prompt_told = False
        self._prompt_told = asyncio.Event()

    async def send_sequence(self, sequence: AnswerSequence) -> None:
        is_open = True
        while is_open:
            delta = await sequence.next_delta()
            if not self._prompt_told.is_set():
                await self._tell_prompt(sequence.index, delta)
            if delta.tokens or delta.text or delta.finish is not None:
                response = inference_pb2.GenerateResponse()
                fill_output(response.outputs, sequence.index, delta, self._shown)
                await self._send(response, delta)
            _note(self._context, sequence.index, delta)
            is_open = delta.finish is None

    async def _tell_prompt(self, index: int, delta: Delta) -> None:
        """With the first output of any sequence; where the prompt is scored, with that of the sequence that it is scored for."""
        if not self._is_prompt_told and (index == 0 or not self._has_scores):
            self._is_prompt_told = True
            response = inference_pb2.GenerateResponse()
            await _fill_prompt(response, self._prompt_tokens, delta, self._shown, self._frontend)
            await self._send(response, delta)
            self._prompt_told.set()
        await self._prompt_told.wait()

    async def _send(self, response: inference_pb2.GenerateResponse, delta: Delta) -> None:
        message: inference_pb2.GenerateResponse | bytes = response
        if self._shown.has_whole:
            message = await _with_candidates(response, delta, self._shown, self._frontend)
        if self._is_sending is None:
            await self._context.write(message)
        else:
            async with self._is_sending:
                await self._context.write(message)


def _note(context: CallContext, index: int, delta: Delta) -> None:
    """For the log: how a sequence ended."""
    if delta.finish is not None:
        context.outcome.finish_reasons[index] = delta.finish.ending.reason


async def _fill_prompt(
    response: inference_pb2.GenerateResponse,
    prompt_tokens: Sequence[int],
    delta: Delta,
    shown: Shown,
    frontend: Frontend,
) -> None:
    """What the response says of the prompt. Its scores may be so many that they are written on another thread."""
    if delta.scores is None:
        fill_prompt(response.prompt_info, prompt_tokens, None, shown)
    else:
        await frontend.run(lambda scores: fill_prompt(response.prompt_info, prompt_tokens, scores, shown), delta.scores)


async def _with_candidates(
    response: inference_pb2.GenerateResponse, delta: Delta, shown: Shown, frontend: Frontend
) -> inference_pb2.GenerateResponse | bytes:
    """The response as it is to be sent. Candidates that are the whole vocabulary are written on another thread."""
    scores = delta.scores if shown.is_prompt_whole and response.HasField("prompt_info") else None
    tokens = delta.tokens if shown.is_whole and response.HasField("outputs") else ()
    if scores is None and not tokens:
        return response
    return await frontend.run(lambda parts: serialized(*parts), (response, scores, tokens))


async def _collect(sequence: AnswerSequence) -> Delta:
    """All deltas of a sequence as one."""
    deltas: list[Delta] = []
    while not deltas or deltas[-1].finish is None:
        deltas.append(await sequence.next_delta())
    scores = next((delta.scores for delta in deltas if delta.scores is not None), None)
    tokens = tuple(token for delta in deltas for token in delta.tokens)
    return Delta("".join(delta.text for delta in deltas), tokens, scores, deltas[-1].finish)


async def _together(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """The first failure ends the others."""
    if len(coroutines) == 1:
        await coroutines[0]
        return
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
