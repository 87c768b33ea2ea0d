"""How many bytes of request bodies one server holds at once, over all its connections.

It knows numbers only. Each connection may have a body within its own limit; this keeps thousands of them together from taking
all memory.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.errors import CapacityError


class BodyMemory:
    """A count with a limit. Who takes gives back, once. `make_room` has somebody give back; False when it can do no more."""

    def __init__(self, limit_nbytes: int, make_room: Callable[[], bool] = lambda: False) -> None:
        self._limit_nbytes = limit_nbytes
        self._make_room = make_room
        self.n_taken = 0

    def take(self, n_bytes: int) -> None:
        """Count bytes in; CapacityError when they do not fit."""
        while self.n_taken + n_bytes > self._limit_nbytes:
            if self._make_room():
                continue
            raise CapacityError(
                f"{self.n_taken:,} bytes of request bodies are held, the limit is {self._limit_nbytes:,}",
                hint="retry later",
            )
        self.n_taken += n_bytes

    def give_back(self, n_bytes: int) -> None:
        self.n_taken -= n_bytes
