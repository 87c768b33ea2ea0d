"""What browsers ask before and after a request of another origin's page, and what they are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import pytest

from tests.server.conftest import RunningServer

HERE, THERE = "https://here.example", "https://there.example"
CHAT = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()


def asked(method: str = "POST", headers: str | None = "authorization,content-type,x-stainless-os") -> dict[str, str]:
    fields = {"Origin": HERE, "Access-Control-Request-Method": method}
    return fields if headers is None else fields | {"Access-Control-Request-Headers": headers}


def allowed_origin(headers: Message) -> str | None:
    return headers["Access-Control-Allow-Origin"]


def varies_by_origin(headers: Message) -> bool:
    return "Origin" in headers.get_all("Vary", [])


@pytest.mark.parametrize("origins", [(HERE,), (THERE, HERE)])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/health", 200), ("POST", "/v1/chat/completions", 200), ("GET", "/nowhere", 404), ("PUT", "/ready", 405)],
)
def test_an_allowed_origin_may_read_every_response(
    start_server: Callable[..., RunningServer], origins: tuple[str, ...], method: str, path: str, status: int
) -> None:
    """Errors too, or a page could not show what is wrong; exact origins are echoed and caches are told."""
    server = start_server(cors_origin=origins)
    got, headers, _ = server.exchange(method, path, CHAT, {"Origin": HERE})
    assert (got, allowed_origin(headers)) == (status, HERE)
    assert varies_by_origin(headers)
    assert headers["Access-Control-Expose-Headers"] == "X-Request-Id, Retry-After"
    assert headers["Access-Control-Allow-Credentials"] is None


@pytest.mark.parametrize(
    "origin", [None, THERE, "null", HERE + ".evil", "http://here.example", HERE + ":8443", HERE.upper(), "*"]
)
def test_no_other_origin_may(start_server: Callable[..., RunningServer], origin: str | None) -> None:
    server = start_server(cors_origin=(HERE,))
    status, headers, _ = server.exchange("GET", "/health", headers={} if origin is None else {"Origin": origin})
    assert (status, allowed_origin(headers)) == (200, None)
    assert varies_by_origin(headers)


def test_any_origin_is_one_word(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(cors_origin=("*",))
    for origin in (HERE, "null"):
        headers = server.exchange("GET", "/health", headers={"Origin": origin})[1]
        assert allowed_origin(headers) == "*"
        assert not varies_by_origin(headers)


def test_without_an_allow_list_nothing_is_said(server: RunningServer) -> None:
    status, refused, _ = server.exchange("OPTIONS", "/v1/chat/completions", headers=asked())
    assert (status, refused["Allow"]) == (405, "POST")
    for headers in (refused, server.exchange("GET", "/health", headers={"Origin": HERE})[1]):
        assert not [name for name in headers if name.lower().startswith("access-control") or name == "Vary"]


def test_a_preflight_needs_no_key_and_the_request_does(
    start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    """Research 1.13, ollama#8536: browsers send no key with a preflight."""
    keys = tmp_path / "keys"
    keys.write_text("secret")
    keys.chmod(0o600)
    server = start_server(cors_origin=(HERE,), api_key_file=str(keys))
    status, headers, body = server.exchange("OPTIONS", "/v1/chat/completions", headers=asked())
    assert (status, body) == (204, b"")
    assert allowed_origin(headers) == HERE
    assert headers["Access-Control-Allow-Methods"] == "POST"
    assert headers["Access-Control-Allow-Headers"] == "authorization,content-type,x-stainless-os"
    assert int(headers["Access-Control-Max-Age"]) == 7200
    assert headers["Content-Length"] is None  # RFC 9110 8.6: none with 204
    assert headers["Transfer-Encoding"] is None
    status, headers, _ = server.exchange("POST", "/v1/chat/completions", CHAT, {"Origin": HERE})
    assert (status, allowed_origin(headers)) == (401, HERE)
    assert server.exchange("OPTIONS", "/v1/chat/completions", headers={"Origin": HERE})[0] == 401  # no preflight
    assert server.engine.generations == []


def test_a_preflight_of_another_origin_allows_nothing(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(cors_origin=(THERE,))
    status, headers, _ = server.exchange("OPTIONS", "/v1/chat/completions", headers=asked())
    assert (status, allowed_origin(headers)) == (204, None)


def test_a_preflight_for_a_path_that_is_read(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(cors_origin=("*",))
    headers = server.exchange("OPTIONS", "/v1/models/x", headers=asked("GET", None))[1]
    assert headers["Access-Control-Allow-Methods"] == "GET, HEAD"
    assert headers["Access-Control-Allow-Headers"] is None


def test_field_names_that_are_none_are_not_echoed(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(cors_origin=("*",))
    for names in ("x" * 5000, "a: b", "é"):
        headers = server.exchange("OPTIONS", "/health", headers=asked("GET", names.encode().decode("latin-1")))[1]
        assert headers["Access-Control-Allow-Headers"] is None


def test_refusals_before_the_body_can_be_read_by_the_page(start_server: Callable[..., RunningServer]) -> None:
    """Also those that the connection writes itself: 429 at the head, 413 while the body comes."""
    server = start_server(cors_origin=(HERE,), body_limit=1 << 10)
    status, headers, _ = server.exchange("POST", "/tokenize", b"x" * 2000, {"Origin": HERE, "X-Request-Id": "mine"})
    assert (status, allowed_origin(headers), headers["X-Request-Id"]) == (413, HERE, "mine")
    server.engine.capacity = 0
    status, headers, _ = server.exchange("POST", "/v1/chat/completions", CHAT, {"Origin": HERE})
    assert (status, allowed_origin(headers)) == (429, HERE)
