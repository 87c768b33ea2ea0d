"""Page tables on the real device: what an earlier owner of a slot has left in its row is never read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.scheduler.request import Finished, GenerationRequest, SamplingParameters
from helios.scheduler.round import LaneCompletion, Round
from tests.golden.golden import NAMESPACE, core_path
from tests.runtime.local_run import LoadedModel, Outcome

N_PAGES = 40
GREEDY = SamplingParameters(temperature=0.0)
POISONS = {"another page": 1, "the last page": N_PAGES - 1, "no page": -1, "far outside": 1 << 30}


def make_requests() -> list[GenerationRequest]:
    """Long ones before short ones, so that rows are left with more entries than their next owners need."""
    lengths = [(200, 30), (150, 40), (5, 60), (17, 20), (90, 9), (1, 50), (16, 16), (250, 12)]
    source = np.random.default_rng(7)
    return [
        GenerationRequest(tuple(source.integers(0, 120, n_prompt).tolist()), n_output, (), GREEDY)
        for n_prompt, n_output in lengths
    ]


class PageTables:
    """Wraps a model's launches: keeps rounds, and fills the row of each newly admitted slot with `poison` just before."""

    def __init__(self, model: LoadedModel, monkeypatch: pytest.MonkeyPatch, poison: int | None = None) -> None:
        contract = model.bootstrap.contract
        self._device = model.device
        self._address = model.runtime._buffers[contract.cache.page_tables[0].buffer_id].address
        self._shape = (contract.request_slots, contract.pages_per_slot)
        self._poison = poison
        self._launch, self._complete = model.runtime.launch, model.runtime.complete
        self.rounds: list[Round] = []
        self.keeps_updates = True
        self._n_completed = 0
        monkeypatch.setattr(model.runtime, "launch", self.launch)
        monkeypatch.setattr(model.runtime, "complete", self.complete)

    def launch(self, round_: Round) -> None:
        for admission in round_.admissions:
            if self._poison is not None:
                n_words = self._shape[1]
                row = np.full(n_words, self._poison, np.int32)
                self._device.upload(self._address + 4 * n_words * admission.slot, row.view(np.uint8))
        self.rounds.append(round_)
        self._launch(round_ if self.keeps_updates else round_._replace(page_updates=()))

    def complete(self) -> tuple[Round, list[LaneCompletion]]:
        """With the very round that was planned: its scheduler knows it by identity."""
        _, completions = self._complete()
        self._n_completed += 1
        return self.rounds[self._n_completed - 1], completions

    def read(self) -> np.ndarray:
        """int32[slots][pages of a slot], as the device has it now."""
        n_bytes = 4 * self._shape[0] * self._shape[1]
        return self._device.download(self._address, n_bytes).view(np.int32).reshape(self._shape)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedModel]:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path))
    with LoadedModel(core_path("payload2-contract3"), 1, N_PAGES, NAMESPACE) as loaded:
        yield loaded


def tokens_of(outcomes: list[Outcome]) -> list[list[int]]:
    assert all(isinstance(outcome.ending, Finished) for outcome in outcomes)
    return [outcome.ids for outcome in outcomes]


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_entries_of_an_earlier_owner_are_never_read(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, poison: int
) -> None:
    """CON-9: a slot's generation invalidates the remembered length of its table, so its whole table is written again."""
    requests = make_requests()
    alone = [tokens_of(model.run([request], max_active=1, frames=1))[0] for request in requests]
    tables = PageTables(model, monkeypatch, poison)
    assert tokens_of(model.run(requests)) == alone
    assert {admission.slot for round_ in tables.rounds for admission in round_.admissions} == {0, 1}
    assert (tables.read() == poison).any()


def test_the_poison_would_be_seen(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose entries are not uploaded answers something else: the test above can fail."""
    request = make_requests()[1]
    (right,) = tokens_of(model.run([request]))
    tables = PageTables(model, monkeypatch, poison=1)
    tables.keeps_updates = False
    (wrong,) = tokens_of(model.run([request]))
    assert wrong != right


def test_each_owner_of_a_slot_gets_its_table_from_the_first_page_on(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CON-9: entries are uploaded once each, ascending from 0, for every generation of a slot."""
    tables = PageTables(model, monkeypatch)
    tokens_of(model.run(make_requests()))
    uploaded: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    n_positions: dict[tuple[int, int], int] = {}
    last: dict[int, dict[int, int]] = defaultdict(dict)
    for round_ in tables.rounds:
        generations = {lane.slot: lane.generation for lane in round_.lanes}
        for slot, index, page_id in round_.page_updates:
            uploaded[slot, generations[slot]].append(index)
            last[slot][index] = page_id
        for lane in round_.lanes:
            n_positions[lane.slot, lane.generation] = lane.position + lane.query_length
    assert len(uploaded) == len(make_requests())
    for owner, indices in uploaded.items():
        assert indices == list(range(-(-n_positions[owner] // 16)))
    table = tables.read()
    for slot, entries in last.items():
        assert [table[slot, index] for index in entries] == list(entries.values())
