"""`helios serve` as a process of its own with the default model: answers, signals, mistakes, and what crowds leave behind."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from helios.settings import Settings

ROOT = Path(__file__).parents[2]
REFERENCE = Path(__file__).parents[1] / "reference" / "smollm2-llamacpp.json"
START_S = 120
PATIENCE_S = 60  # on a busy machine
N_FRONTEND_WORKERS = Settings().frontend_workers
IDLE = ("requests_admitted", "requests_waiting", "requests_running", "cache_pages_held", "rounds_in_flight")


class ServeProcess:
    """A running `helios serve`; `url` once it has printed its line."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "helios.py", "serve", "--port", "0", *words]
        self.child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        watchdog = threading.Timer(START_S, self.child.kill)
        watchdog.start()
        self.line = self.child.stdout.readline()
        watchdog.cancel()
        found = re.search(r"http://\S+", self.line)
        assert found, self.child.communicate()
        self.url = found[0]
        self.port = int(self.url.rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def statistics(self) -> dict[str, float]:
        lines = httpx.get(self.url + "/metrics", timeout=PATIENCE_S).text.splitlines()
        pairs = [line.split() for line in lines if line.startswith("helios_") and "{" not in line]
        return {name.removeprefix("helios_"): float(value) for name, value in pairs}

    def is_idle(self) -> bool:
        statistics = self.statistics()
        return not any(statistics[name] for name in IDLE)

    def refuses_connections(self) -> bool:
        try:
            self.connect().close()
        except ConnectionRefusedError:
            return True
        return False

    def n_descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.child.pid}/fd").iterdir()))

    def n_threads(self) -> int:
        return len(list(Path(f"/proc/{self.child.pid}/task").iterdir()))

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1]) * 4096

    def end(self) -> tuple[int, str]:
        """SIGTERM; the exit status and what was said on stderr."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        _, said = self.child.communicate(timeout=PATIENCE_S)
        return self.child.returncode, said


@pytest.fixture(scope="module")
def serving(default_core: Path) -> Iterator[ServeProcess]:
    # A cache for 1,856 tokens: crowds press on it, and it is full of old prefixes before memory is compared.
    process = ServeProcess(str(default_core), "--context", "1024", "--cache-gb", "0.04")
    yield process
    status, said = process.end()
    assert status == 0, said
    assert "Traceback" not in said


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for the server to get there."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def chat_request(text: str, **fields: Any) -> bytes:
    body = json.dumps({"messages": [{"role": "user", "content": text}], **fields}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def test_it_says_where_it_is_and_answers_openais_client(serving: ServeProcess) -> None:
    assert serving.line.startswith("Helios serves smollm2")
    text = "What is the capital of France?"
    with openai.OpenAI(base_url=serving.url + "/v1", api_key="none", max_retries=0) as client:
        model = client.models.list().data[0].id
        messages: Any = [{"role": "user", "content": text}]
        ask = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 24}
        whole = client.chat.completions.create(**ask)
        chunks = list(client.chat.completions.create(**ask, stream=True))
    answer = whole.choices[0].message.content
    assert answer
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer
    assert whole.usage is not None
    case = next(case for case in json.loads(REFERENCE.read_text())["cases"] if text in case["text"])
    assert whole.usage.prompt_tokens == len(case["prompt_ids"])


def test_the_readmes_question_has_the_readmes_answer(default_core: Path) -> None:
    """CARD-4, issue 2: the curl example is run as it stands, only the port is another, as a new server's first question."""
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"^    (curl .*?)$\n\n    (\{.*?)\n\n", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    process = ServeProcess(str(default_core), "--context", "1024")
    command = found[1].replace("http://127.0.0.1:8000", process.url)
    answer = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout)
    process.end()
    shown = json.loads(found[2])
    for changing in ("id", "created"):
        assert type(shown.pop(changing)) is type(answer.pop(changing))
    assert answer == shown


def test_sampled_answers_can_be_had_again(serving: ServeProcess) -> None:
    """Alone or among others, streamed in a batch or not: the same seed, the same answer."""
    fields = {"messages": [{"role": "user", "content": "Tell me a story"}], "temperature": 1, "max_tokens": 24}
    three = httpx.post(
        serving.url + "/v1/chat/completions", json={**fields, "seed": 5, "n": 3}, timeout=PATIENCE_S
    ).json()
    answers = [choice["message"]["content"] for choice in three["choices"]]
    assert len(set(answers)) == 3
    for index, answer in enumerate(answers):
        alone = httpx.post(
            serving.url + "/v1/chat/completions", json={**fields, "seed": 5 + index}, timeout=PATIENCE_S
        ).json()
        assert alone["choices"][0]["message"]["content"] == answer


def test_a_stop_ends_generation_early(serving: ServeProcess) -> None:
    """STOP-3: the worker stops, so fewer tokens are made, and the usage counts those up to the stop."""
    fields = {"messages": [{"role": "user", "content": "Count from one to ten"}], "temperature": 0, "max_tokens": 40}
    free = httpx.post(serving.url + "/v1/chat/completions", json=fields, timeout=PATIENCE_S).json()
    text = free["choices"][0]["message"]["content"]
    stop = text[8:11]
    cut = httpx.post(serving.url + "/v1/chat/completions", json={**fields, "stop": stop}, timeout=PATIENCE_S).json()
    assert cut["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["usage"]["completion_tokens"] < free["usage"]["completion_tokens"]


def test_a_prompt_too_long_is_refused_with_both_counts(serving: ServeProcess) -> None:
    """Research item 45."""
    fields = {"messages": [{"role": "user", "content": "word " * 2000}]}
    response = httpx.post(serving.url + "/v1/chat/completions", json=fields, timeout=PATIENCE_S)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert "the limit is 1,023" in response.json()["error"]["message"]


def test_crowds_that_leave_at_any_time_leave_nothing(serving: ServeProcess) -> None:
    """Research item 30: pages, slots, permits, descriptors and threads are all as before, and memory is level."""
    leave_in_crowds(serving, 200, seed=1)  # whatever is made once is made, and the cache's memory was written to
    before, n_threads, resident_bytes = serving.statistics(), serving.n_threads(), serving.resident_bytes()
    n_descriptors = serving.n_descriptors()
    leave_in_crowds(serving, 100, seed=2)
    after = serving.statistics()
    assert after["slots_free"] == before["slots_free"]
    assert after["requests_cancelled_total"] > before["requests_cancelled_total"]
    assert serving.n_threads() < n_threads + N_FRONTEND_WORKERS  # each is made when all that are there have work
    # Pages and rows that nothing was written to before take their memory when something is; a row is as large as a page.
    n_unused = before["cache_pages_free"] + before["cache_rows_free"]
    page_nbytes = before["cache_bytes"] / before["cache_pages"]
    assert serving.resident_bytes() < resident_bytes + n_unused * page_nbytes + (8 << 20)
    wait_until(lambda: serving.n_descriptors() <= n_descriptors)  # the last connections are being closed


def leave_in_crowds(serving: ServeProcess, n_requests: int, seed: int) -> None:
    """Requests of random shape, up to 24 at once, whose clients go at any time of their life; one before it can have ended."""
    rng = random.Random(seed)
    crowd: list[socket.socket] = []
    for _ in range(n_requests):
        connection = serving.connect()
        fields = {"stream": rng.random() < 0.5, "max_tokens": rng.randint(1, 12), "n": rng.choice([1, 1, 1, 3])}
        if rng.random() < 0.3:
            fields |= {"stop": "the", "logprobs": True, "frequency_penalty": 0.5}
        request = chat_request("word " * rng.randint(1, 30), **fields)
        is_whole = rng.random() > 0.1
        connection.sendall(request if is_whole else request[: rng.randint(1, len(request) - 1)])
        if is_whole:
            crowd.append(connection)
        else:
            connection.close()
        if len(crowd) == 24 or rng.random() < 0.1:
            rng.shuffle(crowd)
            while len(crowd) > 4:
                leave(crowd.pop(), rng.random())
    for connection in crowd:
        connection.close()
    with serving.connect() as connection:
        connection.sendall(chat_request("word", stream=True, max_tokens=900, ignore_eos=True))
        connection.recv(1)
    wait_until(serving.is_idle)


def test_a_signal_lets_a_stream_finish_and_a_second_ends_it_there(default_core: Path) -> None:
    """HTTP-4, research item 47."""
    for is_forced in (False, True):
        process = ServeProcess(str(default_core), "--drain-timeout", "30")
        with process.connect() as connection:
            n_tokens = 2000 if is_forced else 60
            connection.sendall(chat_request("Tell a story", stream=True, ignore_eos=True, max_tokens=n_tokens))
            received = connection.recv(1 << 16)
            process.child.send_signal(signal.SIGTERM)
            if is_forced:
                wait_until(process.refuses_connections)  # two signals at once would be one
                process.child.send_signal(signal.SIGTERM)
            else:
                while piece := connection.recv(1 << 16):
                    received += piece
                assert b"[DONE]" in received
        status, said = process.child.communicate(timeout=PATIENCE_S)[1], process.child.returncode
        assert said == (1 if is_forced else 0), status
        assert "Traceback" not in status


def leave(connection: socket.socket, patience: float) -> None:
    """Go at once, or after the first bytes, or with the whole answer."""
    received = b""
    while patience > 0.4 and not received.endswith((b"}}}", b"0\r\n\r\n")):  # usage ends a whole answer
        received += connection.recv(1 << 16)
        patience = patience if patience > 0.7 else 0
    connection.close()


def failing(*words: str) -> str:
    """What a start that fails says: one line, at once."""
    command = [sys.executable, "helios.py", "serve", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("helios: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_port_in_use_is_found_before_a_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = failing("no-such-model", "--port", str(port))
    assert said == f"helios: port {port} on 127.0.0.1 is in use; choose another with --port\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("/nowhere/model.gguf",), "cannot be read: No such file"),
        (("tests",), "cannot be read: it is a directory"),
        (("pyproject.toml",), "is neither a core nor a GGUF checkpoint"),
        (("no\nsuch\x1bmodel",), r"no\nsuch\x1bmodel cannot be read"),
        (("--host", "no.such.host.invalid"), "--host"),
        (("--host", "203.0.113.7"), "cannot listen on"),
        (("--port", "70000"), "from 0 to 65,535"),
        (("--config", "/nowhere.toml"), "cannot be read"),
    ],
)
def test_a_wrong_start_is_one_line(words: tuple[str, ...], message: str) -> None:
    assert message in failing("--port", "0", *words)


def test_a_truncated_gguf_is_one_line(default_gguf: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(default_gguf.read_bytes()[:5000])
    failing("--port", "0", str(damaged))


def test_a_context_that_the_core_was_not_prepared_for_is_one_line(default_core: Path) -> None:
    assert "was prepared for" in failing("--port", "0", "--context", "1000000", str(default_core))
