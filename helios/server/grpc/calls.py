"""The calls that are being answered, by the names that their callers gave them, so that they can be aborted from elsewhere.

It knows generations and names, no messages. A call is listed from before its preparation until its answer is sent or dropped, and
one that is aborted before it generates never runs on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from helios.server.access_log import Tally


class Call:
    """One call. `is_aborted`: its caller has asked for its end."""

    def __init__(self) -> None:
        self.is_aborted = False
        self._generations: list[Tally] = []
        self._waiting: asyncio.Task[bool] | None = None  # for its turn

    def add(self, generation: Tally) -> None:
        self._generations.append(generation)
        if self.is_aborted:
            generation.cancel()

    async def take(self, turns: asyncio.Semaphore) -> bool:
        """Wait for a turn, which is the caller's to release. False: the call was aborted before it had one."""
        if self.is_aborted:
            return False
        waiting = self._waiting = asyncio.create_task(turns.acquire())
        try:
            return await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():  # the turn came with the end
                turns.release()
            task = asyncio.current_task()
            if not self.is_aborted or task is None or task.cancelling():
                raise
            return False

    def abort(self) -> None:
        self.is_aborted = True
        if self._waiting is not None:
            self._waiting.cancel()
        self.cancel()

    def cancel(self) -> None:
        """End what is being generated, in whatever phase it is."""
        for generation in self._generations:
            generation.cancel()


class Calls:
    """All of them. Several calls may have the same name: an abort ends them all."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Call]] = {}
        self.n_open = 0

    @contextmanager
    def listed(self, request_id: str) -> Iterator[Call]:
        """A call for as long as it is answered; what it generates is cancelled at the end."""
        call = Call()
        self._calls.setdefault(request_id, []).append(call)
        self.n_open += 1
        try:
            yield call
        finally:
            self.n_open -= 1
            call.cancel()
            named = self._calls[request_id]
            named.remove(call)
            if not named:
                del self._calls[request_id]

    def abort(self, request_ids: Iterable[str]) -> None:
        """End the calls of these names; names that nobody has are no error."""
        for request_id in request_ids:
            for call in self._calls.get(request_id, ()):
                call.abort()
