"""What the runtime says that it supplies is what it makes."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import ValueSource
from helios.contract.prepared import PreparedContract
from helios.packing.values import Values
from helios.runtime.admission import admission_values
from helios.runtime.round_values import RoundValues
from helios.runtime.state_values import StateValues
from helios.runtime.supply import ADMISSION_SOURCES, RESTORE_SOURCES, ROUND_SOURCES, SNAPSHOT_SOURCES
from helios.scheduler.request import GenerationRequest, TokenConstraint
from helios.scheduler.round import Restore, Snapshot
from tests.contract.full_sample import full_contract, full_manifest
from tests.runtime.test_admission import admission
from tests.scheduler.test_scheduler import Simulation


def test_an_admission_has_every_value_that_a_program_may_bind() -> None:
    """RT-7."""
    values = admission_values([admission(0, logit_bias=((1, 1.0),), frequency_penalty=1.0)], vocabulary=10)
    assert values.keys() == ADMISSION_SOURCES


def test_a_round_has_every_value_that_a_program_may_bind() -> None:
    """RT-7: the first round of a request has prompt tokens and pages, and its constraint's mask where it has one."""
    assert _first_values(None).keys() == ROUND_SOURCES - {ValueSource.GRAMMAR_MASK}
    assert not _first_values(None)[ValueSource.GRAMMAR_MASKED].any()
    values = _first_values(_OneToken())
    assert values.keys() == ROUND_SOURCES
    assert values[ValueSource.GRAMMAR_MASKED].tolist() == [1]
    assert values[ValueSource.GRAMMAR_MASK].tolist() == [[0, 32]]


class _OneToken:
    """A constraint that allows the token 37 and nothing else."""

    def mask(self) -> NDArray[np.uint32]:
        return np.array([0, 32], np.uint32)

    def advance(self, token_id: int) -> None: ...


def _first_values(constraint: TokenConstraint | None) -> Values:
    simulation = Simulation(3, 18, 16, 1)
    simulation.scheduler.submit(0, GenerationRequest((7, 8), 3, constraint=constraint))
    simulation.launch()
    return RoundValues(3, 8).of(simulation.in_flight[-1], 1, 0)


def test_restores_and_snapshots_have_every_value_that_their_programs_may_bind() -> None:
    """RT-7, CON-11: slots' own rows come first, snapshots' behind them."""
    contract = PreparedContract.from_core(full_contract(), full_manifest())
    (view,) = contract.state_row_views
    region = dataclasses.replace(contract.cache.regions[1], views=(dataclasses.replace(view, rows=12),))
    cache = dataclasses.replace(contract.cache, regions=(contract.cache.regions[0], region))
    values = StateValues(dataclasses.replace(contract, cache=cache))
    restored = values.of_restores([Restore(3, 2, 1, 9, 20), Restore(0, 0, 0, 4, 5)])
    assert restored.keys() == RESTORE_SOURCES
    assert restored[ValueSource.RESTORE_SOURCE].tolist() == [8 + 2, 8 + 0]
    assert restored[ValueSource.LIVE_STATE_ROW].tolist() == [3 * 2, 0]
    assert restored[ValueSource.PAGE_TABLE_UPDATES].tolist() == [[3 * 8 + 1, 9], [0, 4]]
    assert restored[ValueSource.CONSUMED_ENDPOINT].tolist() == [20, 5]
    saved = values.of_snapshots([Snapshot(1, 3, 33)])
    assert saved.keys() == SNAPSHOT_SOURCES
    assert saved[ValueSource.SNAPSHOT_DESTINATION].tolist() == [8 + 3]
    assert saved[ValueSource.LIVE_ROW_COUNT].tolist() == [1]
