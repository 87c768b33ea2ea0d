"""What the runtime says that it supplies is what it makes."""

from __future__ import annotations

from helios.contract.enums import ValueSource
from helios.runtime.admission import admission_values
from helios.runtime.round_values import RoundValues
from helios.runtime.supply import ADMISSION_SOURCES, ROUND_SOURCES
from helios.scheduler.request import GenerationRequest
from tests.runtime.test_admission import admission
from tests.scheduler.test_scheduler import Simulation


def test_an_admission_has_every_value_that_a_program_may_bind() -> None:
    """RT-7."""
    values = admission_values([admission(0, logit_bias=((1, 1.0),), frequency_penalty=1.0)], vocabulary=10)
    assert values.keys() == ADMISSION_SOURCES


def test_a_round_has_every_value_that_a_program_may_bind() -> None:
    """RT-7: the first round of a request has prompt tokens and pages; a grammar's mask is not made yet, and never applies."""
    simulation = Simulation(3, 18, 16, 1)
    simulation.scheduler.submit(0, GenerationRequest((7, 8), 3))
    simulation.launch()
    values = RoundValues(3, 8).of(simulation.in_flight[-1][0], 1, 0)
    assert ROUND_SOURCES - values.keys() == {ValueSource.GRAMMAR_MASK}
    assert values.keys() <= ROUND_SOURCES
    assert not values[ValueSource.GRAMMAR_MASKED].any()
