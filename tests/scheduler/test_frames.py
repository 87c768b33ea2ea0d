"""Which rounds share the two frames, and how long a round with prompts may take."""

from __future__ import annotations

import pytest

from helios.errors import DeviceError, InvalidValueError
from helios.scheduler.costs import STALE_S
from helios.scheduler.request import Failed, GenerationRequest
from helios.scheduler.shares import LEAST_PROMPT_TOKENS
from tests.scheduler.requests import Rule, StopAfter, tokens_alone
from tests.scheduler.simulation import Clock, Simulation


def decoding(*requests: GenerationRequest, **options: object) -> Simulation:
    """All of them sample, and what that costs is known."""
    simulation = Simulation(n_slots=max(4, len(requests)), **options)  # type: ignore[arg-type]
    for key, request in enumerate(requests):
        simulation.submit(key, request)
    while not all(simulation.tokens(key) for key in range(len(requests))):
        simulation.launch()
        simulation.retire()
    for _ in range(4):
        simulation.launch()
        simulation.retire()
    while simulation.in_flight:
        simulation.retire()
    return simulation


def n_launched(simulation: Simulation) -> int:
    while simulation.launch():
        pass
    return len(simulation.in_flight)


def test_decode_rounds_of_known_cost_use_both_frames() -> None:
    """SPEC-7: compatible decode programs may occupy both execution frames, and there is no third."""
    assert n_launched(decoding(GenerationRequest((1,), 40), GenerationRequest((2,), 40), frames=3)) == 2


def test_a_stale_cost_needs_a_completion_first() -> None:
    """SPEC-7: unknown or stale costs need completion feedback first."""
    clock = Clock()
    simulation = decoding(GenerationRequest((1,), 60), clock=clock)
    clock.now_s += 2 * STALE_S
    assert n_launched(simulation) == 1
    simulation.retire()
    assert n_launched(simulation) == 1  # the next larger program is stale too
    simulation.retire()
    assert n_launched(simulation) == 2


def test_a_round_with_a_prompt_is_alone() -> None:
    """SPEC-7: operations that change phase require completion feedback."""
    simulation = decoding(GenerationRequest((1,), 60))
    simulation.submit(1, GenerationRequest(tuple(range(40)), 5))
    while any(lane.is_prompt for lane in (simulation.in_flight or [simulation.plan()])[0].lanes):  # type: ignore[union-attr]
        assert len(simulation.in_flight) == 1
        assert simulation.plan() is None
        simulation.retire()


@pytest.mark.parametrize("field", ["host_stop", "constraint"])
def test_a_host_decided_lane_is_in_the_only_round_in_flight(field: str) -> None:
    """STOP-3, SPEC-7, MET-2: right after the submission of such a round exactly one frame is in use; free lanes share it."""
    decision = {"host_stop": StopAfter(30), "constraint": Rule(3)}[field]
    free = GenerationRequest((1,), 90)
    simulation = decoding(free, GenerationRequest((2,), 30, **{field: decision}))  # type: ignore[arg-type]
    n_shared = 0
    while simulation.scheduler.has_work:
        while simulation.launch():
            if any(lane.sequence.is_host_decided for lane in simulation.in_flight[-1].lanes):
                assert len(simulation.in_flight) == 1
                n_shared += len(simulation.in_flight[-1].lanes) == 2
        simulation.retire()
    assert n_shared > 20
    is_constrained = field == "constraint"
    assert simulation.statistic("flare_constrained_max_inflight") == int(is_constrained)
    assert (simulation.statistic("flare_mixed_grammar_decode_steps_total") > 20) == is_constrained
    for key in range(2):
        assert simulation.tokens(key) == tokens_alone(simulation.requests[key])


def test_a_constraint_masks_every_sample_and_no_other() -> None:
    """The mask travels with the lane that samples: a prompt's last part, then every token."""
    simulation = Simulation(chunk=4, frames=1)
    simulation.submit(0, GenerationRequest((1, 2, 3, 4, 5, 6), 5, constraint=Rule(3)))
    masks = []
    while simulation.launch():
        masks += [(lane.is_sampled, lane.mask is not None) for lane in simulation.in_flight[-1].lanes]
        simulation.retire()
    assert [is_sampled for is_sampled, _ in masks] == [False, True, True, True, True, True]
    assert not masks[0][1]
    assert masks[1][1]
    assert simulation.tokens(0) == tokens_alone(simulation.requests[0])


def test_a_constraint_that_fails_ends_its_own_request_only() -> None:
    """A HeliosError of a constraint is that request's ending; its neighbours do not notice."""
    simulation = Simulation()
    simulation.submit(0, GenerationRequest((1,), 20))
    simulation.submit(1, GenerationRequest((2,), 20, constraint=Rule(3, n_most=5)))
    simulation.run()
    ending = simulation.ending(1)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, InvalidValueError)
    assert len(simulation.tokens(1)) == 5
    assert simulation.tokens(0) == tokens_alone(simulation.requests[0])
    assert simulation.is_empty()


def test_a_constraint_that_fails_at_once_refuses_the_request() -> None:
    """Its first mask is made when the request is queued."""

    class Broken(Rule):
        def mask(self) -> None:
            raise InvalidValueError("no such grammar")

    simulation = Simulation()
    with pytest.raises(InvalidValueError):
        simulation.scheduler.submit(0, GenerationRequest((2,), 20, constraint=Broken(3)))
    assert not simulation.scheduler.has_work


def test_rounds_complete_in_the_order_of_their_launches() -> None:
    """CACHE-4: submission order is checked before anything is believed."""
    simulation = decoding(GenerationRequest((1,), 40))
    assert n_launched(simulation) == 2
    first, second = (simulation.device.complete() for _ in range(2))
    before = simulation.scheduler.statistics()["output_tokens_total"]
    with pytest.raises(DeviceError, match="out of order"):
        simulation.scheduler.retire(*second)
    assert simulation.statistic("output_tokens_total") == before
    simulation.take(simulation.scheduler.retire(*first))
    simulation.take(simulation.scheduler.retire(*second))


@pytest.mark.parametrize("prompt_candidates", [None, 2], ids=["plain", "scored"])
@pytest.mark.parametrize("token_s", [0.0001, 0.002, 0.5])
def test_a_long_prompt_keeps_the_gap_of_running_streams(token_s: float, prompt_candidates: int | None) -> None:
    """The time between two tokens of a stream stays under the target by measured costs, and prompts go on however slow it is."""
    clock = Clock(tick_s=0.0)
    simulation = Simulation(n_slots=4, n_pages=60, chunk=80, frames=1, n_rows=0, clock=clock)
    simulation.submit(0, GenerationRequest((1, 2), 90))
    waited_s, n_prompt_rows = 0.0, 0
    gaps: list[tuple[int, float]] = []

    def step() -> None:
        nonlocal waited_s, n_prompt_rows
        n_before = len(simulation.tokens(0))
        simulation.launch()
        n_rows = sum(lane.query_length for lane in simulation.in_flight[0].lanes if lane.is_prompt)
        duration_s = 0.005 + token_s * n_rows
        clock.now_s += duration_s
        waited_s, n_prompt_rows = waited_s + duration_s, n_prompt_rows + n_rows
        simulation.retire()
        if len(simulation.tokens(0)) > n_before:
            gaps.append((n_prompt_rows, waited_s))
            waited_s, n_prompt_rows = 0.0, 0

    for _ in range(6):
        step()
    for key in range(1, 5):
        prompt = tuple((key + i * i) % 90 for i in range(80))
        simulation.submit(key, GenerationRequest(prompt, 1, prompt_candidates=prompt_candidates))
        if key == 3:  # those before it were measured, and the first is over
            gaps.clear()
        while key not in simulation.events:
            step()
    assert any(n_rows for n_rows, _ in gaps)
    assert all(gap_s <= 0.1 * 1.05 or n_rows <= LEAST_PROMPT_TOKENS for n_rows, gap_s in gaps)
    assert simulation.tokens(0) == tokens_alone(simulation.requests[0])[: len(simulation.tokens(0))]
