"""A reader that takes nothing: one timer a call instead of one a message.

It knows when a write began, no message and no library. A timer that finds a write younger than the limit, or none, moves on; so a
write costs two assignments, and a stalled one is ended at the limit, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from helios.errors import StalledReaderError


class StallWatch:
    """`await watch(write)` for one write at a time; `close` when the call is over."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[object] | None = None  # whoever waits for a write
        self._began_s = 0.0
        self._has_stalled = False

    async def watch(self, write: Awaitable[object]) -> None:
        """Wait for a write. Raises StalledReaderError at the limit."""
        self._began_s = self._loop.time()
        self._writer = asyncio.current_task()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._look)
        try:
            await write
        except asyncio.CancelledError:
            if self._has_stalled and self._writer is not None and not self._writer.uncancel():
                raise StalledReaderError(self._limit_s) from None
            raise
        finally:
            self._writer = None

    def _look(self) -> None:
        self._timer = None
        if self._writer is None:
            return
        left_s = self._began_s + self._limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._has_stalled = True
            self._writer.cancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
