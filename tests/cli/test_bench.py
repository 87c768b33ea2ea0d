"""`helios bench` and its client against a scripted server on the loopback."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helios.cli import figures
from helios.cli.bench import Server, add_arguments
from helios.cli.main import main
from helios.cli.measure import SPEED_FIGURES, HttpMeasure
from helios.cli.streams import Endpoint
from helios.cli.timeline import Timeline
from helios.cli.workload import TASK, WORDS, Workload
from helios.errors import RemoteError, SettingError, UnmeasurableError
from tests.ignition.tiny_model import TinyModel, write_tiny

TEMPLATE_TOKENS = 13


class ScriptedServer(ThreadingHTTPServer):
    """Answers every chat with as many tokens as it may, one token a word of the prompt."""

    daemon_threads = True
    bodies: list[bytes]
    extra_tokens = 0
    template_tokens = TEMPLATE_TOKENS
    model: dict[str, object]


class Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def log_message(self, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer(json.dumps({"data": [self.server.model]}).encode())

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(content)
        body = json.loads(content)
        n_words = sum(len(message["content"].split()) for message in body["messages"])
        events: list[object] = [{"choices": [{"delta": {"content": " x"}}]} for _ in range(body["max_tokens"])]
        usage = {"prompt_tokens": n_words + self.server.template_tokens, "completion_tokens": body["max_tokens"]}
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
    scripted.model = {"id": "scripted"}
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
    assert set(values) == set(SPEED_FIGURES)
    assert {len(rounds) for rounds in values.values()} == {2}
    output = capsys.readouterr().out
    assert "scripted" in output
    assert "left out" not in output
    assert "peer" not in output


def test_what_a_server_has_no_room_for_is_left_out_and_why_is_said(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four slots and a context of 600: the widest decodes and the longest prompts are no failure of all the others."""

    def four_at_once(timelines: Sequence[Timeline]) -> float:
        if len(timelines) > 4:
            raise UnmeasurableError("they did not overlap")
        return 100.0 * len(timelines)

    monkeypatch.setattr(figures, "decode_tokens_per_s", four_at_once)
    server.model["max_model_len"] = 600
    target = tmp_path / "figures.json"
    url = f"http://127.0.0.1:{server.server_port}"
    assert main(["bench", "--url", url, "--rounds", "2", "--tokens", "64", "--json", str(target)]) == 0
    values = json.loads(target.read_text())
    assert set(SPEED_FIGURES) - set(values) == {"decode_8", "decode_16", "prefix_ttft"}
    output = capsys.readouterr().out
    assert "left out: decode, 8 at once: they did not overlap" in output
    assert "prefix sent before: prompt and answer take 1,025 tokens, the server's context has 600" in output


def test_a_template_longer_than_the_usual_prompt_does_not_stop_decode(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some models' templates take more than 32 tokens by themselves."""
    monkeypatch.setattr(figures, "decode_tokens_per_s", lambda timelines: float(timelines[0].n_prompt_tokens))
    server.template_tokens = 40
    assert HttpMeasure(endpoint_of(server)).take("decode_1", 16) == 40 + len(TASK.split()) + 1


def test_a_server_is_started_with_no_more_room_than_its_model_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    gguf = write_tiny(tmp_path / "Tiny-1M.Q4_0.gguf", TinyModel())
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    started = Server(parser.parse_args([str(gguf), "--threads", "1", "--kv", "q8"]))
    words = " ".join(started.command(8, 2048)[2:])
    assert words.startswith(f"serve {gguf} ")
    for flag in ("--context 512", "--max-active 8", "--threads 1", "--kv q8", "--host 127.0.0.1"):
        assert flag in words
    assert "--context 64" in " ".join(started.command(100_000, 64))
    assert f"--max-active {started.concurrency}" in " ".join(started.command(100_000, 64))


def test_bench_says_in_one_line_that_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--url", "http://127.0.0.1:9"]) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:9 does not answer" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["TLS_CERT", "API_KEY_FILE"])
def test_an_edge_that_would_keep_the_measurement_out_is_refused_at_once(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HELIOS_{name}", "/some/file")
    assert main(["bench"]) == 2
    assert f"setting {name.lower()} is given" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["model.gguf", "--url", "http://h:1"],
        ["--threads", "2", "--url", "http://h:1"],
        ["--url", "ftp://h"],
        ["", "--url", "http://h:1"],
        ["--rounds", "0"],
        ["--threads", "0"],
        ["--json", "no/such/directory/file.json"],
    ],
)
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
