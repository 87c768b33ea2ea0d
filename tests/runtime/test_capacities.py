"""How much is loaded: from options, the core and free memory, in numbers that a person is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.prepared import PreparedContract
from helios.errors import OutOfMemoryError, SettingError
from helios.runtime.capacities import (
    GPU_MEMORY_SHARE,
    HOST_MEMORY_SHARE,
    Capacities,
    choose_capacities,
    choose_limits,
)
from helios.settings import Settings
from tests.contract.sample import PAGE_TOKENS, PAGES_PER_SLOT, SLOTS, sample_contract, sample_manifest

GIB = 1 << 30
PAGE_NBYTES = 1 << 20  # a GiB is 1,024 pages


def contract() -> PreparedContract:
    """The sample with pages of one MiB."""
    manifest = sample_manifest()
    for buffer in manifest.buffers:
        if buffer.page_nbytes:
            buffer.page_nbytes = PAGE_NBYTES
    return PreparedContract.from_core(sample_contract(), manifest)


def fixed_nbytes() -> int:
    return sum(buffer.nbytes for buffer in contract().buffers)


def choose(free_nbytes: int, *, is_host: bool = True, **settings: object) -> Capacities:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    return choose_capacities(contract(), choose_limits(contract(), chosen), chosen, free_nbytes, is_host=is_host)


def test_the_cores_own_numbers_are_the_default() -> None:
    limits = choose_limits(contract(), Settings())
    assert (limits.max_active, limits.context_tokens) == (SLOTS, PAGES_PER_SLOT * PAGE_TOKENS)
    assert limits.cache_identity == contract().cache_identity


def test_options_lower_what_the_core_was_prepared_for() -> None:
    """CON-1."""
    limits = choose_limits(contract(), Settings(max_active=2, context=40, gap_target=50))
    assert (limits.max_active, limits.context_tokens, limits.gap_s) == (2, 40, 0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_active": 5}, "--max-active is 5, this core was prepared for 4; it must be a whole number from 1 to 4"),
        (
            {"context": 129},
            "--context is 129, this core was prepared for 128; it must be a whole number from 16 to 128",
        ),
    ],
)
def test_options_never_raise_it(settings: dict[str, int], message: str) -> None:
    """CON-1: and the accepted range is in the message."""
    with pytest.raises(SettingError) as caught:
        choose_limits(contract(), Settings(**settings))  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_with_much_memory_the_cache_holds_two_contexts_a_slot() -> None:
    assert choose(100 * GIB).shape.n_pages == 2 * SLOTS * PAGES_PER_SLOT
    assert choose(100 * GIB, max_active=1).shape.n_pages == 2 * PAGES_PER_SLOT


def test_with_little_memory_the_cache_takes_its_share_of_what_the_model_leaves() -> None:
    for is_host, share in ((True, HOST_MEMORY_SHARE), (False, GPU_MEMORY_SHARE)):
        assert choose(fixed_nbytes() + 40 * PAGE_NBYTES, is_host=is_host).shape.n_pages == 40 * share


@given(
    st.integers(0, 200 * PAGE_NBYTES),
    st.booleans(),
    st.integers(1, SLOTS),
    st.integers(16, PAGES_PER_SLOT * PAGE_TOKENS),
)
def test_one_whole_context_fits_or_the_start_ends(
    free_nbytes: int, is_host: bool, max_active: int, context: int
) -> None:
    """RT-7."""
    n_least = -(-context // PAGE_TOKENS)
    budget_nbytes = (free_nbytes - fixed_nbytes()) * (HOST_MEMORY_SHARE if is_host else GPU_MEMORY_SHARE)
    if budget_nbytes >= n_least * PAGE_NBYTES:
        shape = choose(free_nbytes, is_host=is_host, max_active=max_active, context=context).shape
        assert n_least <= shape.n_pages <= budget_nbytes / PAGE_NBYTES
        return
    with pytest.raises(OutOfMemoryError) as caught:
        choose(free_nbytes, is_host=is_host, max_active=max_active, context=context)
    assert f"a context of {context:,} tokens needs" in str(caught.value)
    assert f"{free_nbytes / GIB:.2f} GiB are free" in str(caught.value)


def test_cache_gb_is_what_it_says() -> None:
    assert choose(100 * GIB, cache_gb=0.5).shape.n_pages == 512


def test_a_cache_that_holds_no_context_is_refused_with_the_least_that_would_do() -> None:
    """RT-7."""
    with pytest.raises(SettingError) as caught:
        choose(100 * GIB, cache_gb=0.005)
    assert str(caught.value) == (
        "--cache-gb is 0.005, which holds 80 tokens, one request's context of 128 needs 0.008; raise it or lower --context"
    )
    assert choose(100 * GIB, cache_gb=0.008).shape.n_pages == PAGES_PER_SLOT


def test_a_cache_larger_than_memory_is_refused() -> None:
    """RT-7: at the start, not when the page that does not fit is first written."""
    with pytest.raises(OutOfMemoryError, match=r"--cache-gb is 3, 2\.00 GiB are free beside the model; lower it"):
        choose(2 * GIB + fixed_nbytes(), cache_gb=3)


def test_a_core_without_snapshots_offloads_pages_only() -> None:
    shape = choose(100 * GIB, offload_gb=1).shape
    assert (shape.n_rows, shape.n_host_pages, shape.n_host_rows) == (0, 1024, 0)
    assert choose(100 * GIB).shape.n_host_pages == 0


def test_an_offload_that_holds_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match=r"--offload-gb is 0\.0001, one page takes 0\.001; raise it, or 0 for none"):
        choose(100 * GIB, offload_gb=0.0001)


def test_one_line_has_every_choice() -> None:
    """Issue 4, item 5: the same numbers are in /metrics."""
    capacities = choose(100 * GIB, cache_gb=0.5, offload_gb=0.25, max_active=3)
    assert capacities.describe() == (
        "context 128, 3 active, cache 0.50 GiB (512 pages, 8,192 tokens), 0 snapshots, offload 0.25 GiB"
    )
    assert capacities.statistics() == {"context_tokens": 128, "page_tokens": 16, "cache_bytes": GIB // 2}
    assert choose(100 * GIB).describe().endswith("offload none")
