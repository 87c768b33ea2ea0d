"""Writes that are watched by one timer: only one that has waited for the whole limit is ended."""

from __future__ import annotations

import asyncio

import pytest

from helios.errors import StalledReaderError
from helios.server.grpc.stall_watch import StallWatch

LIMIT_S = 0.05


def test_a_write_that_is_never_taken_ends_at_the_limit() -> None:
    """GRPC-4: also when writes before it were taken, and the timer began with them."""

    async def write() -> None:
        watch = StallWatch(LIMIT_S)
        for _ in range(3):
            await watch.watch(asyncio.sleep(LIMIT_S / 2))
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(StalledReaderError):
            await watch.watch(asyncio.Event().wait())
        assert asyncio.get_running_loop().time() - began_s >= LIMIT_S
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    asyncio.run(write())


def test_a_caller_that_leaves_is_no_stall() -> None:
    """The task is cancelled as by anyone."""

    async def leave() -> None:
        watch = StallWatch(60.0)
        task = asyncio.ensure_future(watch.watch(asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        watch.close()

    asyncio.run(leave())


def test_no_timer_is_left_between_writes_for_longer_than_the_limit() -> None:
    async def idle() -> None:
        watch = StallWatch(LIMIT_S)
        await watch.watch(asyncio.sleep(0))
        await asyncio.sleep(2 * LIMIT_S)
        await watch.watch(asyncio.sleep(0))
        watch.close()

    asyncio.run(idle())
