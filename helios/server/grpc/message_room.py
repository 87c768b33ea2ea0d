"""Room for messages that are read and prepared: so many at once that all of them together are no more than bodies may be.

It knows when a call's message may be read, no message. The library reads a message after the interceptors, so that a call which
waits here holds no more than a window of its stream; a turn ends when the message is prepared, with its call, and after a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc

_END_TURN: ContextVar[Callable[[], None]] = ContextVar("helios-message-turn")


class MessageRoom(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """`n_messages` turns at once for the methods of `service`; whose message is not there and prepared within
    `timeout_s` is given up: nothing is answered, and the call stays open until its caller ends it."""

    def __init__(self, service: str, n_messages: int, timeout_s: float) -> None:
        self._prefix = f"/{service}/"
        self._room = asyncio.Semaphore(n_messages)
        self._timeout_s = timeout_s

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is not None and details.method.startswith(self._prefix):
            await self._room.acquire()
            self._begin_turn()
        return handler

    def _begin_turn(self) -> None:
        call = asyncio.current_task()
        assert call is not None
        is_over = False
        limit = asyncio.get_running_loop().call_later(self._timeout_s, call.cancel)

        def end(*_: Any) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                limit.cancel()
                self._room.release()

        call.add_done_callback(end)
        _END_TURN.set(end)


def end_turn() -> None:
    """The message of the current call is prepared: the next one may be read."""
    _END_TURN.get()()
