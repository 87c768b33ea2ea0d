"""`helios bench` and its client against a scripted server on the loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helios.cli import figures
from helios.cli.main import main
from helios.cli.streams import Endpoint
from helios.cli.workload import TASK, WORDS, Workload
from helios.errors import RemoteError, SettingError

TEMPLATE_TOKENS = 13


class ScriptedServer(ThreadingHTTPServer):
    """Answers every chat with as many tokens as it may, one token a word of the prompt."""

    daemon_threads = True
    bodies: list[bytes]
    extra_tokens = 0


class Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def log_message(self, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer(json.dumps({"data": [{"id": "scripted"}]}).encode())

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(content)
        body = json.loads(content)
        n_words = sum(len(message["content"].split()) for message in body["messages"])
        events: list[object] = [{"choices": [{"delta": {"content": " x"}}]} for _ in range(body["max_tokens"])]
        usage = {"prompt_tokens": n_words + TEMPLATE_TOKENS, "completion_tokens": body["max_tokens"]}
        if len(self.server.bodies) > 1:
            usage["prompt_tokens"] += self.server.extra_tokens
        events.append({"choices": [], "usage": usage})
        self._answer(b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in events) + b"data: [DONE]\n\n")

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        for start in range(0, len(content), 200):  # several sends, so that tokens have different times
            self.wfile.write(content[start : start + 200])


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(("127.0.0.1", 0), Handler)
    scripted.bodies = []
    thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield scripted
    scripted.shutdown()
    thread.join()
    scripted.server_close()


def endpoint_of(server: ScriptedServer) -> Endpoint:
    return Endpoint("127.0.0.1", server.server_port)


def test_prompts_have_exactly_the_tokens_asked_for_and_differ(server: ScriptedServer) -> None:
    workload = Workload(endpoint_of(server), seed=1)
    assert workload.overhead_tokens == TEMPLATE_TOKENS + len(TASK.split())
    timelines = workload.run(3, 64, 5)
    assert [timeline.n_prompt_tokens for timeline in timelines] == [64, 64, 64]
    assert len(set(server.bodies)) == len(server.bodies)


def test_a_vocabulary_that_splits_the_words_is_noticed(server: ScriptedServer) -> None:
    workload = Workload(endpoint_of(server), seed=1)
    server.extra_tokens = 2
    with pytest.raises(RemoteError, match="meant to have 64 tokens had 66"):
        workload.run(1, 64, 5)


def test_a_template_longer_than_the_prompt_is_one_clear_line(server: ScriptedServer) -> None:
    with pytest.raises(RemoteError, match="too short"):
        Workload(endpoint_of(server), seed=1).run(1, TEMPLATE_TOKENS, 5)


def test_bench_prints_and_writes_every_figure_of_a_running_server(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The scripted server answers at once, so its answers need not overlap; test_figures.py has the arithmetic.
    monkeypatch.setattr(figures, "decode_tokens_per_s", lambda timelines: 100.0 * len(timelines))
    target = tmp_path / "figures.json"
    url = f"http://127.0.0.1:{server.server_port}"
    assert main(["bench", "--url", url, "--rounds", "2", "--tokens", "64", "--json", str(target)]) == 0
    values = json.loads(target.read_text())
    assert set(values) == {"decode_1", "decode_4", "decode_8", "decode_16", "prefill_128", "prefill_512", "ttft"}
    assert {len(rounds) for rounds in values.values()} == {2}
    assert "scripted" in capsys.readouterr().out


def test_bench_says_in_one_line_that_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--url", "http://127.0.0.1:9"]) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:9 does not answer" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [["model.gguf", "--url", "http://h:1"], ["--url", "ftp://h"], ["--rounds", "0"]])
def test_contradicting_flags_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert capsys.readouterr().err.startswith("helios: ")


@pytest.mark.parametrize("url", ["ftp://host", "http://", "https://", "http://host:port", "http://host:99999"])
def test_urls_that_cannot_be_measured_are_refused(url: str) -> None:
    with pytest.raises(SettingError):
        Endpoint.from_url(url)


def test_words_are_distinct_and_plain() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)
