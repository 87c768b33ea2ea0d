"""`POST .../render`: the tokens that a request would be run as, for routers that send a prefix where it is cached already.

It knows no generation. It reads what the endpoint itself reads and refuses what that refuses, but for the form of the answer, whose
grammar is not compiled: a router asks this of every worker for every request.
"""

from __future__ import annotations

from typing import Any

from helios.server.exchange import Exchange
from helios.server.frontend import Rendered
from helios.server.services import Services


async def render_chat_completion(services: Services, exchange: Exchange) -> None:
    """A conversation."""
    rendered = await services.frontend.run(services.frontend.render_chat, exchange.request.body)
    await exchange.respond_json(_document(services, exchange, rendered, "chatcmpl"))


async def render_completion(services: Services, exchange: Exchange) -> None:
    """One entry a prompt."""
    prompts = await services.frontend.run(services.frontend.render_completion, exchange.request.body)
    await exchange.respond_json([_document(services, exchange, rendered, "cmpl") for rendered in prompts])


def _document(services: Services, exchange: Exchange, rendered: Rendered, prefix: str) -> dict[str, Any]:
    options, sampling = rendered.options, rendered.options.sampling
    return {
        "request_id": f"{prefix}-{exchange.request.id}",
        "token_ids": rendered.tokens,
        "sampling_params": {
            "n": options.n_choices,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "max_tokens": options.output_limit,
        },
        "model": services.engine.served_id,
        "stream": options.is_stream,
        "cache_salt": options.cache_salt or None,
        "priority": options.priority,
    }
