"""The two ZeroMQ sockets of KV events: one that publishes, one that answers requests for a replay.

It knows endpoints and frames, no events. The addresses are taken before a model is loaded; what is published is kept for replay,
the newest `BUFFER_BATCHES` of it, and a subscriber that does not read is nobody else's concern.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

import zmq

from helios.errors import SettingError
from helios.owner import Owner

BUFFER_BATCHES = 10_000
HIGH_WATER_BATCHES = 100_000  # that may wait for one subscriber; then it misses some, and asks for a replay
_END = (1 << 64) - 1
_REPLAYS_AT_ONCE = 2  # unread ones of one asker


@dataclass(frozen=True, slots=True)
class Source:
    """Where events can be had; `replay_endpoint` is empty without one."""

    endpoint: str
    replay_endpoint: str
    topic: str
    n_buffered: int = BUFFER_BATCHES
    high_water: int = HIGH_WATER_BATCHES


class KvEventSockets(Owner):
    """Bound sockets. After `__init__` they belong to one thread, but for `wake`, which any thread may call."""

    def __init__(self, endpoint: str, replay_endpoint: str | None, topic: str) -> None:
        self._context = zmq.Context()
        self._topic = topic.encode()
        self._n_published = 0
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=BUFFER_BATCHES)
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poller = zmq.Poller()
        self._poller.register(self._wake_reader, zmq.POLLIN)
        try:
            self._publisher = self._bound(zmq.PUB, endpoint, HIGH_WATER_BATCHES)
            self._replay: zmq.Socket[bytes] | None = None
            if replay_endpoint is not None:
                self._replay = self._bound(zmq.ROUTER, replay_endpoint, _REPLAYS_AT_ONCE * (BUFFER_BATCHES + 1))
                self._poller.register(self._replay, zmq.POLLIN)
        except SettingError:
            self.close()
            raise
        self.source = Source(_endpoint(self._publisher), "" if self._replay is None else _endpoint(self._replay), topic)

    def _bound(self, kind: int, endpoint: str, high_water: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.sndhwm = high_water
        socket.ipv6 = "[" in endpoint
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise SettingError(f"cannot publish KV events at {endpoint}: {error.strerror}") from error
        return socket

    def publish(self, payload: bytes) -> None:
        """One batch to all subscribers, and to the buffer. Never waits."""
        number = self._n_published
        self._n_published += 1
        self._buffer.append((number, payload))
        self._publisher.send_multipart([self._topic, number.to_bytes(8, "big"), payload])

    def wake(self) -> None:
        """End the other thread's `wait`. Never waits."""
        with suppress(BlockingIOError):  # full of wakes that are still to come
            os.write(self._wake_writer, b"\0")

    def wait(self) -> None:
        """Answer requests for replays until somebody calls `wake`."""
        while True:
            ready = dict(self._poller.poll())
            if self._replay is not None and self._replay in ready:
                self._answer_replay(self._replay)
            if self._wake_reader in ready:
                os.read(self._wake_reader, 4096)
                return

    def _answer_replay(self, replay: zmq.Socket[bytes]) -> None:
        """What is buffered from the asked number on; a request of another form gets no answer."""
        asker, *frames = replay.recv_multipart()
        if len(frames) != 2 or frames[0] or len(frames[1]) != 8:
            return
        start = int.from_bytes(frames[1], "big")
        for number, payload in self._buffer:
            if number >= start:
                replay.send_multipart([asker, b"", self._topic, number.to_bytes(8, "big"), payload])
        replay.send_multipart([asker, b"", b"", _END.to_bytes(8, "big"), b""])

    def close(self) -> None:
        self._context.destroy(linger=0)
        os.close(self._wake_reader)
        os.close(self._wake_writer)


def _endpoint(socket: zmq.Socket[bytes]) -> str:
    """Where it is bound, with the port that was taken."""
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
