"""What every endpoint may use, handed to it with each exchange.

It knows no routes. All of it lives as long as the server; `is_draining` alone changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.metrics import ServerMetrics
from helios.server.access import Access
from helios.server.frontend import Frontend
from helios.settings import Settings

if TYPE_CHECKING:
    from helios.engine import Engine
    from helios.server.kv_events.sockets import Source


@dataclass(slots=True)
class Services:
    """The engine and what stands around it. `started` is in Unix seconds, for `/v1/models`; `origin_s` is the origin of the times
    that observers are told, by `clock`, which is the scheduler's; `kv_source`: where KV events can be had, None without them."""

    engine: Engine
    settings: Settings
    frontend: Frontend
    metrics: ServerMetrics
    access: Access
    started: int
    origin_s: float
    clock: Callable[[], float] = time.monotonic
    is_draining: bool = False
    kv_source: Source | None = None
