"""The sockets of KV events as the settings want them.

It knows settings, and that ZeroMQ and msgspec are packages which not everybody has: without them there is one sentence about it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from helios.errors import SettingError
from helios.settings import Settings

if TYPE_CHECKING:
    from helios.server.kv_events.sockets import KvEventSockets

_PACKAGES = {"zmq": "pyzmq", "msgspec": "msgspec"}


def open_kv_events(settings: Settings) -> KvEventSockets | None:
    """Bound sockets, None where no events are wanted; SettingError when they cannot be had."""
    if settings.kv_events is None:
        if settings.kv_events_replay is not None:
            raise SettingError("--kv-events-replay is set", hint="it needs --kv-events")
        return None
    missing = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        packages = " and ".join(missing)
        raise SettingError(f"--kv-events needs {packages}", hint="install with: pip install pyzmq msgspec")
    from helios.server.kv_events.sockets import KvEventSockets

    return KvEventSockets(settings.kv_events, settings.kv_events_replay, settings.kv_events_topic or "")
