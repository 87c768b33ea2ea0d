"""The thread that publishes KV events: it takes the cache's journal and sends it on.

It knows a journal and sockets, no cache. The model worker never waits for it: while it sends, notes gather in the journal, and it
sleeps while there are none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from helios.cache.journal import Journal
from helios.server.kv_events.sockets import KvEventSockets
from helios.server.kv_events.wire import EventWriter


class KvEventPublisher:
    """Runs from `start` to `close`; the sockets are its alone in between. `clock` is in Unix seconds."""

    def __init__(self, journal: Journal, sockets: KvEventSockets, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._sockets = sockets
        self._clock = clock
        self._writer = EventWriter()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="helios-kv-events", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._journal.listen(self._sockets.wake)

    def close(self) -> None:
        """What is noted by now is sent."""
        self._journal.listen(lambda: None)
        self._is_stopping = True
        self._sockets.wake()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            self._sockets.wait()
            changes = self._journal.take()
            if changes:
                self._sockets.publish(self._writer.batch(changes, self._clock()))
