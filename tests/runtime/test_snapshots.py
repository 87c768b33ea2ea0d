"""RESTORE and SNAPSHOT on the real device: a request goes on from saved state as if it had computed it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.contract.enums import Operation
from helios.errors import InternalError
from helios.scheduler.request import GenerationRequest, SamplingParameters
from helios.scheduler.round import LaneCompletion, Restore, Round, Snapshot
from tests.runtime.hand_made import PAGE_TOKENS, Loaded, Tenant, prepare_tiny

N_PAGES = 24
SEEDED = SamplingParameters(temperature=0.9, seed=11, candidates=3)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with Loaded(prepare_tiny(tmp_path_factory.mktemp("snapshots")), N_PAGES) as opened:
        yield opened


def prompt_of(n_tokens: int, seed: int = 3) -> GenerationRequest:
    tokens = np.random.default_rng(seed).integers(0, 250, n_tokens).tolist()
    return GenerationRequest(tuple(tokens), 8, (), SEEDED)


def answer(loaded: Loaded, tenant: Tenant, first: Round, n_tokens: int) -> list[LaneCompletion]:
    """The tokens of a request whose prompt `first` consumes, without what names its slot."""
    rounds = [first] + [tenant.decode(len(tenant.request.prompt_tokens) + i) for i in range(n_tokens - 1)]
    return [loaded.run(round_)[0]._replace(slot=0, generation=0) for round_ in rounds]


@pytest.mark.parametrize(("n_prompt", "endpoint"), [(37, 36), (37, 33), (47, 46), (18, 17), (5, 4), (15, 1)], ids=str)
def test_a_restored_request_answers_as_if_it_had_computed_its_prefix(
    loaded: Loaded, n_prompt: int, endpoint: int
) -> None:
    """CACHE-5: shared pages by the table, the partial page by its row; a shorter endpoint in that page too."""
    request = prompt_of(n_prompt)
    owner = Tenant(loaded, 0, request, [0, 1, 2, 3])
    first = owner.prefill(snapshots=(Snapshot(0, 5, n_prompt),))
    expected = answer(loaded, owner, first, 5)
    index = endpoint // PAGE_TOKENS
    heir = Tenant(loaded, 2, request, [*[0, 1, 2][:index], 9, 10], consumed=endpoint, generation=7)
    restored = heir.prefill(restore=Restore(2, 5, index, 9, endpoint))
    assert answer(loaded, heir, restored, 5) == expected


def test_the_restore_is_what_makes_it_right(loaded: Loaded) -> None:
    """The test above can fail: from a row of something else the same request answers otherwise."""
    owner, other = (Tenant(loaded, 0, prompt_of(37, seed), [0, 1, 2, 3]) for seed in (3, 4))
    expected = answer(loaded, owner, owner.prefill(), 3)
    loaded.run(other.prefill(snapshots=(Snapshot(0, 6, 37),)))
    answer(loaded, owner, owner.prefill(), 1)
    heir = Tenant(loaded, 2, owner.request, [0, 1, 9, 10], consumed=36)
    assert answer(loaded, heir, heir.prefill(restore=Restore(2, 6, 2, 9, 36)), 3) != expected


def test_a_snapshot_rides_behind_the_round_that_completes_it(loaded: Loaded) -> None:
    """CACHE-5: complete committed state: the row holds what the round itself has written."""
    tenant = Tenant(loaded, 1, prompt_of(20), [12, 13])
    loaded.run(tenant.prefill(snapshots=(Snapshot(1, 0, 20),)))
    assert loaded.row(0) == loaded.page(13)
    loaded.run(tenant.decode(20))
    assert loaded.row(0) != loaded.page(13)


def test_a_round_without_a_program_is_complete_when_its_event_is(loaded: Loaded) -> None:
    """CACHE-5: an answer-end snapshot with nothing else to run has no lanes and no completion."""
    tenant = Tenant(loaded, 1, prompt_of(20), [12, 13])
    loaded.run(tenant.prefill())
    before = loaded.row(4)
    saving = Round(None, (), 0, (), snapshots=(Snapshot(1, 4, 20),), snapshotter=loaded.shape(Operation.SNAPSHOT))
    loaded.runtime.launch(tenant.decode(20))
    loaded.runtime.launch(saving)
    assert not loaded.runtime.has_free_frame
    assert len(loaded.runtime.complete()[1]) == 1
    assert loaded.runtime.complete() == (saving, [])
    assert before != loaded.row(4) == loaded.page(13)


def test_several_restores_and_snapshots_share_a_submission(loaded: Loaded) -> None:
    """CON-7: lane i is restore or snapshot i."""
    rng = np.random.default_rng(5)
    tenants = [Tenant(loaded, slot, prompt_of(21, slot), [2 * slot, 2 * slot + 1]) for slot in range(3)]
    for tenant in tenants:
        loaded.run(tenant.prefill())
    rows = rng.permutation(loaded.contract.n_snapshot_rows)[:3].tolist()
    snapshots = tuple(Snapshot(slot, row, 21) for slot, row in enumerate(rows))
    loaded.run(Round(None, (), 0, (), snapshots=snapshots, snapshotter=loaded.shape(Operation.SNAPSHOT)))
    restores = tuple(Restore(slot, rows[2 - slot], 1, 20 - slot, 17) for slot in range(3))
    loaded.run(Round(None, (), 0, (), restores=restores, restorer=loaded.shape(Operation.RESTORE)))
    for slot in range(3):
        assert loaded.page(20 - slot) == loaded.row(rows[2 - slot]) == loaded.page(2 * (2 - slot) + 1)


def test_rows_and_pages_that_do_not_exist_are_refused(loaded: Loaded) -> None:
    """RT-7: numbers of the books are measured against the contract before they are staged."""
    n_rows = loaded.contract.n_snapshot_rows
    shape = loaded.shape(Operation.SNAPSHOT)
    for row in (-1, n_rows):
        with pytest.raises(InternalError, match=f"snapshot row {row} does not exist, there are {n_rows}"):
            loaded.runtime.launch(Round(None, (), 0, (), snapshots=(Snapshot(0, row, 5),), snapshotter=shape))
    restore = Restore(0, 0, 2, 9, 17)
    with pytest.raises(InternalError, match="endpoint 17 is not in page 2"):
        loaded.runtime.launch(Round(None, (), 0, (), restores=(restore,), restorer=loaded.shape(Operation.RESTORE)))


def test_launches_are_counted_by_operation(loaded: Loaded) -> None:
    """MET-1."""
    before = loaded.runtime.statistics()
    tenant = Tenant(loaded, 0, prompt_of(20), [0, 1])
    loaded.run(tenant.prefill(snapshots=(Snapshot(0, 0, 20),)))
    loaded.run(tenant.decode(20))
    after = loaded.runtime.statistics()
    counts = {
        operation: after[name] - before[name]
        for operation in ("initialize", "prefill", "decode", "mixed", "restore", "snapshot")
        for name in [f'graph_launches_total{{operation="{operation}"}}']
    }
    assert counts == {"initialize": 1, "prefill": 1, "decode": 1, "mixed": 0, "restore": 0, "snapshot": 1}


def test_untouched_rows_cost_no_memory(default_core: Path) -> None:
    """CON-11: rows for every slot and four snapshots each are promised, not filled."""
    with Loaded(default_core, 64) as opened:
        buffer = opened.runtime._buffers[opened.contract.buffer_named("continuation").id]
        assert buffer.size_bytes > 32 << 20
        assert resident_nbytes(buffer.address) == 0


def resident_nbytes(address: int) -> int:
    """Of the mapping around `address`."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            start, end = (int(bound, 16) for bound in head.split("-"))
            is_inside = start <= address < end
        elif is_inside and head == "Rss:":
            return int(line.split()[1]) << 10
    raise AssertionError("no such mapping")
