"""What one submission holds, and what came back: frozen messages between scheduler and runtime.

They hold numbers only. A `Lane` carries what its completion must say, so that every completion can be checked against what
was asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.scheduler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """A captured program as the scheduler sees it: its index in the manifest, lanes B and packed tokens P."""

    index: int
    name: str
    batch_capacity: int
    packed_token_capacity: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One sequence's part of a round: `query_length` tokens from `position` on. `is_prompt`: they are prompt tokens, otherwise the
    slot's pending token. `is_sampled`: the last of them yields a new token."""

    sequence: Sequence
    slot: int
    generation: int
    is_prompt: bool
    position: int
    query_length: int
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence whose slot has to be initialised before the round runs."""

    sequence: Sequence
    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class Round:
    """One submission. `page_updates` are (slot, index in the slot's table, page id)."""

    program: ProgramShape
    lanes: tuple[Lane, ...]
    n_rows: int
    page_updates: tuple[tuple[int, int, int], ...]
    admissions: tuple[Admission, ...] = ()
    initializer: ProgramShape | None = None


@dataclass(frozen=True, slots=True)
class LaneCompletion:
    """One lane of a completion record (kernels.h, HeliosCompletionLane), as read, not yet believed."""

    slot: int
    generation: int
    offered: int
    accepted: int
    emitted: int
    consumed: int
    draft_cursor: int
    reserved_model: int
    finish: int
    token: int
    logprob: float = 0.0
    rank: int = 0
    candidates: tuple[tuple[int, float], ...] = field(default=())
