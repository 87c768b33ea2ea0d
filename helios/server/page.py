"""`GET /`: the chat page, one self-contained file that talks to this server's own API.

It knows bytes and headers, nothing of what the page does. The policy that goes with it lets the page run its own script and
style, known by their digests, and connect to this server alone, so that no answer of a model can load or run anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

from helios.server.exchange import Exchange
from helios.server.services import Services

_FILE = Path(__file__).with_name("page.html")


async def show_page(services: Services, exchange: Exchange) -> None:
    """The page, or 304 when the browser has this very one."""
    body, etag, policy = _page()
    headers = [("ETag", etag), ("Cache-Control", "no-cache"), ("Content-Security-Policy", policy)]
    headers += [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")]
    if etag in exchange.request.headers.get("if-none-match", ""):
        exchange.start(304, headers)
        await exchange.finish()
        return
    await exchange.respond(200, body, "text/html; charset=utf-8", headers)


@functools.cache
def _page() -> tuple[bytes, str, str]:
    """Body, entity tag and content security policy; read once."""
    body = _FILE.read_bytes()
    script, style = (_digest(body, tag) for tag in (b"script", b"style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', policy


def _digest(body: bytes, tag: bytes) -> str:
    """The source expression that allows the one element `tag` of the page."""
    match = re.search(rb"<%b>(.*?)</%b>" % (tag, tag), body, re.DOTALL)
    if match is None:
        raise ValueError(f"the page has no <{tag.decode()}>")
    return f"'sha256-{base64.b64encode(hashlib.sha256(match[1]).digest()).decode()}'"
