"""The phases of a sequence."""

from __future__ import annotations

import itertools

import pytest

from helios.errors import InternalError
from helios.scheduler.request import FinishReason, GenerationRequest
from helios.scheduler.roster import ACTIVE, LEAVING
from helios.scheduler.sequence import TRANSITIONS, Phase, Sequence


def sequence_in(phase: Phase) -> Sequence:
    sequence = Sequence(0, 0, GenerationRequest((1, 2), 5), 5)
    sequence.phase = phase
    return sequence


@pytest.mark.parametrize(("source", "target"), list(itertools.product(Phase, Phase)))
def test_a_phase_follows_another_only_by_the_table(source: Phase, target: Phase) -> None:
    """Lifecycle as a table: one function moves, and refuses what is not in it."""
    sequence = sequence_in(source)
    if target in TRANSITIONS[source]:
        sequence.move(target)
        assert sequence.phase is target
    else:
        with pytest.raises(InternalError):
            sequence.move(target)
        assert sequence.phase is source


def test_every_phase_is_reached_from_the_queue_and_leads_to_the_end() -> None:
    reached, pending = {Phase.QUEUED}, [Phase.QUEUED]
    while pending:
        new = TRANSITIONS[pending.pop()] - reached
        reached |= new
        pending += new
    assert reached == set(Phase)
    assert all(TRANSITIONS[phase] for phase in Phase if phase is not Phase.DONE)
    assert ACTIVE | LEAVING | {Phase.QUEUED, Phase.DONE} == set(Phase)


def test_a_sequence_ends_once() -> None:
    """Every request ends with exactly one ending."""
    sequence = sequence_in(Phase.DECODE)
    sequence.end(FinishReason.EOS)
    with pytest.raises(InternalError):
        sequence.end(FinishReason.CANCELLED)
    assert sequence.ending is FinishReason.EOS


def test_a_preempted_sequence_keeps_what_it_said_and_forgets_where_it_was() -> None:
    """CACHE-3: it comes back with its prompt and its output as context, and the rest of its limit."""
    sequence = sequence_in(Phase.PREEMPTING)
    sequence.tokens += [7, 8]
    sequence.n_sampled = 2
    sequence.n_scheduled = sequence.n_consumed = 3
    sequence.requeue()
    assert (sequence.phase, sequence.n_preemptions) == (Phase.QUEUED, 1)
    assert (sequence.n_context, sequence.n_scheduled, sequence.n_consumed) == (4, 0, 0)
    assert (sequence.n_emitted, sequence.n_samples_scheduled, sequence.n_most_remaining) == (2, 2, 3)
    assert sequence.n_most_positions == 6
