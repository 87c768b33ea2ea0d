"""Contents that may live in device memory, in host memory, or in both: what pages and snapshot rows have in common.

It knows ids and counts, no tokens. Contents go away from the bottom up: device memory never holds what lies below contents that it
does not hold, and neither does host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from helios.cache.holding import Holding

NOWHERE = -1


class Resident:
    """`device_id` and `host_id` are NOWHERE or an id of the store. `n_users` holdings need it; `n_copies` transfers read it, or
    need it to stay. While `is_loading`, `device_id` is being written, and `waiters` want to know when that is done. `is_kept`:
    it goes after everything that is not."""

    __slots__ = (
        "device_id",
        "host_id",
        "is_kept",
        "is_loading",
        "last_use",
        "n_copies",
        "n_device_below",
        "n_host_below",
        "n_users",
        "parent",
        "waiters",
    )

    parent: Self | None

    def __init__(self, parent: Self | None, last_use: int) -> None:
        self.parent = parent
        self.device_id = NOWHERE
        self.host_id = NOWHERE
        self.n_users = 0
        self.n_copies = 0
        self.n_device_below = 0
        self.n_host_below = 0
        self.last_use = last_use
        self.is_kept = False
        self.is_loading = False
        self.waiters: list[Holding] = []

    @property
    def is_somewhere(self) -> bool:
        return self.device_id != NOWHERE or self.host_id != NOWHERE

    @property
    def worth(self) -> tuple[bool, int]:
        """What is worth less goes first: what is not kept, and of that the least recently used."""
        return self.is_kept, self.last_use

    @property
    def is_idle(self) -> bool:
        """Nobody would miss it but a later lookup."""
        return not self.n_users and not self.n_copies
