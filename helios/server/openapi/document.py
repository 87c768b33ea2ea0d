"""The OpenAPI document of a running server, and the endpoint that shows it.

It knows what each path is for; bodies come from the code that reads them, so the document is that of this server and this model.
Every route is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helios.server.exchange import Exchange
from helios.server.openapi.answers import components, ref
from helios.server.openapi.bodies import request_bodies
from helios.server.openapi.schema import Schema
from helios.server.options import Limits
from helios.server.services import Services
from helios.settings import VERSION

_PUBLIC = ("/", "/health", "/ready")
_REFUSALS = {
    400: "The request is wrong and will stay wrong.",
    401: "A key is wanted.",
    404: "There is no such model.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body's encoding is unknown.",
    417: "The request expects what this server does not know.",
    429: "There are as many requests as there may be; Retry-After says when to try again.",
    431: "The header is too large.",
    500: "The server or its device failed.",
    503: "The server is shutting down or has no room; Retry-After says when to try again.",
    505: "Another version of HTTP.",
}
_GENERATING = "text/event-stream"


@dataclass(frozen=True, slots=True)
class _Operation:
    """One path and method. `answer` and `chunk` are components; a stream has chunks as the data of its events, and where it
    `tells_done` one more behind them."""

    method: str
    summary: str
    answer: str
    chunk: str | None = None
    error: str = "Error"
    tells_done: bool = False


_OPERATIONS = {
    "/v1/chat/completions": _Operation(
        "post", "Continue a conversation.", "ChatCompletion", "ChatCompletionChunk", tells_done=True
    ),
    "/v1/completions": _Operation("post", "Continue raw prompts.", "Completion", "CompletionChunk", tells_done=True),
    "/v1/chat/completions/render": _Operation(
        "post", "The tokens that a conversation would be run as, for routers.", "Rendered"
    ),
    "/v1/completions/render": _Operation("post", "The same of raw prompts, each.", "RenderedPrompts"),
    "/v1/responses": _Operation("post", "OpenAI's Responses, keeping nothing.", "Response", "ResponseEvent"),
    "/v1/messages": _Operation("post", "Anthropic's Messages.", "Message", "MessageEvent", "MessageError"),
    "/v1/messages/count_tokens": _Operation(
        "post", "Count the tokens of a conversation.", "MessageTokens", None, "MessageError"
    ),
    "/v1/models": _Operation("get", "The model that is served, under each of its names.", "ModelList"),
    "/v1/models/{model}": _Operation("get", "The model under one name.", "Model"),
    "/tokenize": _Operation("post", "A prompt or conversation to the tokens that it would be run as.", "Tokens"),
    "/detokenize": _Operation("post", "Tokens to text.", "Text"),
    "/tokenizer_info": _Operation("get", "What the tokenizer is.", "Tokenizer"),
    "/version": _Operation("get", "What serves.", "Version"),
    "/health": _Operation("get", "200 while the model worker works, else 503: restart it.", "State"),
    "/ready": _Operation("get", "200 while new requests are served, else 503: send them elsewhere.", "State"),
    "/metrics": _Operation("get", "Prometheus metrics.", "text/plain; version=0.0.4"),
    "/": _Operation("get", "A page to chat in.", "text/html"),
    "/openapi.json": _Operation("get", "This document.", "Document"),
}


async def show_openapi(services: Services, exchange: Exchange) -> None:
    """The document of this server."""
    await exchange.respond_json(openapi_document(services))


def openapi_document(services: Services) -> dict[str, Any]:
    """What the server of `services` accepts and answers."""
    engine = services.engine
    limits = Limits(
        engine.served_id,
        engine.aliases,
        engine.vocabulary,
        engine.sampling_defaults,
        calls_tools=True,
        scores_prompts=True,
    )
    bodies = request_bodies(limits)
    wants_key = services.settings.api_key_file is not None
    public = (*_PUBLIC, "/metrics") if services.settings.public_metrics else _PUBLIC
    return {
        "openapi": "3.1.0",
        "info": {"title": "Helios", "version": VERSION, "description": f"A server of {engine.served_id}."},
        "paths": {
            path: {
                operation.method: _operation(
                    path, operation, bodies.get(path), wants_key=wants_key and path not in public
                )
            }
            for path, operation in _OPERATIONS.items()
        },
        "components": {
            "schemas": {
                **components(),
                "Document": {"type": "object"},
                "ResponseEvent": {"type": "object", "required": ["type"]},
                "MessageEvent": {"type": "object", "required": ["type"]},
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _operation(path: str, operation: _Operation, body: Schema | None, *, wants_key: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": _responses(path, operation, wants_key=wants_key),
        "security": [{"bearer": []}, {"header": []}] if wants_key else [],
    }
    if "{model}" in path:
        described["parameters"] = [
            {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        ]
    if body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return described


def _responses(path: str, operation: _Operation, *, wants_key: bool) -> dict[str, Any]:
    responses = {"200": _response("The answer.", _content(operation))}
    for status, meaning in _REFUSALS.items():
        if status == 401 and not wants_key:
            continue
        has_state = path in ("/health", "/ready") and status == 503
        schema = ref("State") if has_state else ref(operation.error)
        responses[str(status)] = _response(meaning, {"application/json": {"schema": schema}})
    return responses


def _content(operation: _Operation) -> dict[str, Any]:
    if "/" in operation.answer:
        return {operation.answer: {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": ref(operation.answer)}}
    if operation.chunk is not None:
        content[_GENERATING] = {"schema": _event(operation)}
    return content


def _event(operation: _Operation) -> Schema:
    """One server-sent event of a stream; an error is the last of its stream."""
    document = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [ref(f"{operation.chunk}"), ref(operation.error)]},
    }
    data = {"anyOf": [document, {"const": "[DONE]"}]} if operation.tells_done else document
    return {"type": "object", "properties": {"data": data}, "required": ["data"], "description": "One event."}


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    header = {"required": True, "schema": {"type": "string"}, "description": "The request's id, as in the log."}
    return {"description": description, "headers": {"X-Request-Id": header}, "content": content}
