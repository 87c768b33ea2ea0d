"""Page shortage: who waits, who gives up pages, who comes back, and that everything ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helios.scheduler.request import Finished, FinishReason, GenerationRequest
from helios.scheduler.sequence import Phase
from tests.scheduler.hashing_device import VOCABULARY
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
    """SPEC-8: the pages that were given up for it are there for the others."""
    simulation = Simulation(n_slots=2, n_pages=6, n_rows=0)
    for key in range(2):
        simulation.submit(key, GenerationRequest(prompt(30, key), 60))
    assert until_preempting(simulation) == 1
    simulation.cancel(0)
    while simulation.in_flight:
        simulation.retire()
    simulation.run()
    assert simulation.tokens(1) == tokens_alone(simulation.requests[1])


def test_the_youngest_of_the_lowest_priority_gives_up_its_pages() -> None:
    """CACHE-3: not the requester, not an older one, not one of a better priority."""
    simulation = Simulation(n_slots=4, n_pages=8, n_rows=0)
    for key, priority in enumerate([1, 0, 1, 0]):
        simulation.submit(key, GenerationRequest(prompt(20, key), 60, priority=priority))
    assert until_preempting(simulation) == 2
    simulation.run()
    assert [simulation.tokens(key) == tokens_alone(simulation.requests[key]) for key in range(4)] == [True] * 4


def test_the_first_in_order_is_never_preempted() -> None:
    """Progress: whatever comes, the first in order goes on, so everything ends."""
    simulation = Simulation(n_slots=4, n_pages=6, n_rows=0)
    for key in range(4):
        simulation.submit(key, GenerationRequest(prompt(20, key), CONTEXT))
    firsts: list[int] = []
    while simulation.scheduler.has_work:
        while simulation.launch():
            pass
        present = phases(simulation)
        firsts.append(min(present))
        assert present[min(present)] not in (Phase.PREEMPTING.value, Phase.QUEUED.value)
        simulation.retire()
    assert set(firsts) == {0, 1, 2, 3}
    assert simulation.statistic("preemptions_total") > 0


@pytest.mark.parametrize("n_prompt", [1, 15, 16, 17, 47, 48, 95])
@pytest.mark.parametrize("n_rows", [0, 2])
def test_one_request_may_fill_the_whole_cache(n_prompt: int, n_rows: int) -> None:
    """RT-7: a single request that fits the model's limits always finishes, however full the cache is of other things."""
    simulation = Simulation(n_slots=3, n_pages=6, n_rows=n_rows, n_host_pages=4)
    for key in range(4):
        simulation.submit(key, GenerationRequest(prompt(40 + key, key), 20))
    simulation.run()
    assert simulation.cache.n_free_pages < 6
    simulation.submit(9, GenerationRequest(prompt(n_prompt, 9), CONTEXT))
    simulation.run()
    assert len(simulation.tokens(9)) == CONTEXT - n_prompt


def test_a_preempted_sequence_finds_its_own_pages_again() -> None:
    """CACHE-3: its complete pages are published before they are given up; tokens are delivered once, and counted once."""
    simulation = Simulation(n_slots=2, n_pages=8, n_rows=0)
    for key, n_output in enumerate([36, 50]):  # the first ends soon after it has taken a page of the second
        simulation.submit(key, GenerationRequest(prompt(30, key), n_output))
    assert until_preempting(simulation) == 1
    simulation.run()
    assert simulation.statistic('readmissions_total{by="restore"}') == simulation.statistic("preemptions_total") == 1
    assert simulation.statistic("computed_prompt_tokens_total") <= 30 + 30 + 18  # of 65 tokens, three pages were there
    for key, n_output in enumerate([36, 50]):
        ending = simulation.ending(key)
        assert isinstance(ending, Finished)
        assert simulation.tokens(key) == tokens_alone(simulation.requests[key])
        assert (ending.usage.output_tokens, ending.usage.reused_prompt_tokens) == (n_output, 0)


def test_a_preempted_sequence_comes_back_when_its_whole_context_fits() -> None:
    """It does not lose the same pages again at once: pages for its next round would be there long before."""
    simulation = Simulation(n_slots=2, n_pages=6, n_rows=0, chunk=4)
    simulation.submit(0, GenerationRequest(prompt(30, 0), 66))
    simulation.submit(1, GenerationRequest(prompt(30, 1), 50, uses_cache=False))
    simulation.run()
    assert simulation.statistic('readmissions_total{by="recompute"}') == simulation.statistic("preemptions_total") == 1
    assert simulation.tokens(1) == tokens_alone(simulation.requests[1])


def test_a_string_stop_sees_each_token_once_across_a_preemption() -> None:
    """STOP-3: the stop's state lives on the host; what the device computes again was seen before."""
    simulation = Simulation(n_slots=2, n_pages=6, n_rows=0)
    simulation.submit(0, GenerationRequest(prompt(30, 0), 60))
    simulation.submit(1, GenerationRequest(prompt(30, 1), 60, host_stop=StopAfter(40)))
    simulation.run()
    assert simulation.statistic("preemptions_total") > 0
    ending = simulation.ending(1)
    assert isinstance(ending, Finished)
    assert (ending.reason, len(simulation.tokens(1))) == (FinishReason.STOP, 40)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_sequence_that_ends_while_it_is_preempted_has_ended(is_cancelled: bool) -> None:
    """SPEC-8: its last token may be its last, or its client may go, while it waits for the fence."""
    endings = set()
    for n_output in range(1, 30):
        simulation = Simulation(n_slots=2, n_pages=6, n_rows=2)
        simulation.submit(0, GenerationRequest(prompt(30, 0), 60))
        simulation.submit(1, GenerationRequest(prompt(30, 1), n_output))
        for _ in range(200):
            while simulation.launch():
                pass
            if phases(simulation).get(1) == Phase.PREEMPTING.value:
                if is_cancelled:
                    simulation.cancel(1)
                simulation.retire()
                if 1 not in phases(simulation) or phases(simulation)[1] not in ("preempting", "queued"):
                    endings.add(n_output)
            elif simulation.in_flight:
                simulation.retire()
        simulation.run()
        ending = simulation.ending(1)
        assert isinstance(ending, Finished)
        if ending.reason is not FinishReason.CANCELLED:
            assert simulation.tokens(1) == tokens_alone(simulation.requests[1])
        assert simulation.is_empty()
    assert endings  # it was seen


def test_a_better_priority_displaces_a_lower_one() -> None:
    """Priorities: lower numbers run sooner, also than those that run already."""
    simulation = Simulation(n_slots=1, n_pages=12, n_rows=0)
    simulation.submit(0, GenerationRequest(prompt(10, 0), 30, priority=1))
    for _ in range(5):
        simulation.launch()
        simulation.retire()
    simulation.submit(1, GenerationRequest(prompt(10, 1), 3, priority=0))
    simulation.submit(2, GenerationRequest(prompt(10, 2), 3, priority=1))
    order: list[int] = []
    while simulation.scheduler.has_work:
        while simulation.launch():
            pass
        simulation.retire()
        ended = [key for key, events in simulation.events.items() if isinstance(events[-1], Finished)]
        order += [key for key in ended if key not in order]
    assert order == [1, 0, 2]
    assert simulation.tokens(0) == tokens_alone(simulation.requests[0])


def crowd(phase: str) -> Simulation:
    """Requests over three prompts, and not the pages for all of them: `phase` comes up."""
    is_small = phase == "preempting"  # write-backs under way are waited for before anybody is preempted
    simulation = Simulation(n_slots=2, n_pages=6 if is_small else 8, n_rows=2, n_host_pages=0 if is_small else 30)
    for key in range(2 if is_small else 8):
        simulation.submit(key, GenerationRequest(prompt(30 + key // 3, key % 3), 34))
    return simulation


def moments(simulation: Simulation) -> Iterator[dict[int, str]]:
    """The phases after each step of serving, with both frames in use and copies that end when nothing else is left."""
    while simulation.scheduler.has_work:
        is_full = simulation.plan() is None
        yield phases(simulation)
        if is_full and simulation.in_flight:
            simulation.retire()
        elif is_full:
            simulation.finish_transfers()
        yield phases(simulation)


@pytest.mark.parametrize("phase", ["queued", "reloading", "prefill", "decode", "preempting", "saving"])
def test_cancelling_frees_slot_and_pages_within_one_round_in_every_phase(phase: str) -> None:
    """SPEC-8, CACHE-6: at the fence of what is in flight the request holds nothing; what it was reloading is let go at its end."""
    simulation = crowd(phase)
    key = next(key for moment in moments(simulation) for key, present in moment.items() if present == phase)
    has_ended = phase == "saving"
    assert len(simulation.events.get(key, [])) > 0 or not has_ended
    simulation.cancel(key)
    if has_ended:  # its client may go; the answer was given, and is saved behind the next round
        simulation.plan()
    while simulation.in_flight:
        simulation.retire()
    assert key not in phases(simulation)
    ending = simulation.ending(key)
    assert isinstance(ending, Finished)
    assert (ending.reason is FinishReason.CANCELLED) != has_ended
    simulation.run()
    simulation.finish_transfers()
    assert simulation.is_empty()
