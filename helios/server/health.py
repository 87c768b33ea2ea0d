"""`/health`, `/ready` and `/metrics`: what supervisors ask.

It knows only what the engine says of itself. Liveness is not readiness: a draining server is alive and not ready.
"""

from __future__ import annotations

import asyncio

from helios.metrics import CONTENT_TYPE
from helios.server.exchange import Exchange
from helios.server.services import Services


async def show_health(services: Services, exchange: Exchange) -> None:
    """200 while the model worker works, else 503 and why: restart me."""
    fault = services.engine.fault
    if services.engine.is_alive():
        await exchange.respond_json({"status": "ok"})
    else:
        await exchange.respond_json({"status": "failed", "error": None if fault is None else fault.code}, 503)


async def show_readiness(services: Services, exchange: Exchange) -> None:
    """200 while new requests are served, else 503: send them elsewhere."""
    is_ready = services.engine.is_ready() and not services.is_draining
    status = "ready" if is_ready else "draining" if services.is_draining else "not ready"
    await exchange.respond_json({"status": status}, 200 if is_ready else 503)


async def show_metrics(services: Services, exchange: Exchange) -> None:
    await asyncio.to_thread(services.metrics.load_library)
    await exchange.respond(200, services.metrics.exposition(), CONTENT_TYPE)
