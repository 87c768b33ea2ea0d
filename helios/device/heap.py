"""The C heap of this process, which Python, the libraries and the host runtime share: how it grows, and when it gives back.

It knows glibc's, and does nothing elsewhere. It frees nothing that anybody holds.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_... of malloc.h
LARGE_BYTES = 256 << 10
SPARE_BYTES = 512 << 10  # with less, who fills and frees the end of the heap faults its pages in again and again


def keep_small() -> None:
    """One arena for all threads, which otherwise leave each its own half empty; and what is large is mapped, so that freeing it
    gives it back whatever lies behind it. Call it before threads start."""
    _call("mallopt", _ARENA_MAX, 1)
    _call("mallopt", _MMAP_THRESHOLD, LARGE_BYTES)
    _call("mallopt", _TRIM_THRESHOLD, SPARE_BYTES)


def trim() -> None:
    """Give back the pages that hold nothing: about 20 MB after a model was loaded."""
    _call("malloc_trim", ctypes.c_size_t(0))


def _call(name: str, *arguments: int | ctypes.c_size_t) -> None:
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
