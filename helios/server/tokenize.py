"""`POST /tokenize` and `POST /detokenize`, in the form that load tools know from vLLM.

It knows no generation. What `/tokenize` shows is exactly what the same prompt or conversation would be run as.
"""

from __future__ import annotations

from typing import Any

from helios.server.chat_request import read_messages
from helios.server.completion_request import read_token_ids
from helios.server.exchange import Exchange
from helios.server.fields import parse_body
from helios.server.services import Services


async def tokenize(services: Services, exchange: Exchange) -> None:
    """`{"prompt": text}` or `{"messages": [...]}` to token ids."""
    tokens = await services.frontend.run(lambda body: _tokens(services, body), exchange.request.body)
    document = {"count": len(tokens), "max_model_len": services.engine.context_tokens, "tokens": tokens}
    await exchange.respond_json(document)


async def detokenize(services: Services, exchange: Exchange) -> None:
    """`{"tokens": [...]}` to text, control tokens spelled out."""
    document = await services.frontend.run(lambda body: _text(services, body), exchange.request.body)
    await exchange.respond_json(document)


def _tokens(services: Services, body: bytes) -> list[int]:
    fields = parse_body(body)
    if fields.value("messages") is not None:
        return services.frontend.chat_tokens(tuple(read_messages(fields)))
    prompt = fields.text("prompt")
    if prompt is None:
        raise fields.refuse("prompt", "text")
    return services.frontend.prompt_tokens(prompt)


def _text(services: Services, body: bytes) -> dict[str, Any]:
    fields = parse_body(body)
    tokens = fields.list("tokens")
    if tokens is None:
        raise fields.refuse("tokens", "a list of token ids")
    checked = read_token_ids(tokens, "tokens", services.engine.vocabulary)
    return {"prompt": services.engine.tokenizer.decode(checked)}
