"""Writes that are watched by one timer: only one that has waited for the whole limit is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from helios.errors import StalledReaderError
from helios.server.grpc.stall_watch import StallWatch
from tests.server.conftest import Loop

LIMIT_S = 600.0


def run(scene: Callable[[Loop], Coroutine[Any, Any, None]]) -> None:
    """On a loop whose time passes where the scene says so."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scene(cast(Loop, runner.get_loop())))


def test_a_write_that_is_never_taken_ends_at_the_limit() -> None:
    """GRPC-4: also when writes before it were taken, and the timer began with them."""

    async def write(loop: Loop) -> None:
        watch = StallWatch(LIMIT_S)
        for _ in range(3):
            await watch.watch(loop.let_pass(LIMIT_S / 2))

        async def never_taken() -> None:
            await watch.watch(asyncio.Event().wait())

        writing = asyncio.create_task(never_taken())
        await loop.let_pass(0)  # it has begun
        await loop.let_pass(LIMIT_S * 0.9)
        assert not writing.done()
        await loop.let_pass(LIMIT_S * 0.2)
        with pytest.raises(StalledReaderError):
            await writing
        assert not writing.cancelling()

    run(write)


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
    async def idle(loop: Loop) -> None:
        watch = StallWatch(LIMIT_S)
        await watch.watch(asyncio.sleep(0))
        await loop.let_pass(2 * LIMIT_S)
        await watch.watch(asyncio.sleep(0))
        watch.close()

    run(idle)
