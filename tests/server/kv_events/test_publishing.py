"""The sockets, read by stock ZeroMQ clients: frames, numbers, replays, and the thread behind them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
import zmq

from helios.cache.journal import Journal
from helios.errors import SettingError
from helios.server.kv_events import sockets as sockets_module
from helios.server.kv_events.open import open_kv_events
from helios.server.kv_events.publisher import KvEventPublisher
from helios.server.kv_events.sockets import KvEventSockets
from helios.settings import Settings
from tests.cache.small_books import KEY, SIZE, make_journaled, run, unique

DEADLINE_MS = 20_000
LOOPBACK = "tcp://127.0.0.1:*"


class Scene:
    """A journal that is published, and clients of it."""

    def __init__(self) -> None:
        self.journal = Journal(KEY)
        self.books = make_journaled(self.journal)
        self.sockets = KvEventSockets(LOOPBACK, LOOPBACK, "kv@here")
        self.publisher = KvEventPublisher(self.journal, self.sockets, clock=lambda: 7.0)
        self.context = zmq.Context()
        self.clients: list[Any] = []
        self.last: list[bytes] = []  # what a subscriber heard last
        self.publisher.start()

    def client(self, kind: int, endpoint: str) -> Any:
        client = self.context.socket(kind)
        self.clients.append(client)
        client.rcvtimeo = DEADLINE_MS
        client.rcvhwm = 0
        if kind == zmq.SUB:
            client.subscribe(b"")
        client.connect(endpoint)
        return client

    def subscriber(self) -> Any:
        """One that hears: what it has missed while it connected is told again until it does."""
        client = self.client(zmq.SUB, self.sockets.source.endpoint)
        for attempt in range(1000):
            told = unique(10_000 + 100 * attempt, SIZE)
            run(self.books, told)
            if client.poll(20):
                break
        while not self.last or msgpack.unpackb(self.last[2])[1][-1]["token_ids"] != list(told):
            self.last = client.recv_multipart()
        return client

    def replay(self, start: int) -> list[list[bytes]]:
        asker = self.client(zmq.DEALER, self.sockets.source.replay_endpoint)
        asker.send_multipart([b"", start.to_bytes(8, "big")])
        replies = []
        while True:
            reply = asker.recv_multipart()
            if reply[2] == b"\xff" * 8:
                assert reply == [b"", b"", b"\xff" * 8, b""]
                return replies
            replies.append(reply)

    def close(self) -> None:
        self.publisher.close()
        self.close_rest()

    def close_rest(self) -> None:
        for client in self.clients:
            client.close(linger=0)
        self.sockets.close()
        self.context.destroy(linger=0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def test_a_message_is_topic_number_and_batch(scene: Scene) -> None:
    """Three frames; numbers rise by one."""
    subscriber = scene.subscriber()
    number = int.from_bytes(scene.last[1], "big")
    run(scene.books, unique(0, SIZE))
    topic, sequence, payload = subscriber.recv_multipart()
    assert topic == b"kv@here"
    assert sequence == (number + 1).to_bytes(8, "big")
    time_s, events, rank = msgpack.unpackb(payload)
    assert (time_s, rank) == (7.0, 0)
    assert events[-1]["token_ids"] == list(unique(0, SIZE))


def test_who_comes_late_gets_everything_again(scene: Scene) -> None:
    """From the number on that was asked for, each as it was sent, then the end."""
    for i in range(5):
        run(scene.books, unique(100 * i, SIZE))
        while len(scene.replay(0)) <= i:
            pass
    replies = scene.replay(2)
    assert [int.from_bytes(reply[2], "big") for reply in replies] == [2, 3, 4]
    assert all(reply[:2] == [b"", b"kv@here"] for reply in replies)
    events = [msgpack.unpackb(reply[3])[1] for reply in scene.replay(0)]
    assert [event["token_ids"] for batch in events for event in batch] == [
        list(unique(100 * i, SIZE)) for i in range(5)
    ]
    assert scene.replay(99) == []


def test_a_request_of_another_form_is_passed_over(scene: Scene) -> None:
    asker = scene.client(zmq.DEALER, scene.sockets.source.replay_endpoint)
    for frames in ([b""], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b"more"]):
        asker.send_multipart(frames)
    asker.send_multipart([b"", bytes(8)])
    assert asker.recv_multipart()[2] == b"\xff" * 8
    assert not asker.poll(50)


def test_a_replay_may_be_longer_than_a_queue_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ drops silently what is over its high-water mark, a thousand unless told otherwise; and the buffer has an end."""
    monkeypatch.setattr(sockets_module, "BUFFER_BATCHES", 3000)
    scene = Scene()
    try:
        for i in range(3500):
            scene.sockets._buffer.append((i, bytes(4096)))  # the thread sleeps
        numbers = [int.from_bytes(reply[2], "big") for reply in scene.replay(0)]
        assert numbers == list(range(500, 3500))
    finally:
        scene.close()


def test_what_is_noted_before_the_end_is_sent() -> None:
    scene = Scene()
    run(scene.books, unique(0, SIZE))
    scene.publisher.close()
    assert scene.sockets._n_published == 1
    run(scene.books, unique(100, SIZE))  # nobody listens any more, and nothing breaks
    scene.close_rest()


def test_an_endpoint_that_is_taken_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=str(port)):
            open_kv_events(Settings(kv_events=f"tcp://127.0.0.1:{port}"))


def test_without_the_packages_one_sentence_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.server.kv_events.open.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pyzmq and msgspec.*pip install pyzmq msgspec"):
        open_kv_events(Settings(kv_events=LOOPBACK))
    assert open_kv_events(Settings()) is None


def test_a_replay_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="--kv-events"):
        open_kv_events(Settings(kv_events_replay=LOOPBACK))


@pytest.mark.parametrize("wrong", ["5557", "tcp://127.0.0.1", "udp://1.2.3.4:5", "tcp://host:port"])
def test_an_endpoint_has_a_form(wrong: str) -> None:
    with pytest.raises(SettingError, match="tcp://ADDRESS:PORT"):
        Settings.load({"kv_events": wrong})
