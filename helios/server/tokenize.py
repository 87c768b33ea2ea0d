"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`, in the form that load tools and harnesses know from vLLM.

It knows no generation. What `/tokenize` shows is exactly what the same prompt or conversation would be run as; without
`add_special_tokens`, what a part of a prompt adds to it.
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


async def show_tokenizer(services: Services, exchange: Exchange) -> None:
    """What a client needs beside the two others to write prompts itself."""
    engine = services.engine
    await exchange.respond_json(
        {
            "bos_token": engine.bos_text or None,
            "eos_token": engine.eos_text or None,
            "add_bos_token": engine.adds_bos,
            "model_max_length": engine.context_tokens,
            "chat_template": engine.chat_template,
        }
    )


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
        adds_special = fields.value("add_special_tokens") is None or fields.boolean("add_special_tokens")
        tokens = services.frontend.prompt_tokens(prompt, adds_bos=adds_special)
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
