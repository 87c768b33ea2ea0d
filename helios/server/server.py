"""The listener: accepts connections, and ends them in order when it is told to stop.

It knows sockets and signals, no endpoint. The address is taken before a model is loaded, so that a port in use is found at
once, and connections are accepted only when there is an engine to serve them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from helios.errors import SettingError
from helios.metrics import ServerMetrics
from helios.server.connection import HttpConnection
from helios.server.frontend import Frontend
from helios.server.routes import RoutedApplication
from helios.server.services import Services
from helios.settings import Settings

if TYPE_CHECKING:
    from helios.engine import Engine

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def bind(host: str, port: int) -> socket.socket:
    """Take the address without listening yet; SettingError when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(f"--host {host[:200]!r} is no address of this machine: {reason}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _bind_error(error, host, port) from error
    return listener


def address_url(listener: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """Serves one engine over HTTP. `start` and `stop` belong to the event loop; the engine is its caller's to close."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = ServerMetrics(engine.statistics)
        self._frontend = Frontend(engine, settings.frontend_workers)
        self._services = Services(engine, settings, self._frontend, self._metrics, started=int(time.time()))
        self._application = RoutedApplication(self._services)
        self._connections: set[HttpConnection] = set()
        self._metrics.connections.set_function(lambda: len(self._connections))
        self._listening: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Begin to accept connections on a bound socket."""
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(self._connection, sock=listener, backlog=_BACKLOG)
        except OSError as error:
            host, port = listener.getsockname()[:2]
            raise _bind_error(error, host, port) from error

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._application, self._settings, self._connections)

    async def stop(self) -> None:
        """HTTP-4: not ready at once, `drain_timeout` seconds for open answers, then every connection is dropped."""
        self._services.is_draining = True
        if self._listening is not None:
            self._listening.close()
        limit_s = self._settings.drain_timeout
        engine_drain = asyncio.create_task(self._engine.drain(limit_s))
        for connection in tuple(self._connections):
            connection.close_when_answered()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._connections:
                    await asyncio.sleep(0.02)
        if self._connections:
            _LOG.warning("dropping %d connections after %g seconds", len(self._connections), limit_s)
        for connection in tuple(self._connections):
            connection.abort()
        while self._connections:
            await asyncio.sleep(0.001)
        await engine_drain
        self._frontend.close()


async def serve_until_signal(engine: Engine, settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then drain. A second signal ends the process there and then."""
    loop = asyncio.get_running_loop()
    is_told = asyncio.Event()

    def take_signal() -> None:
        if is_told.is_set():
            os._exit(1)
        is_told.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, take_signal)
    server = Server(engine, settings)
    await server.start(listener)
    print(f"Helios serves {engine.served_id} at {address_url(listener)}", flush=True)
    await is_told.wait()
    _LOG.info("shutting down: up to %g seconds for open answers", settings.drain_timeout)
    await server.stop()


def _bind_error(error: OSError, host: str, port: int) -> SettingError:
    if error.errno == errno.EADDRINUSE:
        return SettingError(f"port {port} on {host} is in use", hint="choose another with --port")
    if error.errno == errno.EACCES:
        return SettingError(
            f"port {port} on {host} is not allowed to this user", hint="choose one above 1023 with --port"
        )
    return SettingError(
        f"cannot listen on {host} port {port}: {error.strerror}", hint="choose another with --host or --port"
    )
