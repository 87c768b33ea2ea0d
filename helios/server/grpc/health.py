"""`grpc.health.v1` for every service: SERVING while new requests are served, NOT_SERVING for good once the server drains.

It knows the stock servicer and a question to ask. A change is told to watchers within a fraction of a second, and no watcher keeps
a server from ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from grpc_health.v1 import health, health_pb2

_POLL_S = 0.1
_Status = health_pb2.HealthCheckResponse


class HealthService:
    """`names` are the services; the empty name stands for the whole server."""

    def __init__(self, names: Sequence[str], is_serving: Callable[[], bool]) -> None:
        self.servicer: Any = health.aio.HealthServicer()
        self._names = ("", *names)
        self._is_serving = is_serving
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._tell(self._is_serving())
        self._polling = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        await self.servicer.enter_graceful_shutdown()

    async def _poll(self) -> None:
        was_serving = self._is_serving()
        while True:
            await asyncio.sleep(_POLL_S)
            is_serving = self._is_serving()
            if is_serving != was_serving:
                await self._tell(is_serving)
                was_serving = is_serving

    async def _tell(self, is_serving: bool) -> None:
        for name in self._names:
            await self.servicer.set(name, _Status.SERVING if is_serving else _Status.NOT_SERVING)
