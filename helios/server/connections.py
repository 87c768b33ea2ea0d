"""The open connections of one server: how many there may be, and which go first when there are too many.

It knows no bytes. A connection is a member from its start until its last answer has ended; while it waits for a request it is
idle, and the longest idle makes room for the next to come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helios.server.connection import HttpConnection

_N_REFUSALS = 64  # connections over the limit that are told so at once; the others are closed without a word


class Connections:
    """A set with a limit, in which the idle ones stand in the order in which they became idle."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._members: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, None] = {}

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
        self._idle.pop(connection, None)

    def set_idle(self, connection: HttpConnection, is_idle: bool) -> None:
        self._idle.pop(connection, None)
        if is_idle:
            self._idle[connection] = None

    def close_longest_idle(self) -> bool:
        """Close the connection that has waited longest; False when none is idle."""
        longest = next(iter(self._idle), None)
        if longest is None:
            return False
        self.discard(longest)
        longest.abort()
        return True
