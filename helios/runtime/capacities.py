"""How much is loaded: requests at once, context, cache pages and host pages, chosen from the options and the free memory.

It knows counts and bytes and allocates nothing. What is chosen always holds one whole context of one request; where it cannot,
the start ends with a sentence that has the numbers (RT-7). Options may lower what the core was prepared for, never raise it
(CON-1).
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.cache.books import CacheShape
from helios.contract.prepared import PreparedContract
from helios.errors import OutOfMemoryError, SettingError
from helios.scheduler.scheduler import SchedulerLimits
from helios.settings import Settings

# Without --cache-gb the cache takes at most this share of the memory that is free beside weights and state: of the host's, where
# others live too, and of a GPU's own, of which the device has kept back what it needs itself.
HOST_MEMORY_SHARE = 0.5
GPU_MEMORY_SHARE = 0.95
# ... and at most the whole contexts of all slots, with as much again for prefixes whose requests have gone.
CONTEXTS_PER_SLOT = 2
# Of the host memory for offload, this share is for rows, as many of them as snapshots at one in seven pages (112 tokens) ask for.
HOST_ROW_SHARE = 0.125

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Capacities:
    """The choices of one start: the scheduler's limits and the sizes of the cache's stores on the device and in host memory."""

    limits: SchedulerLimits
    shape: CacheShape
    page_nbytes: int
    row_nbytes: int

    @property
    def cache_nbytes(self) -> int:
        return self.shape.n_pages * self.page_nbytes

    @property
    def offload_nbytes(self) -> int:
        return self.shape.n_host_pages * self.page_nbytes + self.shape.n_host_rows * self.row_nbytes

    def describe(self) -> str:
        """The choices in words, for the line at start."""
        limits, n_pages = self.limits, self.shape.n_pages
        offload = f"{self.offload_nbytes / _GIB:.2f} GiB" if self.shape.n_host_pages else "none"
        return (
            f"context {limits.context_tokens:,}, {limits.max_active} active, cache {self.cache_nbytes / _GIB:.2f} GiB "
            f"({n_pages:,} pages, {n_pages * limits.page_tokens:,} tokens), {self.shape.n_rows} snapshots, offload {offload}"
        )

    def statistics(self) -> dict[str, int]:
        """The same numbers by metric name."""
        return {
            "context_tokens": self.limits.context_tokens,
            "page_tokens": self.limits.page_tokens,
            "cache_bytes": self.cache_nbytes,
        }


def choose_limits(contract: PreparedContract, settings: Settings) -> SchedulerLimits:
    """Context and concurrency. Raises SettingError for more than the core was prepared for."""
    context = settings.context or contract.context_tokens
    if context > contract.context_tokens:
        raise SettingError(
            f"--context is {context:,}, this core was prepared for {contract.context_tokens:,}",
            hint=f"it must be a whole number from 16 to {contract.context_tokens:,}",
        )
    max_active = settings.max_active or contract.concurrency
    if max_active > contract.concurrency:
        raise SettingError(
            f"--max-active is {max_active}, this core was prepared for {contract.concurrency}",
            hint=f"it must be a whole number from 1 to {contract.concurrency}",
        )
    return SchedulerLimits(
        max_active=max_active,
        context_tokens=context,
        prefill_tokens=contract.prefill_tokens,
        page_tokens=contract.page_tokens,
        vocabulary=contract.vocabulary,
        gap_s=settings.gap_target / 1e3,
        cache_identity=contract.cache_identity,
        distributed=contract.completion.distributions_capacity,
        prompt_distributed=contract.completion.prompt_distributions_capacity,
    )


def choose_capacities(
    contract: PreparedContract, limits: SchedulerLimits, settings: Settings, free_nbytes: int, *, is_host: bool
) -> Capacities:
    """Cache sizes on a device with `free_nbytes` to give, which are of the host's memory when `is_host`. Raises SettingError or
    OutOfMemoryError when one context does not fit."""
    share = HOST_MEMORY_SHARE if is_host else GPU_MEMORY_SHARE
    page_nbytes = contract.page_nbytes
    left_nbytes = free_nbytes - sum(buffer.nbytes for buffer in contract.buffers)
    n_least = -(-limits.context_tokens // limits.page_tokens)
    if settings.cache_gb is not None:
        n_pages = _asked_pages(settings.cache_gb, page_nbytes, left_nbytes, n_least, limits)
    else:
        n_pages = int(left_nbytes * share) // page_nbytes
        if n_pages < n_least:
            need_nbytes = free_nbytes - left_nbytes + int(n_least * page_nbytes / share)
            raise OutOfMemoryError(
                f"{contract.served_id} with a context of {limits.context_tokens:,} tokens needs "
                f"{need_nbytes / _GIB:.2f} GiB of free memory, {free_nbytes / _GIB:.2f} GiB are free",
                hint="lower --context",
            )
        n_pages = min(n_pages, n_least * limits.max_active * CONTEXTS_PER_SLOT)
    n_host_pages, n_host_rows = _host_stores(contract, settings.offload_gb)
    shape = CacheShape(
        page_tokens=limits.page_tokens,
        n_pages=n_pages,
        n_rows=contract.n_snapshot_rows,
        n_host_pages=n_host_pages,
        n_host_rows=n_host_rows,
        is_truncatable=contract.is_truncatable,
    )
    return Capacities(limits, shape, page_nbytes, contract.row_nbytes)


def _host_stores(contract: PreparedContract, offload_gb: float) -> tuple[int, int]:
    """Host pages and host rows of --offload-gb. Raises SettingError when it holds none."""
    nbytes = int(offload_gb * _GIB)
    if not nbytes:
        return 0, 0
    n_rows = int(nbytes * HOST_ROW_SHARE) // contract.row_nbytes if contract.n_snapshot_rows else 0
    n_pages = (nbytes - n_rows * contract.row_nbytes) // contract.page_nbytes
    if not n_pages:
        need = _rounded_up(contract.page_nbytes)
        raise SettingError(f"--offload-gb is {offload_gb:g}, one page takes {need:.3f}", hint="raise it, or 0 for none")
    return n_pages, n_rows


def _asked_pages(cache_gb: float, page_nbytes: int, left_nbytes: int, n_least: int, limits: SchedulerLimits) -> int:
    """The pages of --cache-gb, which must hold one context and fit in what is free."""
    n_pages = int(cache_gb * _GIB) // page_nbytes
    if n_pages < n_least:
        raise SettingError(
            f"--cache-gb is {cache_gb:g}, which holds {n_pages * limits.page_tokens:,} tokens, "
            f"one request's context of {limits.context_tokens:,} needs {_rounded_up(n_least * page_nbytes):.3f}",
            hint="raise it or lower --context",
        )
    if n_pages * page_nbytes > left_nbytes:
        raise OutOfMemoryError(
            f"--cache-gb is {cache_gb:g}, {max(left_nbytes, 0) / _GIB:.2f} GiB are free beside the model",
            hint="lower it",
        )
    return n_pages


def _rounded_up(nbytes: int) -> float:
    """GiB with three digits that are enough."""
    return -(-nbytes * 1000 // _GIB) / 1000
