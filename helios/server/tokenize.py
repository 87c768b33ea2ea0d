"""`POST /tokenize` and `POST /detokenize`, in the form that load tools know from vLLM.

It knows no generation. What `/tokenize` shows is exactly what the same prompt or conversation would be run as.
"""

from __future__ import annotations

from typing import Any

from helios.prompt.grammar.request import read_structured
from helios.server.chat_request import read_conversation
from helios.server.exchange import Exchange
from helios.server.fields import parse_body, read_token_ids
from helios.server.services import Services


async def tokenize(services: Services, exchange: Exchange) -> None:
    """`{"prompt": text}` or `{"messages": [...]}` with what chat takes beside it, to token ids."""
    document = await services.frontend.run(lambda body: _tokens(services, body), exchange.request.body)
    await exchange.respond_json(document)


async def detokenize(services: Services, exchange: Exchange) -> None:
    """`{"tokens": [...]}` to text, control tokens spelled out."""
    document = await services.frontend.run(lambda body: _text(services, body), exchange.request.body)
    await exchange.respond_json(document)


def _tokens(services: Services, body: bytes) -> dict[str, Any]:
    fields = parse_body(body)
    if fields.value("messages") is not None:
        tokens = services.frontend.chat_tokens(read_conversation(fields, read_structured(fields.table)))
    else:
        prompt = fields.text("prompt")
        if prompt is None:
            raise fields.refuse("prompt", "text")
        tokens = services.frontend.prompt_tokens(prompt)
    document: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": services.engine.context_tokens,
        "tokens": tokens,
    }
    if fields.boolean("return_token_strs"):
        spelled = map(services.engine.tokenizer.token_bytes, tokens)
        document["token_strs"] = [piece.decode("utf-8", errors="replace") for piece in spelled]
    return document


def _text(services: Services, body: bytes) -> dict[str, Any]:
    fields = parse_body(body)
    tokens = fields.list("tokens")
    if tokens is None:
        raise fields.refuse("tokens", "a list of token ids")
    checked = read_token_ids(tokens, "tokens", services.engine.vocabulary)
    return {"prompt": services.engine.tokenizer.decode(checked)}
