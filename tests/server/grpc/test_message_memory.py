"""Messages before admission, attacked: callers that announce as much as they may, send as fast as they are let, and never stop."""

from __future__ import annotations

import re
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded, StreamReset

from tests.server.conftest import DEADLINE_S

N_CONNECTIONS, N_CALLS = 100, 4
MESSAGE_NBYTES = 16 << 20
BODY_MEMORY = 64 << 20
DURATION_S = 4.0
_FRAME = bytes(16 << 10)
_HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/vllm.Inference/Generate"),
    (":authority", "attacked"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


class Attacker:
    """One connection whose calls each announce the largest message that is taken."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self._peer = H2Connection(H2Configuration(client_side=True))
        self._peer.initiate_connection()
        self._left: dict[int, int] = {}
        for _ in range(N_CALLS):
            self._call()
        self._unsent = bytearray(self._peer.data_to_send())
        self.socket.setblocking(False)

    def _call(self) -> None:
        stream = self._peer.get_next_available_stream_id()
        self._peer.send_headers(stream, _HEADERS)
        self._peer.send_data(stream, struct.pack(">BI", 0, MESSAGE_NBYTES))
        self._left[stream] = MESSAGE_NBYTES - 1  # the last byte never comes

    def go_on(self) -> int:
        """Send what the other side lets, and call again where it has ended a call; how much was sent."""
        with suppress(BlockingIOError):
            for event in self._peer.receive_data(self.socket.recv(1 << 16)):
                if isinstance(event, StreamEnded | StreamReset) and self._left.pop(event.stream_id, None):
                    self._call()
        if not self._unsent:
            for stream, n_left in self._left.items():
                n_bytes = min(self._peer.local_flow_control_window(stream), n_left, len(_FRAME))
                if n_bytes > 0:
                    self._peer.send_data(stream, _FRAME[:n_bytes])
                    self._left[stream] -= n_bytes
            self._unsent += self._peer.data_to_send()
        try:
            n_sent = self.socket.send(self._unsent)
        except BlockingIOError:
            return 0
        del self._unsent[:n_sent]
        return n_sent


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    words = ["port=0", "grpc_port=0", f"grpc_max_message_mb={MESSAGE_NBYTES >> 20}", f"body_memory={BODY_MEMORY}"]
    command = [sys.executable, "-m", "scripts.loading.scripted_server", "1", "1", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"grpc://127\.0\.0\.1:(\d+)", line) for line in process.stdout)))
        yield process, int(found[1])
        process.kill()


def resident_bytes(process: subprocess.Popen[str], name: str) -> int:
    (kib,) = re.findall(rf"{name}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(kib) << 10


def test_a_hundred_connections_with_large_messages_take_no_more_memory_than_bodies_may(
    attacked: tuple[subprocess.Popen[str], int],
) -> None:
    """GRPC-4: 6.4 GB are announced; what is held before admission is within --body-memory, and a window of each call that waits."""
    process, port = attacked
    before = resident_bytes(process, "VmRSS")
    n_sent, n_enough, began_s = 0, N_CONNECTIONS * N_CALLS * len(_FRAME), time.monotonic()
    with ExitStack() as owned, selectors.DefaultSelector() as selector:
        for attacker in [Attacker(port) for _ in range(N_CONNECTIONS)]:
            owned.enter_context(attacker.socket)
            selector.register(attacker.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, attacker)
        while (attack_s := time.monotonic() - began_s) < DURATION_S or (n_sent <= n_enough and attack_s < DEADLINE_S):
            for key, _ in selector.select(0.1):
                n_sent += key.data.go_on()
        n_held = resident_bytes(process, "VmHWM") - before
    assert n_sent > n_enough, "beyond the windows of all, the one whose turn it is sends"
    assert n_held < BODY_MEMORY + N_CONNECTIONS * N_CALLS * (64 << 10)
