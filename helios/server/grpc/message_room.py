"""Room for messages that are read and prepared: so many at once that all of them together are no more than bodies may be.

It knows calls by their connections, no fields. A call that waits here holds no more than a window of its stream; so many may wait,
connections have their turns by rotation, and who sends slowly or nothing leaves half of the turns to others as soon as others wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from itertools import islice
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from helios.errors import InvalidValueError, StalledSenderError, UnsupportedError, WaitingFullError

GRACE_S = 2.0  # that a message may take before it is late


class MessageRoom:
    """`n_turns` at once, `n_waiting` that wait for one. A message has `timeout_s` to arrive, and is late after `grace_s`. While
    others wait, late ones may have half of the turns, and who would be one more makes way. How much of a message has come the
    library does not say, so a slow sender and a silent one are the same here; and neither kind keeps others from their turns."""

    def __init__(self, n_turns: int, n_waiting: int, timeout_s: float, grace_s: float) -> None:
        self._n_free = n_turns
        self._n_late = n_turns // 2
        self._limit = n_waiting
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by connection, in the order of their next turns
        self._reading: dict[Turn, float] = {}  # whose message has not come, and when it is late: in this order
        self._pressing: asyncio.TimerHandle | None = None
        self.n_waiting = 0

    async def take(self, connection: str) -> Turn:
        """A turn for a call of this connection. WaitingFullError where too many wait, and most of them for this connection."""
        if self._n_free:
            self._n_free -= 1
        else:
            await self._wait(connection)
        return Turn(self)

    async def _wait(self, connection: str) -> None:
        if self.n_waiting >= self._limit:
            self._refuse(connection)
        is_next = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(connection, deque())
        queue.append(is_next)
        self.n_waiting += 1
        self._press()
        try:
            await is_next
        except asyncio.CancelledError:
            if is_next.cancelled():
                self._forget(connection, is_next)
            elif is_next.exception() is None:  # its turn came with its end
                self.release()
            raise

    def _refuse(self, connection: str) -> None:
        """Whoever came last from the connection with the most that wait, which may be the caller."""
        greediest = max(self._waiting, key=lambda name: len(self._waiting[name]), default=connection)
        n_own = len(self._waiting.get(connection, ()))
        error = WaitingFullError(self._limit)
        if len(self._waiting.get(greediest, ())) <= n_own + 1:
            raise error
        last = self._waiting[greediest][-1]
        self._forget(greediest, last)
        if not last.done():  # a call that was cancelled a moment ago has left its place already
            last.set_exception(error)

    def _forget(self, connection: str, waiting: asyncio.Future[None]) -> None:
        queue = self._waiting.get(connection)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            self.n_waiting -= 1
            if not queue:
                del self._waiting[connection]

    def release(self) -> None:
        """A turn is over: the next connection has it."""
        while self._waiting:
            connection = next(iter(self._waiting))
            queue = self._waiting.pop(connection)
            is_next = queue.popleft()
            self.n_waiting -= 1
            if queue:
                self._waiting[connection] = queue
            if not is_next.done():  # a call that was cancelled a moment ago has no use for it
                is_next.set_result(None)
                break
        else:
            self._n_free += 1
        self._press()

    # -- whose message does not come

    async def read(self, turn: Turn, message: Awaitable[Any]) -> Any:
        """`message` of a call that has a turn, as grpcio reads it. StalledSenderError when it does not come."""
        try:
            async with asyncio.timeout(self._timeout_s) as turn.limit:
                self._reading[turn] = asyncio.get_running_loop().time() + self._grace_s
                self._press()
                return await message
        except TimeoutError:
            raise StalledSenderError from None
        except DecodeError as error:
            raise InvalidValueError(f"the message cannot be read: {error}") from error
        finally:
            self._reading.pop(turn, None)

    def _press(self) -> None:
        """While somebody waits: see to it that no more turns than may be are those of late messages."""
        if self.n_waiting and self._pressing is None and (one_more := self._one_more()):
            self._pressing = asyncio.get_running_loop().call_at(self._reading[one_more], self._make_way)

    def _make_way(self) -> None:
        self._pressing = None
        one_more, now_s = self._one_more(), asyncio.get_running_loop().time()
        if self.n_waiting and one_more is not None and self._reading[one_more] <= now_s:
            del self._reading[one_more]
            if not one_more.limit.expired():
                one_more.limit.reschedule(now_s)  # the end of its turn presses on
        else:
            self._press()

    def _one_more(self) -> Turn | None:
        """Whoever is late, or will be, when as many are as may be."""
        return next(islice(self._reading, self._n_late, None), None)


class Turn:
    """One call's: read its message, prepare it, `end`."""

    limit: asyncio.Timeout

    def __init__(self, room: MessageRoom) -> None:
        self._room = room
        self._is_over = False

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """The call's one message. RequestError where it is not one, StalledSenderError when it or the end behind it does not
        come."""
        return await self._room.read(self, _only_message(context))

    def end(self) -> None:
        """The next message may be read. Once is enough."""
        if not self._is_over:
            self._is_over = True
            self._room.release()


async def _only_message(context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """UnsupportedError where there are none or several: UNIMPLEMENTED, by gRPC's table of statuses."""
    message = await context.read()
    if message is grpc.aio.EOF:
        raise UnsupportedError("the call has no message, it takes one")
    if await context.read() is not grpc.aio.EOF:
        raise UnsupportedError("the call has several messages, it takes one")
    return message
