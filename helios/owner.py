"""What closes what it holds at the end of its `with` block.

It knows no resource; the class that allocates says in `close` how it gives back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Owner(ABC):
    """Something that holds what must be given back. `with` closes it, whether the block ends or fails."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give back all that is held. Nothing else of it may be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
