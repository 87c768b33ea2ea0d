"""The calls of services whose code comes with the library, bounded as ours are: health and reflection.

It knows rooms and grpcio's method handlers, no service. The library would read a message before it calls a method, however large
and for ever; here a method is called once its message is there, and so many may be open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc

from helios.errors import HeliosError, StreamsFullError
from helios.server.grpc.context import short
from helios.server.grpc.message_room import GRACE_S, MessageRoom
from helios.server.status import status_of

N_TURNS, N_WAITING = 2, 256
N_STREAMS = 1024  # that are open at once: watchers stay


class StockCalls(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Each of the named services has a room of its own, so that none holds up another."""

    def __init__(self, services: Iterable[str], timeout_s: float) -> None:
        self._rooms = {name: _StockRoom(timeout_s) for name in services}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        room = self._rooms.get(details.method.rpartition("/")[0].removeprefix("/"))
        return handler if room is None or handler is None else room.bounded(handler)


class _StockRoom:
    """Where the messages of one service are read, and how many of its streams are open."""

    def __init__(self, timeout_s: float) -> None:
        self._room = MessageRoom(N_TURNS, N_WAITING, timeout_s, GRACE_S)
        self._n_streams = 0

    def bounded(self, handler: Any) -> Any:
        """The same method, for grpcio, which reads nothing of a method whose requests are a stream."""
        bounded, answer = grpc.stream_unary_rpc_method_handler, self._answer
        if handler.response_streaming:
            bounded, answer = grpc.stream_stream_rpc_method_handler, self._stream

        async def call(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                return await answer(handler, context)
            except HeliosError as error:
                return await context.abort(grpc.StatusCode[status_of(error).grpc_code], short(str(error)))

        return bounded(call, handler.request_deserializer, handler.response_serializer)

    async def _answer(self, handler: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await handler.unary_unary(await self._message(context), context)

    async def _stream(self, handler: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if self._n_streams >= N_STREAMS:
            raise StreamsFullError(N_STREAMS)
        self._n_streams += 1
        try:
            if not handler.request_streaming:
                await handler.unary_stream(await self._message(context), context)
                return
            async for response in handler.stream_stream(self._messages(context), context):
                await context.write(response)
        finally:
            self._n_streams -= 1

    async def _message(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        turn = await self._room.take(context.peer())
        try:
            return await turn.read(context)
        finally:
            turn.end()

    async def _messages(self, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        while True:
            turn = await self._room.take(context.peer())
            try:
                message = await self._room.read(turn, context.read())
            finally:
                turn.end()
            if message is grpc.aio.EOF:
                return
            yield message
