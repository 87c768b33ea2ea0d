"""From sequences and shares to a Round: lanes, page entries, admissions, restores.

It decides nothing: the caller has chosen who takes part and has taken pages for all of it. Invariant: every position that a lane
writes has its page in the slot's table by then, because the entries travel with the lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from helios.cache.books import CacheBooks
from helios.scheduler.round import Admission, Lane, Restore
from helios.scheduler.sequence import Phase, Sequence


@dataclass(slots=True)
class Work:
    """The parts of one round, as they come together."""

    lanes: list[Lane] = field(default_factory=list)
    n_rows: int = 0
    page_updates: list[tuple[int, int, int]] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)


def assemble(cache: CacheBooks, decoding: Iterable[Sequence], prompts: Iterable[tuple[Sequence, int]]) -> Work:
    """Make the lanes, and count them as scheduled: decode lanes first, then so many prompt tokens of each prompt."""
    work = Work()
    add_lane = work.lanes.append
    for sequence in decoding:
        position = sequence.n_scheduled
        sequence.n_scheduled = position + 1
        sequence.n_in_flight += 1
        sequence.n_samples_scheduled += 1
        add_lane(
            Lane(
                sequence,
                sequence.slot,
                sequence.generation,
                False,
                position,
                1,
                True,
                sequence.mask,
                False,
                sequence.is_distributed,
            )
        )
        if sequence.page_entries:
            _update_pages(work, sequence)
    work.n_rows = len(work.lanes)
    for sequence, n_tokens in prompts:
        if not sequence.is_initialized:
            _initialize(cache, work, sequence)
        work.lanes.append(_prompt_lane(sequence, n_tokens))
        work.n_rows += n_tokens
        if sequence.page_entries:
            _update_pages(work, sequence)
    return work


def _prompt_lane(sequence: Sequence, n_tokens: int) -> Lane:
    is_last = sequence.n_scheduled + n_tokens == sequence.n_context
    lane = Lane(
        sequence,
        sequence.slot,
        sequence.generation,
        True,
        sequence.n_scheduled,
        n_tokens,
        is_last,
        mask=sequence.mask if is_last else None,
        is_scored=sequence.is_scored,
        is_distributed=is_last and sequence.is_distributed,
    )
    sequence.n_scheduled += n_tokens
    sequence.n_in_flight += 1
    sequence.n_samples_scheduled += is_last
    if is_last:
        sequence.move(Phase.DECODE)
    return lane


def _update_pages(work: Work, sequence: Sequence) -> None:
    work.page_updates += [(sequence.slot, page_index, page_id) for page_index, page_id in sequence.page_entries]
    sequence.page_entries.clear()


def _initialize(cache: CacheBooks, work: Work, sequence: Sequence) -> None:
    """The slot's state rows, and the reused part of its pages, are set up just before the first round that uses them."""
    sequence.is_initialized = True
    holding = sequence.held
    work.admissions.append(Admission(sequence, sequence.slot, sequence.generation, holding.n_reused))
    sequence.page_entries += cache.attach(holding)
    tail = cache.restore(holding)
    if tail is not None:
        row, page_index, page_id = tail
        work.restores.append(Restore(sequence.slot, row, page_index, page_id, holding.n_reused))
