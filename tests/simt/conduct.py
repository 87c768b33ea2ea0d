"""How the emulator may run a block, and the switch for it in the simt kernel library."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from helios.device import libraries


@dataclass(frozen=True)
class Conduct:
    """Conduct in cuda_src/simt/emulator.h."""

    order: str = "first_in"
    copies: str = "eager"
    seed: int = 0
    architecture: str = "sm_80"

    @property
    def words(self) -> tuple[int, int, int, int]:
        return (
            ("first_in", "last_in", "random").index(self.order),
            self.seed,
            ("eager", "deferred").index(self.copies),
            ("sm_80", "sm_90a").index(self.architecture),
        )

    def __str__(self) -> str:
        return f"{self.order}-{self.copies}" + ("" if self.architecture == "sm_80" else f"-{self.architecture}")


CONDUCTS = [
    Conduct(*both, seed=11) for both in itertools.product(("first_in", "last_in", "random"), ("eager", "deferred"))
]
# The same with the instructions of sm_90a.
SM_90A_CONDUCTS = [replace(conduct, architecture="sm_90a") for conduct in CONDUCTS]


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(str(libraries.simt_kernel_library()))
    library.helios_simt_set_conduct.argtypes = (ctypes.c_int32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32)
    library.helios_simt_set_conduct.restype = None
    library.helios_simt_failure.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    library.helios_simt_failure.restype = None
    return library


def failure() -> str:
    """What went wrong in the kernel library since its conduct was set; empty when nothing did."""
    text = ctypes.create_string_buffer(1000)
    _library().helios_simt_failure(text, len(text))
    return text.value.decode()


def set_conduct(conduct: Conduct) -> None:
    """The kernel library's blocks run like this from now on; a failure is forgotten."""
    _library().helios_simt_set_conduct(*conduct.words)


@contextmanager
def conducted(conduct: Conduct) -> Iterator[None]:
    """The kernel library's blocks run like this; a failure in one of them fails the test."""
    set_conduct(conduct)
    try:
        yield
        assert failure() == ""
    finally:
        set_conduct(Conduct())
