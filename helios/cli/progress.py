"""A progress bar of bytes, for every verb that moves many of them.

It knows terminals, not what the bytes are. The bar shows itself only on a terminal's stderr and only when the work takes a while.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called with bytes done and bytes in all.
Report = Callable[[int, int], None]


@contextmanager
def byte_progress(what: str) -> Iterator[Report]:
    """A function that takes (bytes done, bytes in all) while the bar is open."""
    if not sys.stderr.isatty():
        yield lambda _n_done_bytes, _n_total_bytes: None
        return
    from tqdm import tqdm  # which nobody sees elsewhere

    with tqdm(unit="B", unit_scale=True, desc=what, delay=0.5, leave=False) as bar:

        def report(n_done_bytes: int, n_total_bytes: int) -> None:
            bar.total = n_total_bytes
            bar.update(n_done_bytes - bar.n)

        yield report
