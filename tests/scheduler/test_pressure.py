"""Page shortage: who waits, who gives up pages, who comes back, and that everything ends."""

from __future__ import annotations

import pytest

from helios.scheduler.request import Finished, FinishReason, GenerationRequest, SamplingParameters
from helios.scheduler.sequence import Phase
from tests.scheduler.hashing_device import PAGE_TOKENS, VOCABULARY
from tests.scheduler.requests import CONTEXT, StopAfter, tokens_alone
from tests.scheduler.simulation import Simulation


def prompt(n_tokens: int, which: int = 0) -> tuple[int, ...]:
    """Prompts of different `which` share no page."""
    return tuple((which + i * i) % VOCABULARY for i in range(n_tokens))


def phases(simulation: Simulation) -> dict[int, str]:
    return {key: sequence.phase.value for key, sequence in simulation.scheduler._roster.by_key.items()}


def until_preempting(simulation: Simulation) -> int:
    """Serve with two frames until a sequence waits for its fence: its key."""
    for _ in range(400):
        while simulation.launch():
            pass
        for key, phase in phases(simulation).items():
            if phase == Phase.PREEMPTING.value:
                return key
        simulation.retire()
    raise AssertionError("nobody was preempted")


def test_a_sequence_that_waits_for_pages_and_is_cancelled_holds_nobody_up() -> None:
    """Nobody enters before one that is short of pages; but it has to be there still."""
    simulation = Simulation(n_slots=2, n_pages=6, n_rows=0)
    for key in range(2):
        simulation.submit(key, GenerationRequest(prompt(30, key), 60))
    assert until_preempting(simulation) == 1
    simulation.cancel(0)
    while simulation.in_flight:
        simulation.retire()
    simulation.run()
    assert simulation.tokens(1) == tokens_alone(simulation.requests[1])
