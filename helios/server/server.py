"""The server: accepts connections for one engine, and ends them in order when it is told to stop.

It knows a listener and signals, no endpoint. Connections are accepted only when there is an engine to serve them, and none is
left when `stop` returns.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from helios.metrics import ServerMetrics
from helios.server.access import Access
from helios.server.body_memory import BodyMemory
from helios.server.connection import HttpConnection
from helios.server.connections import Connections
from helios.server.frontend import Frontend
from helios.server.listener import Listener
from helios.server.routes import RoutedApplication
from helios.server.services import Services
from helios.server.systemd import Notifier
from helios.settings import Settings, service_manager

if TYPE_CHECKING:
    from helios.engine import Engine
    from helios.server.grpc.address import GrpcAddress
    from helios.server.grpc.server import GrpcServer
    from helios.server.kv_events.publisher import KvEventPublisher
    from helios.server.kv_events.sockets import KvEventSockets

_LOG = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ACCEPTS_AT_ONCE = 32  # in one turn of the loop, so that thousands that arrive do not hold up those who are here
_N_OTHER_FILES = 256  # descriptors of the process that are no connections


class Server:
    """Serves one engine over HTTP. `start` and `stop` belong to the event loop; the engine is its caller's to close."""

    def __init__(self, engine: Engine, settings: Settings, access: Access) -> None:
        self._engine = engine
        self._settings = settings
        self._connections = Connections(settings.connection_limit)
        vllm_model = engine.served_id if settings.vllm_metrics else None
        self._metrics = ServerMetrics(engine.statistics, self._connections.__len__, vllm_model)
        self._frontend = Frontend(engine, settings.frontend_workers)
        self._services = Services(
            engine, settings, self._frontend, self._metrics, access, int(time.time()), time.monotonic()
        )
        self._application = RoutedApplication(self._services)
        self._memory = BodyMemory(max(settings.body_memory, settings.body_limit), self._connections.refuse_silent_body)
        self._tls: ssl.SSLContext | None = None
        self._listening: asyncio.Server | None = None
        self._grpc: GrpcServer | None = None
        self._kv_events: KvEventPublisher | None = None

    async def start(
        self,
        listener: Listener,
        grpc_address: GrpcAddress | None = None,
        kv_sockets: KvEventSockets | None = None,
    ) -> None:
        """Accept connections on a bound listener, and on the gRPC port if there is one, and publish KV events if there are sockets
        for them; SettingError when that cannot be."""
        if kv_sockets is not None and self._engine.journal is not None:
            from helios.server.kv_events.publisher import KvEventPublisher

            self._services.kv_source = kv_sockets.source
            self._kv_events = KvEventPublisher(self._engine.journal, kv_sockets)
            self._kv_events.start()
        if grpc_address is not None:
            from helios.server.grpc.server import GrpcServer  # a large library, loaded only where it serves

            self._grpc = GrpcServer(self._services, grpc_address)
            await self._grpc.start()
        self._tls = listener.tls
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connection, sock=listener.socket, backlog=_ACCEPTS_AT_ONCE
            )
            listener.socket.listen(self._settings.listen_backlog)
        except OSError as error:
            raise listener.listen_error(error) from error

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._application, self._settings, self._connections, self._memory, self._tls)

    async def stop(self) -> None:
        """HTTP-4: not ready at once, `drain_timeout` seconds for open answers, then every connection is dropped."""
        self._services.is_draining = True
        if self._listening is not None:
            await self._end_accepting(self._listening)
        limit_s = self._settings.drain_timeout
        engine_drain = asyncio.create_task(self._engine.drain(limit_s))
        grpc_stop = None if self._grpc is None else asyncio.create_task(self._grpc.stop(limit_s))
        for connection in self._connections:
            connection.close_when_answered()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._connections:
                    await asyncio.sleep(0.02)
        if self._connections:
            _LOG.warning("dropping %d connections after %g seconds", len(self._connections), limit_s)
        for connection in self._connections:
            connection.abort()
        while self._connections:
            await asyncio.sleep(0.001)
        await engine_drain
        if grpc_stop is not None:
            await grpc_stop
        if self._kv_events is not None:
            self._kv_events.close()
        self._frontend.close()

    async def _end_accepting(self, listening: asyncio.Server) -> None:
        """Whoever is accepted by now becomes a connection within two turns of the loop; asyncio would forget it, unclosed."""
        for each in listening.sockets:
            asyncio.get_running_loop().remove_reader(each)
        for _ in range(2):
            await asyncio.sleep(0)
        listening.close()


async def serve_until_signal(
    engine: Engine,
    settings: Settings,
    listener: Listener,
    access: Access,
    grpc_address: GrpcAddress | None = None,
    kv_sockets: KvEventSockets | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. A second signal ends the process there and then."""
    loop = asyncio.get_running_loop()
    is_told = asyncio.Event()

    def take_signal() -> None:
        if is_told.is_set():
            os._exit(1)
        is_told.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, take_signal)
    _allow_descriptors(settings.connection_limit + _N_OTHER_FILES)
    server = Server(engine, settings, access)
    with Notifier(service_manager()) as notifier:
        await server.start(listener, grpc_address, kv_sockets)
        print(f"Helios serves {engine.served_id} at {listener.url}", flush=True)
        if grpc_address is not None:
            print(f"Helios serves vllm.Inference at {grpc_address.url}", flush=True)
        if kv_sockets is not None:
            print(f"Helios publishes KV events at {kv_sockets.source.endpoint}", flush=True)
        notifier.ready(f"serving {engine.served_id} at {listener.url}")
        gc.freeze()  # what is loaded stays: going through it again and again stops every stream for a tenth of a second
        feeding = asyncio.create_task(notifier.feed_watchdog(engine.is_alive))
        await is_told.wait()
        notifier.stopping()
        _LOG.info("shutting down: up to %g seconds for open answers", settings.drain_timeout)
        await server.stop()
        feeding.cancel()


def _allow_descriptors(n_wanted: int) -> None:
    """Raise the soft limit of open files as far as it is needed and allowed; many systems start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_allowed = n_wanted if hard == resource.RLIM_INFINITY else min(n_wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < n_allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_allowed, hard))
    if n_allowed < n_wanted:
        _LOG.warning("this process may open %d files; --connection-limit wants %d", n_allowed, n_wanted)
