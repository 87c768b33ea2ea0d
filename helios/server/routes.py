"""The table of routes and the application that follows it.

It knows which function answers which path, and turns what that raises into a response; no endpoint catches errors for itself.
A request is counted once, under its route's own path, never under what the client wrote.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from helios.errors import HeliosError, InternalError
from helios.server.exchange import Exchange
from helios.server.head import RequestHead
from helios.server.health import show_health, show_metrics, show_readiness
from helios.server.models import list_models, show_model
from helios.server.openai_chat import create_chat_completion
from helios.server.openai_completions import create_completion
from helios.server.services import Services
from helios.server.status import WireError, status_of
from helios.server.tokenize import detokenize, tokenize

_LOG = logging.getLogger(__name__)
Endpoint = Callable[[Services, Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` ending in a slash matches everything below it. GET routes answer HEAD as well; what generates needs a permit."""

    method: str
    path: str
    endpoint: Endpoint
    is_generating: bool = False

    def matches(self, path: str) -> bool:
        if self.path.endswith("/"):
            return path.startswith(self.path) and path != self.path
        return path == self.path

    @property
    def methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


ROUTES = (
    Route("POST", "/v1/chat/completions", create_chat_completion, is_generating=True),
    Route("POST", "/v1/completions", create_completion, is_generating=True),
    Route("GET", "/v1/models", list_models),
    Route("GET", "/v1/models/", show_model),
    Route("POST", "/tokenize", tokenize),
    Route("POST", "/detokenize", detokenize),
    Route("GET", "/health", show_health),
    Route("GET", "/ready", show_readiness),
    Route("GET", "/metrics", show_metrics),
)


class RoutedApplication:
    """Answers every exchange exactly once."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def check(self, head: RequestHead) -> None:
        """Refuse at the head what no body can help: HTTP-1, nothing is read of a request that there is no room for."""
        label = "unknown"
        try:
            route = _find(head.method, head.path)
            label = route.path
            if route.is_generating:
                self._services.engine.admit().release()  # only asks: a slow body must not hold a permit
        except HeliosError as error:
            self._count(label, str(status_of(error).number))
            raise

    async def handle(self, exchange: Exchange) -> None:
        """Answer, whatever happens; only cancellation (the client has gone) leaves this without a whole response."""
        label = "unknown"
        try:
            route = _find(exchange.request.method, exchange.request.path)
            label = route.path
            await route.endpoint(self._services, exchange)
        except asyncio.CancelledError:
            self._count(label, "dropped")
            raise
        except HeliosError as error:
            await self._fail(exchange, error)
        except Exception:
            _LOG.exception("request %s failed", exchange.request.id)
            await self._fail(exchange, InternalError("the server failed while it answered"))
        self._count(label, str(exchange.status))

    def refused(self, status: int) -> None:
        """A request that could not be read was refused with `status`."""
        self._count("unread", str(status))

    async def _fail(self, exchange: Exchange, error: HeliosError) -> None:
        if isinstance(error, InternalError):
            _LOG.error("request %s failed: %s", exchange.request.id, error)
        if exchange.status is None:
            await exchange.respond_error(error)

    def _count(self, route: str, status: str) -> None:
        self._services.metrics.requests.labels(route, status).inc()


def _find(method: str, path: str) -> Route:
    """The route of a request; WireError 404 or 405."""
    matching = [route for route in ROUTES if route.matches(path)]
    if not matching:
        raise WireError(404, f"there is no {path[:200]}")
    for route in matching:
        if method in route.methods:
            return route
    allowed = ", ".join(name for route in matching for name in route.methods)
    raise WireError(405, f"{path[:200]} does not take {method[:40]}", headers=(("Allow", allowed),))
