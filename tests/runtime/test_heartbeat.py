"""When a worker counts as stuck: by looks without a beat, never at rest."""

from __future__ import annotations

import threading

from helios.runtime.heartbeat import _N_LOOKS, Heartbeat, Watch


def watch_of(heartbeat: Heartbeat) -> Watch:
    return Watch(heartbeat, 60.0, lambda: None)


def test_a_worker_without_a_beat_is_stuck_after_so_many_looks() -> None:
    """HTTP-3."""
    heartbeat = Heartbeat()
    watch = watch_of(heartbeat)
    heartbeat.beat()
    assert [watch.look() for _ in range(_N_LOOKS + 1)] == [False] * _N_LOOKS + [True]


def test_every_beat_begins_the_count_again() -> None:
    heartbeat = Heartbeat()
    watch = watch_of(heartbeat)
    for _ in range(3):
        heartbeat.beat()
        assert not any(watch.look() for _ in range(_N_LOOKS))


def test_a_worker_at_rest_owes_no_beat() -> None:
    heartbeat = Heartbeat()
    watch = watch_of(heartbeat)
    assert not any(watch.look() for _ in range(3 * _N_LOOKS))
    heartbeat.beat()
    heartbeat.rest()
    assert not any(watch.look() for _ in range(3 * _N_LOOKS))


def test_the_watch_calls_once_and_not_after_it_was_stopped() -> None:
    calls: list[int] = []
    is_called = threading.Event()

    def stalled() -> None:
        calls.append(1)
        is_called.set()

    heartbeat = Heartbeat()
    heartbeat.beat()
    watch = Watch(heartbeat, 0.02, stalled)
    watch.start()
    assert is_called.wait(30)
    stopped = Watch(heartbeat, 0.02, stalled)
    stopped.stop()
    stopped.start()
    stopped._thread.join(30)
    assert calls == [1]
