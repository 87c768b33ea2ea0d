"""What moves between device and host memory: frozen messages that the runtime executes beside compute.

They hold indices only, no device and no bytes. What a transfer reads is immutable, and what it writes belongs to no one else,
until it is reported complete.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Store(enum.Enum):
    """What a transfer moves: a page of every plane, or a row of every continuation and recurrent view."""

    PAGE = "page"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One asynchronous copy. `is_offload`: device to host, otherwise host to device. Indices count pages or rows of their store."""

    store: Store
    is_offload: bool
    device_index: int
    host_index: int
