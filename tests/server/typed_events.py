"""Streams of the APIs whose events have names, as a client takes them in and checks them on the way."""

from __future__ import annotations

import json
from typing import Any

from tests.server.conftest import RunningServer


def named_events(body: bytes) -> list[Any]:
    """The documents of a stream: every event has a name, which is its document's type. Comments are left out."""
    assert body.endswith(b"\n\n")
    events = []
    for block in body.decode("utf-8").removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        document = json.loads(data.removeprefix("data: "))
        assert name == f"event: {document['type']}"
        events.append(document)
    return events


def stream(server: RunningServer, path: str, fields: dict[str, Any]) -> list[Any]:
    """The events of a request's streamed form."""
    status, headers, body = server.exchange("POST", path, json.dumps({**fields, "stream": True}).encode())
    assert status == 200, body
    assert headers["Content-Type"].startswith("text/event-stream")
    return named_events(body)
