"""`GET /v1/models`, `GET /v1/models/{id}` and `GET /version`: what is served here, and by what.

It knows the served id and its aliases, nothing of files. Aliases are listed too, since requests may name them.
"""

from __future__ import annotations

from typing import Any

from helios.errors import UnknownModelError
from helios.server.exchange import Exchange
from helios.server.services import Services
from helios.settings import VERSION


async def list_models(services: Services, exchange: Exchange) -> None:
    names = (services.engine.served_id, *services.engine.aliases)
    await exchange.respond_json({"object": "list", "data": [_model(services, name) for name in names]})


async def show_model(services: Services, exchange: Exchange) -> None:
    name = exchange.request.path.removeprefix("/v1/models/")
    if name != services.engine.served_id and name not in services.engine.aliases:
        raise UnknownModelError(name, services.engine.served_id)
    await exchange.respond_json(_model(services, name))


async def show_version(services: Services, exchange: Exchange) -> None:
    """Helios's, where routers ask an engine for its own."""
    await exchange.respond_json({"version": VERSION})


def _model(services: Services, name: str) -> dict[str, Any]:
    """One entry. `root` and `max_model_len` are what load tools read."""
    return {
        "id": name,
        "object": "model",
        "created": services.started,
        "owned_by": "helios",
        "root": services.engine.served_id,
        "max_model_len": services.engine.context_tokens,
    }
