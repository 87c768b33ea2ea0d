"""Planted faults: each promise of slots, lists and counts, broken once, is noticed by `check`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helios.errors import InternalError
from helios.scheduler.request import FinishReason, GenerationRequest
from helios.scheduler.roster import Roster
from helios.scheduler.sequence import Phase, Sequence
from tests.scheduler.simulation import Simulation


class Scene:
    """One of each: two that decode with a round in flight, one cancelled whose fence has not passed, two in the queue."""

    def __init__(self) -> None:
        self.simulation = Simulation(n_slots=3)
        for key in range(5):
            self.simulation.submit(key, GenerationRequest((key, 1, 2), 40))
        self.simulation.launch()
        self.simulation.retire()
        self.simulation.launch()
        self.simulation.cancel(2)
        self.roster: Roster = self.simulation.scheduler._roster
        self.older, self.younger = self.roster.active
        (self.leaver,) = self.roster.leaving
        self.first, self.last = self.roster.queued
        assert self.leaver.n_in_flight == 1


def _set(name: str, field: str, value: object) -> Callable[[Scene], None]:
    return lambda scene: setattr(getattr(scene, name), field, value)


def _add(name: str, field: str, difference: int = 1) -> Callable[[Scene], None]:
    def plant(scene: Scene) -> None:
        sequence: Sequence = getattr(scene, name)
        setattr(sequence, field, getattr(sequence, field) + difference)

    return plant


FAULTS: dict[str, tuple[Callable[[Scene], object], str]] = {
    "a slot that nobody has": (lambda s: s.roster.leaving.clear(), "slots are lost"),
    "a slot of two": (lambda s: setattr(s.older, "slot", s.younger.slot), "held twice"),
    "a slot in use that is free": (lambda s: s.roster._free_slots.append(s.older.slot), "held twice"),
    "one that is in no list": (lambda s: s.roster.queued.pop(), "sequences are lost"),
    "one that is in two lists": (lambda s: s.roster.queued.append(s.last), "listed twice"),
    "one that no key finds": (lambda s: s.roster.by_key.pop(s.last.key), "listed twice"),
    "one in the queue that has begun": (
        _set("last", "phase", Phase.DECODE),
        "among the queued sequences one is decode",
    ),
    "an active one that is leaving": (_set("older", "phase", Phase.DRAINING), "among the active .* one is draining"),
    "a leaving one that is active": (_set("leaver", "phase", Phase.DECODE), "among the leaving .* one is decode"),
    "a queue out of order": (lambda s: s.roster.queued.reverse(), "out of order"),
    "active ones out of order": (lambda s: s.roster.active.reverse(), "out of order"),
    "one in the queue with pages": (lambda s: setattr(s.last, "holding", s.older.holding), "a queued sequence holds"),
    "one in the queue that is in flight": (_add("last", "n_in_flight"), "a queued sequence .* in flight"),
    "a seat without pages": (_set("younger", "holding", None), "a seated sequence holds no pages"),
    "another generation than the slot's": (_add("younger", "generation"), "another generation"),
    "an end that nobody acts on": (_set("older", "ending", FinishReason.EOS), "still waiting or active"),
    "an end in the queue": (_set("last", "ending", FinishReason.CANCELLED), "still waiting or active"),
    "a leaving one without an end": (_set("leaver", "ending", None), "has no ending"),
    "a preempted one with an end": (_set("leaver", "phase", Phase.PREEMPTING), "a preempted one has"),
    "a round that is not counted": (_add("older", "n_in_flight", -1), "is in 0 rounds by its count"),
    "a round that is counted twice": (_add("leaver", "n_in_flight"), "is in 2 rounds by its count"),
    "positions without pages": (_add("older", "n_positions"), "positions in 1 pages"),
    "positions of a leaving one without pages": (_add("leaver", "n_positions"), "positions in 1 pages"),
    "more consumed than was launched": (_add("older", "n_consumed", 10), "13 tokens consumed"),
    "books that do not balance": (lambda s: s.simulation.cache._pages.device.take(), "24 pages"),
    "more launched than fits": (_add("older", "n_scheduled", 50), "54 launched"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name: str) -> None:
    """SPEC-8, CACHE-6: a check that cannot fail would prove nothing."""
    scene = Scene()
    plant, message = FAULTS[name]
    plant(scene)
    with pytest.raises(InternalError, match=message):
        scene.simulation.scheduler.check()
