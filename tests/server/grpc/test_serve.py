"""`helios serve --grpc-port` as a process of its own with the default model: its lines, a call, the end, a port in use."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from tests.server.grpc.conftest import Client, finish_of, request_of, text_of
from tests.server.grpc.validator import FinishInfo, check_stream

ROOT = Path(__file__).parents[3]


def serve(*words: str) -> subprocess.Popen[str]:
    command: Sequence[str] = [sys.executable, "helios.py", "serve", "--port", "0", "--cache-gb", "0.1", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("default_core")
def test_a_process_serves_both_and_finishes_an_open_stream_when_it_is_told_to_end() -> None:
    """GRPC-1, HTTP-4: one line for each address; SIGTERM drains both."""
    with serve("--grpc-port", "0", "--context", "512") as process:
        assert process.stdout is not None
        lines = process.stdout.readline() + process.stdout.readline()
        try:
            assert re.search(r"at http://127.0.0.1:\d+\n", lines)
            found = re.search(r"vllm.Inference at grpc://(\S+)\n", lines)
            assert found, lines
            with grpc.insecure_channel(found[1]) as channel:
                client = Client(channel, None, found[1])
                assert text_of(client.stream("The capital of France is", temperature=0.0)).startswith(" Paris")
                request = request_of("Count:", stopping={"max_new_tokens": 60, "ignore_eos": True})
                call = client.open(request)
                responses = [next(call)]
                process.send_signal(signal.SIGTERM)
                responses += call
            check_stream(request, responses)
            assert finish_of(responses).finish_reason == FinishInfo.LENGTH
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_a_port_in_use_ends_the_start_in_one_line() -> None:
    """Before a model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serve("--grpc-port", str(port), "no-such-model.core") as process:
            _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"port {port}" in errors
    assert "--grpc-port" in errors
    assert len(errors.strip().splitlines()) == 1
