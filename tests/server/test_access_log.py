"""The one line that the log has of each request, over real HTTP."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from helios.errors import DeviceError
from tests.server.conftest import RunningServer, raw_chat, wait_until
from tests.server.test_cancellation import read_until


class Lines:
    """The fields of each line so far."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="helios.access")
        self._caplog = caplog

    def __len__(self) -> int:
        return len(self._records())

    def next(self, index: int = 0) -> dict[str, Any]:
        """The index-th line, once it is there: it is written when its response has been taken."""
        wait_until(lambda: len(self) > index)
        return dict(self._records()[index].fields)  # type: ignore[attr-defined]

    def _records(self) -> list[logging.LogRecord]:
        return [record for record in self._caplog.records if record.name == "helios.access"]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return Lines(caplog)


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    times = {name: line.pop(name) for name in ("total_s", "first_token_s") if name in line}
    assert all(0 <= time < 60 for time in times.values())
    assert times.get("first_token_s", 0) <= times["total_s"]
    return line


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_chat_is_one_line(server: RunningServer, lines: Lines, is_stream: bool) -> None:
    """Issue 6.7: id, method, path, status, tokens, times, and how it ended."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": is_stream}).encode()
    server.exchange("POST", "/v1/chat/completions?x=secret", body, {"X-Request-Id": "mine-1"})
    line = lines.next()
    assert "first_token_s" in line
    n_prompt = len(server.generation().request.prompt_tokens)
    n_output = len(server.engine.tokenizer.encode("Hello world", allow_special=False)) + 1  # and the end
    assert without_times(line) == {
        "request_id": "mine-1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "prompt_tokens": n_prompt,
        "reused_tokens": 1,
        "output_tokens": n_output,
        "finish": "stop",
    }
    assert len(lines) == 1


def test_choices_are_told_together(server: RunningServer, lines: Lines) -> None:
    fields = {"prompt": ["one", "two two"], "n": 2, "max_tokens": 3}
    server.post("/v1/completions", fields)
    line = lines.next()
    assert line["finish"] == "length,length,length,length"
    assert line["output_tokens"] == 12
    requests = [generation.request for generation in server.engine.generations]
    assert line["prompt_tokens"] == len(requests[0].prompt_tokens) + len(requests[2].prompt_tokens)


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/health", 200, None),
        ("GET", "/nowhere", 404, "bad_http"),
        ("PUT", "/health", 405, "bad_http"),
        ("POST", "/v1/chat/completions", 400, "invalid_value"),
        ("GET", "/v1/models/nobody", 404, "model_not_found"),
    ],
)
def test_what_generates_nothing_is_a_short_line(
    server: RunningServer, lines: Lines, method: str, path: str, status: int, error: str | None
) -> None:
    _, headers, _ = server.exchange(method, path)
    expected = {"request_id": headers["X-Request-Id"], "method": method, "path": path, "status": status}
    assert without_times(lines.next()) == expected | ({"error": error} if error else {})


def test_a_refusal_at_the_head_has_the_id_of_its_response(server: RunningServer, lines: Lines) -> None:
    server.engine.capacity = 0
    _, headers, _ = server.exchange("POST", "/v1/chat/completions", b"{}")
    line = lines.next()
    assert (line["status"], line["error"], line["request_id"]) == (429, "queue_full", headers["X-Request-Id"])


def test_what_cannot_be_read_is_a_line_too(server: RunningServer, lines: Lines) -> None:
    connection = server.connect()
    connection.sendall(b"non\x00sense\r\n\r\n")
    while connection.recv(1000):
        pass
    line = lines.next()
    assert (line["method"], line["path"], line["status"], line["error"]) == ("-", "-", 400, "bad_http")


@pytest.mark.parametrize(("is_stream", "status"), [(True, 200), (False, 499)])
def test_a_client_that_leaves_is_told_with_what_it_got(
    server: RunningServer, lines: Lines, is_stream: bool, status: int
) -> None:
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(raw_chat(stream=is_stream))
    generation = server.generation()
    for token_id in server.engine.tokenizer.encode("abc", allow_special=False):
        generation.give(token_id)
    wait_until(lambda: generation.n_taken == 3)
    if is_stream:
        read_until(connection, b"c")
    connection.close()
    line = lines.next()
    assert (line["status"], line["output_tokens"], line["finish"]) == (status, 3, "unfinished")


def test_a_fault_inside_a_stream_is_in_the_line(server: RunningServer, lines: Lines) -> None:
    """HTTP-3: the status was sent before; the error's code is what tells."""
    server.engine.answer = None
    connection = server.connect()
    connection.sendall(raw_chat(stream=True))
    server.generation().give(server.engine.tokenizer.encode("a", allow_special=False)[0])
    read_until(connection, b"role")
    server.generation().fail(DeviceError("the device is gone"))
    line = lines.next()
    assert (line["status"], line["error"], line["finish"]) == (200, "device_error", "unfinished")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a%0d%0aINFO%20forged", "/a%0D%0AINFO%20forged"),
        ("/%1b%5b2J", "/%1B%5B2J"),
        ("/" + "x" * 500, "/" + "x" * 199),
        ("/%ff", "/%EF%BF%BD"),
    ],
)
def test_no_path_can_write_a_line_of_its_own(server: RunningServer, lines: Lines, target: str, path: str) -> None:
    server.exchange("GET", target)
    assert lines.next()["path"] == path


def test_an_id_that_is_no_word_is_replaced(server: RunningServer, lines: Lines) -> None:
    for index, given in enumerate(("two words", "x" * 129, "")):
        _, headers, _ = server.exchange("GET", "/health", headers={"X-Request-Id": given})
        assert headers["X-Request-Id"].startswith("req-")
        assert lines.next(index)["request_id"] == headers["X-Request-Id"]


def test_prompts_are_logged_only_where_that_is_asked_for(
    start_server: Callable[..., RunningServer], lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 6.7."""
    secret = [{"role": "user", "content": "my secret"}]
    start_server().chat(messages=secret)
    start_server().chat(messages=secret, temperature="my secret")
    lines.next(1)
    assert "secret" not in str([record.__dict__ for record in caplog.records])
    start_server(log_prompts=True).chat(messages=secret)
    assert lines.next(2)["prompts"] == ["<|im_start|>user\nmy secret<|im_end|>\n<|im_start|>assistant\n"]
