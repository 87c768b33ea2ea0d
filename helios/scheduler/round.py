"""What one submission holds, and what came back: frozen messages between scheduler and runtime.

They hold numbers only. A `Lane` carries what its completion must say, so that every completion can be checked against what
was asked. What every step makes are tuples: a frozen dataclass takes five times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from helios.scheduler.distribution import Distribution
from helios.scheduler.request import Token
from helios.scheduler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """A captured program as the scheduler sees it: its index in the manifest, lanes B and packed tokens P."""

    index: int
    name: str
    batch_capacity: int
    packed_token_capacity: int


class Lane(NamedTuple):
    """One sequence's part of a round: `query_length` tokens from `position` on. `is_prompt`: they are prompt tokens, otherwise
    the slot's pending token. `is_sampled`: the last of them yields a new token, under `mask` (of a TokenConstraint) if any.
    `is_scored`: its completion says how likely the prompt tokens behind it were. `is_distributed`: it brings the whole row of
    logits."""

    sequence: Sequence
    slot: int
    generation: int
    is_prompt: bool
    position: int
    query_length: int
    is_sampled: bool
    mask: NDArray[Any] | None = None
    is_scored: bool = False
    is_distributed: bool = False

    @property
    def is_scored_whole(self) -> bool:
        """Its completion brings the whole row of logits behind each of its tokens."""
        return self.is_scored and self.sequence.request.needs_prompt_distributions


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence whose slot has to be initialised before the round runs. `consumed`: tokens that its reused prefix holds. After a
    preemption its own emitted tokens count as prompt, and what is left of its output limit as the limit (see `Sequence`)."""

    sequence: Sequence
    slot: int
    generation: int
    consumed: int = 0


@dataclass(frozen=True, slots=True)
class Restore:
    """Before the round's program: snapshot row `row` is copied into the private page `page_id`, which becomes entry `page_index`
    of the slot's table. `endpoint`: tokens that the slot has consumed afterwards."""

    slot: int
    row: int
    page_index: int
    page_id: int
    endpoint: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Behind the round's program: the slot's page with position `endpoint` (not full) is copied to snapshot row `row`."""

    slot: int
    row: int
    endpoint: int


class Round(NamedTuple):
    """One submission: `initializer` over `admissions`, `restorer` over `restores`, then `program` over `lanes`, then `snapshotter`
    over `snapshots`, all in order on one stream. `page_updates` are (slot, index in the slot's table, page id) and travel with
    `program`. Without a program there are no lanes and no completions: the round is complete when its event is."""

    program: ProgramShape | None
    lanes: tuple[Lane, ...]
    n_rows: int
    page_updates: tuple[tuple[int, int, int], ...]
    admissions: tuple[Admission, ...] = ()
    initializer: ProgramShape | None = None
    restores: tuple[Restore, ...] = ()
    restorer: ProgramShape | None = None
    snapshots: tuple[Snapshot, ...] = ()
    snapshotter: ProgramShape | None = None


class LaneCompletion(NamedTuple):
    """One lane of a completion record (kernels.h, HeliosCompletionLane), as read, not yet believed. `scores`: of a scored prefill,
    for the prompt tokens at `position` + 1 and on, with distributions where the lane asks; there is none behind the last one of a
    prompt. `distribution`: of a lane that asks for it and emits."""

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
    candidates: tuple[tuple[int, float], ...] = ()
    scores: tuple[Token, ...] = ()
    distribution: Distribution | None = None
