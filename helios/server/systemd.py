"""The service manager that started us: told when we are ready, alive and stopping, and asked for the socket it holds for us.

It knows sd_notify(3) and sd_listen_fds(3), which are two conventions and no library, and nothing of HTTP. Without a service
manager everything here does nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from helios.errors import SettingError
from helios.owner import Owner
from helios.settings import ServiceManager

_LOG = logging.getLogger(__name__)
_FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
_FEEDS_A_DEADLINE = 3  # the watchdog is fed this often within its time, so that one late turn of the loop is no death


class Notifier(Owner):
    """Datagrams to the service manager. A message that cannot be sent is logged once and forgotten: we serve on."""

    def __init__(self, manager: ServiceManager) -> None:
        self._watchdog_s = manager.watchdog_s
        self._socket: socket.socket | None = None
        self._has_failed = False
        if manager.notify_address is not None:
            address = manager.notify_address
            self._address = "\0" + address[1:] if address.startswith("@") else address  # "@" is the abstract namespace
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        """The service answers; `status` is what `systemctl status` shows."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=finishing open answers")

    async def feed_watchdog(self, is_alive: Callable[[], bool]) -> None:
        """Tell the watchdog that we live for as long as `is_alive` says so; never returns."""
        if self._socket is None or self._watchdog_s is None:
            return
        while True:
            if is_alive():
                self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / _FEEDS_A_DEADLINE)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _LOG.warning("the service manager cannot be told: %s", error)
            self._has_failed = True


def activated_socket(manager: ServiceManager) -> socket.socket | None:
    """The listening socket that the service manager holds for us, None without one. SettingError when it is not one of ours."""
    if manager.n_sockets == 0:
        return None
    if manager.n_sockets > 1:
        raise SettingError(f"the service manager passes {manager.n_sockets} sockets", hint="give one ListenStream=")
    os.set_inheritable(_FIRST_DESCRIPTOR, False)
    passed = socket.socket(fileno=_FIRST_DESCRIPTOR)
    if passed.type != socket.SOCK_STREAM or not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        passed.close()
        raise SettingError("the service manager passes a socket that does not listen", hint="give one ListenStream=")
    return passed
