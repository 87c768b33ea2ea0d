"""What the prefix cache gains and loses, noted for others in the order in which it happens.

It knows pages of one prefix tree by numbers of its own and who may take the notes; it knows no sockets and nobody's clock. Whoever
has taken every note knows which pages can be reused; the notes that wait are bounded, and none of what they say is ever lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from helios.cache.prefix import PrefixNode, Tokens
from helios.errors import InternalError

_LEAST_BOUND = 4096  # notes that may wait, however small the cache


@dataclass(frozen=True, slots=True)
class PageStored:
    """Page `page` of `tokens` behind page `parent` (None: the first of a prompt) can be reused from now on."""

    page: int
    parent: int | None
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class PageRemoved:
    """The last copy of it is gone."""

    page: int


@dataclass(frozen=True, slots=True)
class AllRemoved:
    """Forget everything before this."""


Change = PageStored | PageRemoved | AllRemoved


class Journal:
    """Written on the worker thread, taken on any other. Only the tree of `key` is noted: what is under another key cannot be found
    by tokens alone, and its salt is there to keep it from others. A page that no number names was never noted."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._pages: dict[PrefixNode, int] = {}  # what is there, parents before children
        self._n_numbers = 0
        self._lock = threading.Lock()
        self._waiting: list[Change] = []
        self._wake: Callable[[], None] = _nobody

    # -- the worker's side

    @property
    def pages(self) -> frozenset[PrefixNode]:
        """What was noted as stored and not as removed."""
        return frozenset(self._pages)

    def store(self, node: PrefixNode) -> None:
        """A page under the key has contents for the first time, or again."""
        if node in self._pages:
            raise InternalError(f"page {node.depth - 1} of a prefix was noted as stored twice")
        number = self._n_numbers
        self._n_numbers += 1
        self._pages[node] = number
        self._note(self._stored(node, number))

    def remove(self, node: PrefixNode) -> None:
        """A page has lost its last copy; nothing below it has any."""
        number = self._pages.pop(node, None)
        if number is not None:
            self._note(PageRemoved(number))

    def _stored(self, node: PrefixNode, number: int) -> PageStored:
        parent = node.parent if node.depth > 1 else None
        return PageStored(number, None if parent is None else self._pages[parent], node.tokens)

    def _note(self, change: Change) -> None:
        with self._lock:
            is_first = not self._waiting
            self._waiting.append(change)
            if len(self._waiting) > _LEAST_BOUND + 2 * len(self._pages):
                self._waiting = self._summary()
            if is_first:
                self._wake()

    def _summary(self) -> list[Change]:
        """In the place of more notes than there is to say: what is there now."""
        return [AllRemoved(), *(self._stored(node, number) for node, number in self._pages.items())]

    # -- the taker's side

    def listen(self, wake: Callable[[], None]) -> None:
        """`wake` is called on the worker thread when there are notes again after none; it must not wait. When this returns, whoever
        listened before is not called again."""
        with self._lock:
            self._wake = wake
            if self._waiting:
                wake()

    def take(self) -> list[Change]:
        """All notes that wait, oldest first."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken


def _nobody() -> None:
    """There is no listener yet; the notes wait."""
