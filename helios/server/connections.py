"""The open connections of one server: how many there may be, and which go first when there are too many.

It knows no bytes. A connection is a member from before its TLS handshake until its last answer has ended. Between requests it is
idle, within one it is heard now and then; who waits longest for its client makes room for the next to come, an answer never does.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helios.server.connection import HttpConnection

_N_REFUSALS = 64  # connections over the limit that are told so at once; the others are closed without a word
SILENCE_S = 2.0  # after which a part of a body makes room for other bodies


class Connections:
    """A set with a limit, in which those that wait for their client stand in the order in which they began to."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._members: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, None] = {}
        self._unread: dict[HttpConnection, float] = {}  # with when they were heard last

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[HttpConnection]:
        """A snapshot: members may leave meanwhile."""
        return iter(tuple(self._members))

    @property
    def is_over_limit(self) -> bool:
        return len(self._members) > self.limit

    @property
    def is_flooded(self) -> bool:
        """True when not even a refusal may be written."""
        return len(self._members) > self.limit + _N_REFUSALS

    def add(self, connection: HttpConnection) -> None:
        self._members.add(connection)

    def discard(self, connection: HttpConnection) -> None:
        self._members.discard(connection)
        self.set_busy(connection)

    def set_busy(self, connection: HttpConnection) -> None:
        """It waits for nobody but us."""
        self._idle.pop(connection, None)
        self._unread.pop(connection, None)

    def set_idle(self, connection: HttpConnection) -> None:
        self.set_busy(connection)
        self._idle[connection] = None

    def set_unread(self, connection: HttpConnection) -> None:
        """It waits for the rest of something, of which a piece has just come."""
        self.set_busy(connection)
        self._unread[connection] = self._clock()

    def close_longest_waiting(self) -> bool:
        """Close the longest idle connection, or else the longest silent one; False when all are being answered."""
        longest = next(iter(self._idle), None) or next(iter(self._unread), None)
        if longest is None:
            return False
        self.discard(longest)
        longest.abort()
        return True

    def refuse_silent_body(self) -> bool:
        """Refuse the request that has been silent longest among those of which a part is held; False when none is silent."""
        limit_s = self._clock() - SILENCE_S
        silent = itertools.takewhile(lambda each: self._unread[each] <= limit_s, self._unread)
        holder = next((each for each in silent if each.n_body_bytes), None)
        if holder is None:
            return False
        holder.refuse_stalled()
        return True
