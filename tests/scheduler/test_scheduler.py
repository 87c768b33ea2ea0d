"""The scheduler against a device that hashes: whatever it does, every request gets the tokens that it gets alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import ContextLengthError, DeviceError, InvalidValueError, ShuttingDownError
from helios.scheduler.programs import RoundKind
from helios.scheduler.request import Failed, Finished, FinishReason, GenerationRequest
from helios.scheduler.scheduler import Scheduler
from tests.scheduler.hashing_device import VOCABULARY, score
from tests.scheduler.requests import CONTEXT, requests, scores_alone, tokens_alone
from tests.scheduler.simulation import Simulation, make_programs


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(requests, st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(6, 30),
    st.sampled_from([4, 16, 40]),
    st.integers(1, 2),
)
def test_every_request_gets_the_tokens_it_gets_alone(
    arrivals: list[tuple[GenerationRequest, int]], n_slots: int, n_pages: int, chunk: int, frames: int
) -> None:
    """RT-1, CACHE-1, SPEC-7: batch, chunks, arrival order, page pressure and frames change nothing."""
    simulation = Simulation(n_slots, n_pages, chunk, frames)
    for key, (request, n_steps) in enumerate(arrivals):
        simulation.submit(key, request)
        for _ in range(n_steps):
            if not simulation.launch() and simulation.in_flight:
                simulation.retire()
    simulation.run()
    for key, (request, _) in enumerate(arrivals):
        assert simulation.tokens(key) == tokens_alone(request, CONTEXT)
        assert simulation.scores(key) == scores_alone(request)
        ending = simulation.ending(key)
        if isinstance(ending, Finished):
            assert ending.usage.output_tokens == len(simulation.tokens(key))
    assert simulation.is_empty()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(requests, st.integers(0, 30)), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_cancelling_in_any_phase_frees_everything_and_changes_nobody(
    arrivals: list[tuple[GenerationRequest, int]], random: object
) -> None:
    """SPEC-8, CACHE-6, HTTP-2: the cancelled request ends at once; its slot and pages follow at the last fence."""
    simulation = Simulation(n_slots=3, n_pages=18)
    cancelled = set(range(0, len(arrivals), 2))
    for key, (request, _) in enumerate(arrivals):
        simulation.submit(key, request)
    for key in sorted(cancelled):
        for _ in range(arrivals[key][1]):
            if not simulation.launch() and simulation.in_flight:
                simulation.retire()
        simulation.cancel(key)
        simulation.cancel(key)
        simulation.ending(key)
    simulation.run()
    for key, (request, _) in enumerate(arrivals):
        alone = tokens_alone(request, CONTEXT)
        tokens = simulation.tokens(key)
        assert tokens == (alone[: len(tokens)] if key in cancelled else alone)
        simulation.ending(key)
    assert simulation.is_empty()


def test_a_long_prompt_does_not_stall_running_streams() -> None:
    """HTTP-2: a decoding stream has a token in every round while a long prompt is prefilled in chunks."""
    simulation = Simulation(chunk=8, frames=1)
    simulation.submit(0, GenerationRequest((1, 2), 40))
    simulation.launch()
    simulation.retire()
    simulation.submit(1, GenerationRequest(tuple(range(60)), 4))
    for n_tokens in range(2, 8):
        simulation.launch()
        simulation.retire()
        assert len(simulation.tokens(0)) == n_tokens


def test_a_prompt_is_prefilled_while_streams_are_decoding() -> None:
    """HTTP-2: running streams do not keep a new prompt waiting either."""
    simulation = Simulation(chunk=8, frames=1)
    simulation.submit(0, GenerationRequest((1, 2), 60))
    simulation.launch()
    simulation.retire()
    simulation.submit(1, GenerationRequest(tuple(range(20)), 4))
    for _ in range(3):
        simulation.launch()
        simulation.retire()
    assert simulation.tokens(1)


def test_long_prompts_share_the_prefill_budget() -> None:
    """Of two long prompts and a short one behind them, nobody waits for another's whole prompt."""
    simulation = Simulation(chunk=16, frames=1)
    for key, n_prompt in enumerate([90, 90, 3]):
        simulation.submit(key, GenerationRequest(tuple(range(key, key + n_prompt)), 2))
    round_ = simulation.scheduler.plan()
    assert round_ is not None
    assert [lane.query_length for lane in round_.lanes] == [6, 7, 3]


def test_requests_wait_for_pages_in_order_of_arrival() -> None:
    """HTTP-3: page shortage waits; nobody overtakes, not even a request that would fit."""
    simulation = Simulation(n_slots=4, n_pages=6, chunk=32)
    simulation.submit(0, GenerationRequest(tuple(range(50)), 14))
    for _ in range(3):
        simulation.launch()
        simulation.retire()
    simulation.submit(1, GenerationRequest(tuple(range(10, 60)), 30))
    simulation.submit(2, GenerationRequest((2, 3), 10))
    for _ in range(8):
        simulation.launch()
        simulation.retire()
        assert simulation.statistic("requests_waiting") == 2
    simulation.run()
    assert [isinstance(simulation.ending(key), Finished) for key in range(3)] == [True] * 3


def test_a_host_decided_request_has_one_round_outstanding() -> None:
    """STOP-3: while a string stop is active the next round, of anybody, waits for the decision."""
    simulation = Simulation()
    simulation.submit(0, GenerationRequest((1,), 20, host_stop=lambda token: False))
    simulation.submit(1, GenerationRequest((2,), 40))
    n_most = 0
    while simulation.scheduler.has_work:
        while simulation.launch():
            pass
        if 0 not in simulation.events or not isinstance(simulation.events[0][-1], Finished):
            n_most = max(n_most, len(simulation.in_flight))
        simulation.retire()
    assert n_most == 1
    assert len(simulation.tokens(0)) == 20
    assert len(simulation.tokens(1)) == 40


def test_an_end_token_wins_over_a_host_stop() -> None:
    """FE-7: EOS, output limit and user stop stay distinct."""
    first = tokens_alone(GenerationRequest((1,), 1), CONTEXT)[0]
    reasons = {}
    for key, (eos, stop) in enumerate([((first,), True), ((), True), ((), False)]):
        simulation = Simulation()
        simulation.submit(key, GenerationRequest((1,), 1, eos, host_stop=lambda token, stop=stop: stop))
        simulation.run()
        ending = simulation.ending(key)
        assert isinstance(ending, Finished)
        reasons[key] = ending.reason
    assert reasons == {0: FinishReason.EOS, 1: FinishReason.STOP, 2: FinishReason.LIMIT}


def test_an_ended_request_is_in_no_later_round() -> None:
    """SPEC-8: what has ended drains, and takes no more of the device's time."""
    simulation = Simulation()
    simulation.submit(0, GenerationRequest((1,), 20))
    while len(simulation.in_flight) < 2:
        if not simulation.launch():
            simulation.retire()
    n_rounds = simulation.statistic("rounds_total")
    simulation.cancel(0)
    assert simulation.scheduler.plan() is None
    simulation.retire()
    assert not simulation.is_empty()
    simulation.retire()
    assert simulation.is_empty()
    assert not simulation.scheduler.has_work
    assert simulation.statistic("rounds_total") == n_rounds


def test_a_slot_has_a_new_generation_for_every_request() -> None:
    """CON-9: a late completion of an earlier owner can be told from the present one's."""
    simulation = Simulation(n_slots=1)
    generations = []
    for key in range(3):
        simulation.submit(key, GenerationRequest((1,), 1))
        simulation.launch()
        generations.append(simulation.in_flight[0].lanes[0].generation)
        simulation.run()
    assert len(set(generations)) == 3


@pytest.mark.parametrize("n_prompt", [0, CONTEXT, CONTEXT + 1])
def test_a_prompt_that_can_never_fit_is_refused_at_once(n_prompt: int) -> None:
    """RT-7: requests outside the prepared capacities fail admission."""
    with pytest.raises(ContextLengthError):
        Simulation().scheduler.submit(0, GenerationRequest(tuple([1] * n_prompt), 1))


def test_generation_that_fills_the_context_ends_with_the_limit() -> None:
    """SPEC-2: output is bounded by the context."""
    simulation = Simulation()
    simulation.submit(0, GenerationRequest(tuple(range(CONTEXT - 3)), 1000))
    simulation.run()
    assert len(simulation.tokens(0)) == 3
    ending = simulation.ending(0)
    assert isinstance(ending, Finished)
    assert ending.reason is FinishReason.LIMIT


def test_scored_prompts_take_turns_with_running_streams() -> None:
    """HTTP-2: neither holds the other up."""
    simulation = Simulation(frames=1)
    simulation.submit(0, GenerationRequest((1, 2), 40))
    simulation.launch()
    simulation.retire()
    simulation.submit(1, GenerationRequest(tuple(range(60)), 4, prompt_candidates=3))
    kinds = []
    while not simulation.tokens(1):
        simulation.launch()
        kinds.append({lane.is_scored for lane in simulation.in_flight[-1].lanes})
        simulation.retire()
    assert kinds == [{True}, {False}] * 5 + [{True}]  # 11 tokens a round
    assert simulation.scores(1) == scores_alone(simulation.requests[1])


def test_what_is_not_scored_yet_is_computed_though_it_is_cached() -> None:
    """A reused token would have no score; what was computed for one is reused by others."""
    simulation = Simulation()
    plain = GenerationRequest(tuple(range(50)), 3)
    for key, request in enumerate([plain, replace(plain, prompt_candidates=0), plain]):
        simulation.submit(key, request)
        simulation.run()
    usages = [ending.usage for ending in map(simulation.ending, range(3)) if isinstance(ending, Finished)]
    assert [usage.reused_prompt_tokens for usage in usages] == [0, 0, 49]
    assert simulation.scores(1) == scores_alone(simulation.requests[1])


def test_a_core_that_scores_no_prompts_says_so() -> None:
    """RT-7: a request outside what was prepared fails admission."""
    simulation = Simulation()
    programs = make_programs(4, 16)
    programs._programs[RoundKind.SCORED_PREFILL] = []
    scheduler = Scheduler(simulation.scheduler._limits, programs, simulation.cache, simulation.clock)
    with pytest.raises(InvalidValueError, match="no program that scores prompts"):
        scheduler.submit(0, GenerationRequest((1, 2), 1, prompt_candidates=0))


@pytest.mark.parametrize("change", ["lost", "extra"])
def test_scores_that_were_not_asked_for_and_missing_ones_are_device_errors(change: str) -> None:
    """CACHE-4."""
    simulation = Simulation()
    simulation.submit(0, GenerationRequest((1, 2, 3), 4, prompt_candidates=None if change == "extra" else 0))
    round_ = simulation.scheduler.plan()
    assert round_ is not None
    simulation.device.launch(round_)
    _, (completion,) = simulation.device.complete()
    scores = (score((1,), 2),) if change == "extra" else completion.scores[1:]
    with pytest.raises(DeviceError, match="number of scores"):
        simulation.scheduler.retire(round_, [completion._replace(scores=scores)])


FAULTS = [
    {"slot": 3},
    {"generation": 9},
    {"offered": 1},
    {"accepted": 1},
    {"emitted": 0},
    {"emitted": 2},
    {"consumed": 1},
    {"draft_cursor": 0},
    {"reserved_model": 0},
    {"finish": 7},
    {"token": VOCABULARY},
    {"token": -1},
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_completion_that_is_not_what_was_asked_changes_nothing(fault: dict[str, int]) -> None:
    """CACHE-4: every field is checked before any request state changes."""
    simulation = Simulation()
    for key in range(2):
        simulation.submit(key, GenerationRequest((1, 2, 3), 5))
    simulation.launch()
    round_, completions = simulation.device.complete()
    before = simulation.scheduler.statistics()
    with pytest.raises(DeviceError):
        simulation.scheduler.retire(round_, [completions[0], completions[1]._replace(**fault)])
    assert simulation.scheduler.statistics() == before
    assert simulation.events == {}


def test_a_timed_request_learns_when_its_tokens_were_validated() -> None:
    """OBS-2: by the scheduler's clock, one reading a round; nobody else's tokens carry a time."""
    simulation = Simulation()
    for key, is_timed in enumerate([True, False]):
        simulation.submit(key, GenerationRequest((1, key), 5, is_timed=is_timed))
    simulation.run()
    times, others = ([event.completed_s for event in simulation.events[key][:-1]] for key in range(2))  # type: ignore[union-attr]
    assert others == [None] * 5
    assert None not in times
    assert times == sorted(set(times))


def test_a_dead_device_ends_every_request_once() -> None:
    """HTTP-3: model and device errors reach every unfinished request, and no finished one."""
    simulation = Simulation(n_slots=2)
    for key in range(5):
        simulation.submit(key, GenerationRequest((key,), 1 if key == 0 else 20))
    simulation.launch()
    simulation.retire()
    simulation.take(simulation.scheduler.fail_all(ShuttingDownError()))
    kinds = [type(simulation.ending(key)) for key in range(5)]
    assert kinds == [Finished, Failed, Failed, Failed, Failed]
