"""The checks: each does something to a scene and says what it saw, or fails by AssertionError.

It knows what a front owes its clients, no front by name.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from scripts.scaling.scene import Scene

REST_S = 2.0
WORDS = [
    "lantern",
    "river",
    "copper",
    "orchard",
    "violin",
    "harbor",
    "meadow",
    "thunder",
    "marble",
    "compass",
    "ribbon",
    "glacier",
]


def prefix(number: int, n_words: int = 90) -> str:
    """Words that differ from those of any other number below 144 from the first two on."""
    digits = (number // len(WORDS), number % len(WORDS))
    return " ".join(WORDS[(digits[i % 2] + i // 2 * i) % len(WORDS)] for i in range(n_words))


def chats(scene: Scene) -> str:
    response = scene.chat("Say hello.")
    assert response.status_code == 200, response.text
    return repr(response.json()["choices"][0]["message"]["content"])


def streams(scene: Scene) -> str:
    """Events come one by one, while the worker goes on, and not all at the end."""
    before = sum(scene.finished())
    with scene.stream("Tell me a very long story.", 800) as events:
        times = [(next(events), time.monotonic())[1] for _ in range(3)]
        assert sum(scene.finished()) == before, "the worker had finished before three events were there"
        times += [time.monotonic() for event in events if event != "[DONE]"]
    assert len(times) >= 10, f"{len(times)} events"
    return f"{len(times)} events over {times[-1] - times[0]:.2f} s"


def cancels(scene: Scene) -> str:
    """A reader that leaves ends the generation on the worker."""
    before = sum(worker.number("requests_cancelled_total") for worker in scene.workers)
    with scene.stream("Tell me a very long story.", 800) as events:
        for _ in range(3):
            next(events)
    began_s = time.monotonic()
    while sum(worker.number("requests_cancelled_total") for worker in scene.workers) == before:
        assert time.monotonic() < began_s + 10, "the worker goes on"
        time.sleep(0.05)
    return f"ended on the worker within {time.monotonic() - began_s:.2f} s"


def sticks(scene: Scene) -> str:
    """A prefix that one worker has computed, without the front's knowing but by events: all its repeats reach that worker."""
    spread = []
    for group in range(4):
        first = Scene(f"http://{scene.workers[group % 2].http}", scene.workers, scene.model)
        first.chat(f"{prefix(group)} first", 2)
        time.sleep(REST_S)
        before = scene.finished()
        for tail in range(5):
            assert scene.chat(f"{prefix(group)} {WORDS[tail]}", 2).status_code == 200
        spread.append([int(after - b) for b, after in zip(before, scene.finished(), strict=True)])
    return stickiness(spread)


def loses_none(scene: Scene) -> str:
    """A worker is killed while it answers and others wait: what had not begun to stream is answered by the other worker."""
    victim = scene.workers[-1]
    with ThreadPoolExecutor(16) as threads:
        answers = [threads.submit(scene.read_stream, f"{prefix(20 + i, 12)} and then?", 60) for i in range(12)]
        time.sleep(0.5)
        n_running, n_waiting = int(victim.number("requests_running")), int(victim.number("requests_waiting"))
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        later = [threads.submit(scene.read_stream, f"{prefix(40 + i, 12)} and now?", 4) for i in range(6)]
        seen = [answer.result() for answer in (*answers, *later)]
    where = f"{n_running} running and {n_waiting} waiting there, of 12"
    return f"{where}; 6 after it; {losses(seen)}"


def losses(seen: Sequence[tuple[int, str]]) -> str:
    """What became of streams, each with its events and its error: one that never began is lost."""
    lost = [error for n_events, error in seen if error and not n_events]
    n_broken = sum(bool(error and n_events) for n_events, error in seen)
    assert not lost, f"{len(lost)} lost: {lost[0][:300]}"
    return f"none lost, {n_broken} broken that had begun to stream"


def stickiness(spread: Sequence[Sequence[int]]) -> str:
    """The five repeats of each prefix by worker; every other prefix was computed by the second worker."""
    wanted = [[0, 5] if group % 2 else [5, 0] for group in range(len(spread))]
    assert list(map(list, spread)) == wanted, f"repeats went {spread}, not {wanted}"
    return f"repeats a worker, by prefix: {spread}"
