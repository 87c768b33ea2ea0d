"""What a client of scripts/scale-out makes of a stream, however it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scripts.scaling.scene import Scene

TEXT = b"data: " + json.dumps({"choices": [{"delta": {"content": "a"}}]}).encode() + b"\n\n"
ROLE = b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'
FINISH = b'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {}}\n\n'
ERROR = b'data: {"error": {"message": "the worker is gone"}}\n\n'
DONE = b"data: [DONE]\n\n"


class Front(BaseHTTPRequestHandler):
    status, parts = 200, (ROLE,)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"".join(self.parts))

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def scene() -> Iterator[Scene]:
    with HTTPServer(("127.0.0.1", 0), Front) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Scene(f"http://127.0.0.1:{server.server_port}", [], "m")
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "parts", "n_events", "word"),
    [
        (200, (ROLE, TEXT, TEXT, FINISH, DONE), 2, ""),
        (200, (ROLE, TEXT, FINISH, USAGE, DONE), 1, ""),
        (200, (ROLE, TEXT, DONE), 1, "finish_reason"),
        (200, (ROLE, TEXT, ERROR, DONE), 1, "the worker is gone"),
        (200, (ROLE, TEXT, FINISH), 1, "[DONE]"),
        (200, (ROLE,), 0, "[DONE]"),
        (503, (b"full",), 0, "503"),
    ],
)
def test_a_stream_is_read_to_its_end_and_its_error_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, status: int, parts: tuple[bytes, ...], n_events: int, word: str
) -> None:
    monkeypatch.setattr(Front, "status", status)
    monkeypatch.setattr(Front, "parts", parts)
    found, error = scene.read_stream("hi", 4)
    assert found == n_events
    assert word in error
    assert bool(error) is bool(word)
