"""A real model behind real HTTP, in this process: the engine of `helios serve` on the CPU device, on a free loopback port."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helios.engine import Engine
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.conftest import events_of, run_server

DEADLINE_S = 300.0  # for answers of a real model on a busy machine


@dataclass
class ServedModel:
    """A running server. Every method makes one request and asserts its status."""

    engine: Engine
    port: int

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    def exchange(self, path: str, fields: dict[str, Any]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request("POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, path: str, fields: dict[str, Any], status: int = 200) -> Any:
        found, body = self.exchange(path, fields)
        assert found == status, body
        return json.loads(body)

    def stream(self, path: str, fields: dict[str, Any]) -> list[Any]:
        """The chunks of a stream that ended well."""
        status, body = self.exchange(path, {**fields, "stream": True})
        assert status == 200, body
        *chunks, done = events_of(body)
        assert done == "[DONE]", done
        return chunks

    def chat(self, question: str, **fields: Any) -> Any:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": question}], **fields})

    def complete(self, prompt: Any, **fields: Any) -> Any:
        return self.post("/v1/completions", {"prompt": prompt, **fields})


@contextmanager
def served_model(core: Path, **settings: Any) -> Iterator[ServedModel]:
    """Serve a core until the context ends. Two threads and a context of 2,048 tokens, unless told otherwise."""
    chosen = Settings(**{"device": "cpu", "threads": 2, "context": 2048, "port": 0, "drain_timeout": 1.0, **settings})
    with Engine.start(core, chosen) as engine:
        server = run_server(engine, chosen)  # type: ignore[arg-type]
        try:
            yield ServedModel(engine, server.port)
        finally:
            server.stop()
