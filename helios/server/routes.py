"""The table of routes and the application that follows it.

It knows which function answers which path and which paths want a key, and turns what is raised into a response; no endpoint catches
errors for itself. A request is counted and logged once, counted under its route's own path, never under what the client wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from helios.errors import HeliosError, InternalError
from helios.server.access_log import log_request
from helios.server.anthropic_messages import count_message_tokens, create_message
from helios.server.anthropic_messages_errors import message_error
from helios.server.cors import CrossOrigin
from helios.server.exchange import Exchange, Headers
from helios.server.head import RequestHead
from helios.server.health import show_health, show_metrics, show_readiness
from helios.server.models import list_models, show_model, show_version
from helios.server.openai_chat import create_chat_completion
from helios.server.openai_completions import create_completion
from helios.server.openai_responses import create_response
from helios.server.openapi.document import show_openapi
from helios.server.page import show_page
from helios.server.render import render_chat_completion, render_completion
from helios.server.services import Services
from helios.server.status import WireError, error_body, status_of
from helios.server.tokenize import detokenize, show_tokenizer, tokenize

_LOG = logging.getLogger(__name__)
Endpoint = Callable[[Services, Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` ending in a slash matches everything below it, but "/" itself alone; "*" is the server as a whole. GET routes answer
    HEAD as well; what generates needs a permit, and what is not public a key. `error_body` is the API's way to tell of an error.
    """

    method: str
    path: str
    endpoint: Endpoint
    is_generating: bool = False
    is_public: bool = False
    error_body: Callable[[HeliosError], Mapping[str, object]] = error_body

    def matches(self, path: str) -> bool:
        if self.path.endswith("/") and self.path != "/":
            return path.startswith(self.path) and path != self.path
        return path == self.path

    @property
    def methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


async def _show_methods(_: Services, exchange: Exchange) -> None:
    """The methods that some path takes (RFC 9110, 9.3.7)."""
    exchange.start(204, [("Allow", ", ".join(_methods(ROUTES)))])
    await exchange.finish()


def _methods(routes: Sequence[Route]) -> dict[str, None]:
    """Each of them once, in order."""
    return dict.fromkeys(name for route in routes for name in route.methods)


ROUTES = (
    Route("POST", "/v1/chat/completions", create_chat_completion, is_generating=True),
    Route("POST", "/v1/completions", create_completion, is_generating=True),
    Route("POST", "/v1/chat/completions/render", render_chat_completion),
    Route("POST", "/v1/completions/render", render_completion),
    Route("POST", "/v1/responses", create_response, is_generating=True),
    Route("POST", "/v1/messages", create_message, is_generating=True, error_body=message_error),
    Route("POST", "/v1/messages/count_tokens", count_message_tokens, error_body=message_error),
    Route("GET", "/v1/models", list_models),
    Route("GET", "/v1/models/", show_model),
    Route("POST", "/tokenize", tokenize),
    Route("POST", "/detokenize", detokenize),
    Route("GET", "/tokenizer_info", show_tokenizer),
    Route("GET", "/version", show_version),
    Route("GET", "/openapi.json", show_openapi),
    Route("GET", "/", show_page, is_public=True),
    Route("GET", "/health", show_health, is_public=True),
    Route("GET", "/ready", show_readiness, is_public=True),
    Route("GET", "/metrics", show_metrics),
    Route("OPTIONS", "*", _show_methods),
)


class RoutedApplication:
    """Answers every exchange exactly once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._cross_origin = CrossOrigin(services.settings.cors_origin)
        self._public = {route.path for route in ROUTES if route.is_public}
        if services.settings.public_metrics:
            self._public.add("/metrics")

    def headers(self, headers: Mapping[str, str]) -> Headers:
        """What every response to a request with `headers` carries."""
        return self._cross_origin.headers(headers)

    def check(self, head: RequestHead) -> None:
        """Refuse at the head what no body can help: HTTP-1, nothing is read of a request that there is no room for."""
        arrived_s = self._services.clock()
        matching = _matching(head.path)
        try:
            if self._cross_origin.is_preflight(head.method, head.headers):
                return
            if not any(route.path in self._public for route in matching):
                self._services.access.check(head.headers)
            if _chosen(matching, head.method, head.path).is_generating:
                self._services.engine.admit().release()  # only asks: a slow body must not hold a permit
        except HeliosError as error:
            status = status_of(error).number
            self._count(_label(matching), str(status))
            total_s = self._services.clock() - arrived_s
            log_request(head.id, head.method, head.path, status, total_s, {"error": error.code})
            raise

    async def handle(self, exchange: Exchange) -> None:
        """Answer, whatever happens; only cancellation (the client has gone) leaves this without a whole response."""
        arrived_s = self._services.clock()
        matching = _matching(exchange.request.path)
        status = "dropped"
        try:
            await self._answer(exchange, matching)
            status = str(exchange.status)
        finally:
            self._count(_label(matching), status)
            request, total_s = exchange.request, self._services.clock() - arrived_s
            facts = exchange.outcome.facts(arrived_s)
            log_request(request.id, request.method, request.path, exchange.status, total_s, facts)

    def refused(self, error: HeliosError, request_id: str, head: RequestHead | None) -> None:
        """A request that could not be read was refused; `head` where that much was."""
        status = status_of(error).number
        self._count("unread", str(status))
        method, path = ("-", "-") if head is None else (head.method, head.path)
        log_request(request_id, method, path, status, None, {"error": error.code})

    def error_document(self, error: HeliosError, head: RequestHead | None) -> object:
        """The body of a refusal, as the API that was asked writes it."""
        return _error_document(() if head is None else _matching(head.path), error)

    async def _answer(self, exchange: Exchange, matching: Sequence[Route]) -> None:
        request = exchange.request
        try:
            if self._cross_origin.is_preflight(request.method, request.headers):
                await self._answer_preflight(exchange, matching)
            else:
                await _chosen(matching, request.method, request.path).endpoint(self._services, exchange)
        except HeliosError as error:
            await self._fail(exchange, matching, error)
        except Exception:
            _LOG.exception("request %s failed", request.id)
            await self._fail(exchange, matching, InternalError("the server failed while it answered"))

    async def _answer_preflight(self, exchange: Exchange, matching: Sequence[Route]) -> None:
        exchange.start(204, self._cross_origin.preflight_headers(exchange.request.headers, _methods(matching)))
        await exchange.finish()

    async def _fail(self, exchange: Exchange, matching: Sequence[Route], error: HeliosError) -> None:
        exchange.outcome.error_code = error.code
        if isinstance(error, InternalError):
            _LOG.error("request %s failed: %s", exchange.request.id, error)
        if exchange.status is None:
            await exchange.respond_error(error, _error_document(matching, error))

    def _count(self, route: str, status: str) -> None:
        self._services.metrics.count_request(route, status)


def _matching(path: str) -> list[Route]:
    return [route for route in ROUTES if route.matches(path)]


def _label(matching: Sequence[Route]) -> str:
    return matching[0].path if matching else "unknown"


def _error_document(matching: Sequence[Route], error: HeliosError) -> object:
    return (matching[0].error_body if matching else error_body)(error)


def _chosen(matching: Sequence[Route], method: str, path: str) -> Route:
    """The route of a request; WireError 404 or 405."""
    if not matching:
        raise WireError(404, f"there is no {path[:200]}")
    for route in matching:
        if method in route.methods:
            return route
    allowed = ("Allow", ", ".join(_methods(matching)))
    raise WireError(405, f"{path[:200]} does not take {method[:40]}", headers=(allowed,))
