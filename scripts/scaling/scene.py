"""A front with its workers behind it, as a client sees them.

It knows requests and events, no checks.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from scripts.scaling.worker import Worker


@dataclass
class Scene:
    """A front, its workers, and the model's name."""

    front: str
    workers: list[Worker]
    model: str

    def body(self, text: str, n_tokens: int, **fields: object) -> dict[str, object]:
        messages = [{"role": "user", "content": text}]
        return {"model": self.model, "messages": messages, "max_tokens": n_tokens, "temperature": 0, **fields}

    def chat(self, text: str, n_tokens: int = 8) -> httpx.Response:
        return httpx.post(f"{self.front}/v1/chat/completions", json=self.body(text, n_tokens), timeout=120)

    @contextlib.contextmanager
    def stream(self, text: str, n_tokens: int) -> Iterator[Iterator[str]]:
        body = self.body(text, n_tokens, stream=True)
        with httpx.stream("POST", f"{self.front}/v1/chat/completions", json=body, timeout=120) as response:
            if response.status_code != 200:
                raise httpx.HTTPError(f"{response.status_code} {response.read()[:300]!r}")
            yield (line.removeprefix("data:").strip() for line in response.iter_lines() if line.startswith("data:"))

    def read_stream(self, text: str, n_tokens: int) -> tuple[int, str]:
        """Events with text, and what went wrong, if anything: an answer that has begun has a finish and then [DONE]."""
        n_events, is_finished = 0, False
        try:
            with self.stream(text, n_tokens) as events:
                for event in events:
                    if event == "[DONE]":
                        return n_events, "" if is_finished else "the stream ended without a finish_reason"
                    data = json.loads(event)
                    if data.get("error"):
                        return n_events, repr(data["error"])
                    choices = data.get("choices") or [{}]
                    n_events += bool((choices[0].get("delta") or {}).get("content"))
                    is_finished = is_finished or choices[0].get("finish_reason") is not None
        except httpx.HTTPError as error:
            return n_events, repr(error)
        return n_events, "the stream ended without [DONE]"

    def finished(self) -> list[float]:
        return [worker.number("requests_finished_total") for worker in self.workers]
