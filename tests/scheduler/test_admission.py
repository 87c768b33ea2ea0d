"""Who enters, with how much of its prefix: reuse, salts, promises, reloads."""

from __future__ import annotations

from typing import Any

import pytest

from helios.cache.holding import Match
from helios.scheduler.request import Finished, GenerationRequest
from helios.scheduler.sequence import Phase
from tests.scheduler.hashing_device import VOCABULARY
from tests.scheduler.requests import tokens_alone
from tests.scheduler.simulation import Simulation

LONG = tuple((3 * i * i + i) % VOCABULARY for i in range(70))


def reused(simulation: Simulation, key: int) -> int:
    ending = simulation.ending(key)
    assert isinstance(ending, Finished)
    assert simulation.tokens(key) == tokens_alone(simulation.requests[key])
    return ending.usage.reused_prompt_tokens


def serve(simulation: Simulation, key: int, request: GenerationRequest) -> int:
    """Serve it alone: how many of its prompt tokens were reused."""
    simulation.submit(key, request)
    simulation.run()
    return reused(simulation, key)


@pytest.mark.parametrize(("n_rows", "n_reused"), [(0, 64), (4, 69)])
def test_a_repeated_prompt_is_computed_from_its_last_token_on(n_rows: int, n_reused: int) -> None:
    """CACHE-5: whole pages without snapshot rows; with them every token but the one that has to be computed."""
    simulation = Simulation(n_rows=n_rows)
    assert serve(simulation, 0, GenerationRequest(LONG, 3)) == 0
    assert serve(simulation, 1, GenerationRequest(LONG, 3)) == n_reused
    assert simulation.statistic("reused_prompt_tokens_total") == n_reused
    assert simulation.statistic("computed_prompt_tokens_total") == 70 + 70 - n_reused


@pytest.mark.parametrize("is_recurrent", [False, True])
def test_the_second_turn_of_a_chat_computes_only_its_new_tokens(is_recurrent: bool) -> None:
    """CACHE-5: the snapshot of the answer's end holds all but the last token, which was never consumed."""
    simulation = Simulation(is_recurrent=is_recurrent)
    simulation.submit(0, GenerationRequest(LONG[:40], 10))
    simulation.run()
    history = LONG[:40] + tuple(simulation.tokens(0))
    simulation.submit(1, GenerationRequest((*history, 5, 6, 7), 4))
    simulation.run()
    ending = simulation.ending(1)
    assert isinstance(ending, Finished)
    assert ending.usage.reused_prompt_tokens == len(history) - 1 == 49
    assert simulation.tokens(1) == tokens_alone(simulation.requests[1], is_recurrent=is_recurrent)


def test_prefixes_are_not_shared_across_salts() -> None:
    """CACHE-3: `cache_salt` keeps tenants apart, and the same salt together."""
    simulation = Simulation()
    assert serve(simulation, 0, GenerationRequest(LONG, 3, cache_salt="a")) == 0
    assert serve(simulation, 1, GenerationRequest(LONG, 3, cache_salt="b")) == 0
    assert serve(simulation, 2, GenerationRequest(LONG, 3)) == 0
    assert serve(simulation, 3, GenerationRequest(LONG, 3, cache_salt="a")) == 69


def test_a_request_that_bypasses_the_cache_neither_reads_nor_publishes() -> None:
    simulation = Simulation()
    assert serve(simulation, 0, GenerationRequest(LONG, 3, uses_cache=False)) == 0
    assert simulation.cache.n_free_pages == simulation.cache.shape.n_pages
    assert serve(simulation, 1, GenerationRequest(LONG, 3)) == 0
    assert serve(simulation, 2, GenerationRequest(LONG, 3, uses_cache=False)) == 0


def test_requests_with_one_prefix_wait_for_it_and_let_others_pass() -> None:
    """Of eight that share a prefix one computes it; a stranger behind them does not wait."""
    simulation = Simulation(n_slots=8, n_pages=60, chunk=16, n_rows=0)
    for key in range(8):
        simulation.submit(key, GenerationRequest((*LONG[:64], key), 4))
    simulation.submit(8, GenerationRequest((1, 2), 1))
    simulation.launch()
    assert simulation.statistic("requests_running") == 2
    simulation.run()
    assert [reused(simulation, key) for key in range(9)] == [0] + [64] * 7 + [0]
    assert simulation.statistic("computed_prompt_tokens_total") == 65 + 7 + 2


def test_waiting_for_a_prefix_costs_no_look_up_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 11: thirty that wait must not take the host's time from the one that computes."""
    simulation = Simulation(n_slots=4, n_pages=60, chunk=4, n_rows=0)
    n_look_ups = 0
    look_up = simulation.cache.lookup

    def counted(*arguments: Any, **options: Any) -> Match:
        nonlocal n_look_ups
        n_look_ups += 1
        return look_up(*arguments, **options)

    monkeypatch.setattr(simulation.cache, "lookup", counted)
    for key in range(3):
        simulation.submit(key, GenerationRequest((*LONG[:64], key), 4))
    simulation.run()
    assert [reused(simulation, key) for key in range(3)] == [0, 64, 64]
    assert (
        n_look_ups < 2 * 3 + 4
    )  # one for each to begin with, one when the promise was kept; not one for each of 16 chunks


def test_a_promise_that_is_broken_holds_nobody_up() -> None:
    """SPEC-8: the one that computes a shared prefix may be cancelled; the next one computes it."""
    simulation = Simulation(n_slots=3, chunk=16, n_rows=0)
    for key in range(3):
        simulation.submit(key, GenerationRequest((*LONG[:64], key), 4))
    simulation.launch()
    simulation.cancel(0)
    simulation.run()
    assert [reused(simulation, key) for key in (1, 2)] == [0, 64]


def evicted(simulation: Simulation) -> None:
    """The pages of request 0 are in host memory only."""
    serve(simulation, 0, GenerationRequest(LONG, 3))
    for key in range(1, 4):
        serve(simulation, key, GenerationRequest(tuple((key + 11 * i) % VOCABULARY for i in range(80)), 3))
    simulation.finish_transfers()


def test_a_prefix_in_host_memory_comes_back() -> None:
    """CACHE-3: the request waits for the copies only, and computes what they do not hold."""
    simulation = Simulation(n_slots=1, n_pages=7, n_rows=2, n_host_pages=40, n_host_rows=4)
    evicted(simulation)
    simulation.submit(9, GenerationRequest(LONG, 3))
    assert simulation.plan() is None
    assert [s.phase for s in simulation.scheduler._roster.active] == [Phase.RELOADING]
    assert simulation.scheduler.is_waiting
    assert simulation.device.copying
    simulation.run()
    assert reused(simulation, 9) in (64, 69)


def test_recomputing_is_chosen_where_copies_are_known_to_take_longer() -> None:
    """CACHE-3: readmission by restore or by recomputation, whichever the cost record says is cheaper."""
    simulation = Simulation(n_slots=1, n_pages=7, n_rows=0, n_host_pages=40)
    evicted(simulation)
    for _ in range(100):
        simulation.scheduler._costs.observe_reload(100.0)
    simulation.submit(9, GenerationRequest(LONG, 3))
    assert simulation.launch()
    assert not any(not transfer.is_offload for transfer in simulation.device.copying)
    simulation.run()
    assert reused(simulation, 9) < 64


def test_a_stopped_answer_is_not_published_and_its_prompt_is() -> None:
    """STOP-3: the private publication candidate is dropped after its fence; earlier cached prefixes stay."""
    simulation = Simulation(n_slots=1)
    alone = tokens_alone(GenerationRequest(LONG[:40], 30))
    simulation.submit(0, GenerationRequest(LONG[:40], 30, host_stop=lambda token, left=[25]: _countdown(left)))
    simulation.run()
    history = LONG[:40] + tuple(simulation.tokens(0))
    assert simulation.tokens(0) == alone[:25]
    simulation.submit(1, GenerationRequest((*history, 1), 1))
    simulation.run()
    assert reused(simulation, 1) == 40


def test_a_cancelled_answer_is_not_published_and_its_prompt_is() -> None:
    """SPEC-8: cancellation suppresses publication."""
    simulation = Simulation(n_slots=1)
    simulation.submit(0, GenerationRequest(LONG[:40], 30))
    while len(simulation.tokens(0)) < 25:
        if not simulation.launch():
            simulation.retire()
    history = LONG[:40] + tuple(simulation.tokens(0))
    simulation.cancel(0)
    simulation.run()
    assert serve(simulation, 1, GenerationRequest((*history, 1), 1)) == 40


def test_a_prompt_that_is_cancelled_with_its_last_round_publishes_no_snapshot() -> None:
    """SPEC-8: its round was verified after the cancellation."""
    simulation = Simulation(n_slots=1, chunk=64)
    simulation.submit(0, GenerationRequest(LONG[:40], 30))
    simulation.launch()
    assert simulation.in_flight[0].snapshots
    simulation.cancel(0)
    simulation.run()
    assert simulation.statistic("snapshots_saved_total") == 0
    assert simulation.cache.n_free_pages == simulation.cache.shape.n_pages


def _countdown(left: list[int]) -> bool:
    left[0] -= 1
    return left[0] == 0


def test_prompts_go_on_behind_a_boundary_of_another() -> None:
    """FE-4, CACHE-5: recurrent state has no past, so what two prompts share is of use where it was saved, and only there."""
    for boundaries, n_reused in (((), 0), ((37,), 37), ((20, 37), 37), ((20,), 20)):
        simulation = Simulation(is_recurrent=True)
        simulation.submit(0, GenerationRequest(LONG, 3, boundaries=boundaries))
        simulation.run()
        simulation.submit(1, GenerationRequest((*LONG[:37], 1, 2, 3), 3))
        simulation.run()
        ending = simulation.ending(1)
        assert isinstance(ending, Finished)
        assert ending.usage.reused_prompt_tokens == n_reused
        for key in (0, 1):
            assert simulation.tokens(key) == tokens_alone(simulation.requests[key], is_recurrent=True)
