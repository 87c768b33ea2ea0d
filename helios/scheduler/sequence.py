"""One sequence on its way through the model: a table of phases and one function that moves between them.

It knows counts and page numbers, not bytes or devices. What was launched (`n_scheduled`, `n_samples_scheduled`) runs ahead of
what completions have confirmed (`n_consumed`, `n_sampled`) by at most the rounds in flight. A preempted sequence forgets where
it was and keeps what it said: it comes back with `tokens`, its prompt and its output so far, as the tokens to compute.
"""

from __future__ import annotations

import enum
from typing import Any

from numpy.typing import NDArray

from helios.cache.holding import Holding, Match
from helios.errors import HeliosError, InternalError
from helios.scheduler.request import FinishReason, GenerationRequest, Token, Usage

Order = tuple[int, int]


class Phase(enum.Enum):
    """Where a sequence is. From RELOADING to DRAINING it has a slot and holds pages."""

    QUEUED = "queued"  # waits for a slot, for the first time or again
    RELOADING = "reloading"  # parts of its prefix are on their way from host memory
    PREFILL = "prefill"
    DECODE = "decode"  # every token that is known is launched; rounds sample the next ones
    PREEMPTING = "preempting"  # it gives up its pages at the fence of its last round, and goes back to the queue
    SAVING = "saving"  # the device has ended it; its last state is saved behind the next submission
    DRAINING = "draining"  # its ending is decided, and rounds that touch its slot and pages are in flight
    DONE = "done"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.QUEUED: frozenset({Phase.RELOADING, Phase.PREFILL, Phase.DONE}),
    Phase.RELOADING: frozenset({Phase.PREFILL, Phase.PREEMPTING, Phase.DRAINING}),
    Phase.PREFILL: frozenset({Phase.DECODE, Phase.PREEMPTING, Phase.DRAINING}),
    Phase.DECODE: frozenset({Phase.PREEMPTING, Phase.SAVING, Phase.DRAINING}),
    Phase.PREEMPTING: frozenset({Phase.QUEUED, Phase.SAVING, Phase.DRAINING}),
    Phase.SAVING: frozenset({Phase.DRAINING}),
    Phase.DRAINING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}


class Sequence:
    """The scheduler's record of one GenerationRequest.

    `tokens`: prompt and output so far. `n_context`: how many of them this stay in a slot has to consume before it samples.
    `n_positions`: positions that its pages have room for. `page_entries`: (page index, page id) that its slot's table lacks still.
    `awaited`: what was found of its prefix while another computes more of it. `mask`: what its constraint allows next. `saved_row`:
    the row that its last state will be saved in. `scores`: of its prompt tokens from the second on, as far as they are known.
    """

    __slots__ = (
        "arrival",
        "awaited",
        "device_finish",
        "ending",
        "generation",
        "holding",
        "is_distributed",
        "is_host_decided",
        "is_initialized",
        "key",
        "mask",
        "n_consumed",
        "n_context",
        "n_in_flight",
        "n_positions",
        "n_preemptions",
        "n_prompt",
        "n_reused_prompt",
        "n_sampled",
        "n_samples_scheduled",
        "n_scheduled",
        "order",
        "output_limit",
        "page_entries",
        "phase",
        "prefix",
        "request",
        "saved_row",
        "scores",
        "slot",
        "submitted_s",
        "tokens",
    )

    def __init__(
        self,
        key: int,
        arrival: int,
        request: GenerationRequest,
        output_limit: int,
        prefix: bytes = b"",
        submitted_s: float = 0.0,
    ) -> None:
        self.key = key
        self.arrival = arrival
        self.submitted_s = submitted_s
        self.request = request
        self.output_limit = output_limit
        self.prefix = prefix
        self.order: Order = (request.priority, arrival)
        self.is_distributed = request.sampling.needs_distribution
        self.is_host_decided = request.host_stop is not None or request.constraint is not None
        self.tokens = list(request.prompt_tokens)
        self.n_prompt = len(request.prompt_tokens)
        self.n_reused_prompt = 0
        self.n_preemptions = 0
        self.n_sampled = 0
        self.awaited: Match | None = None
        self.mask: NDArray[Any] | None = None
        self.scores: list[Token] = []
        self.phase = Phase.QUEUED
        self.ending: FinishReason | HeliosError | None = None
        self._leave_slot()

    def _leave_slot(self) -> None:
        self.slot = -1
        self.generation = 0
        self.holding: Holding | None = None
        self.is_initialized = False
        self.device_finish = 0
        self.n_context = len(self.tokens)
        self.n_positions = 0
        self.page_entries: list[tuple[int, int]] = []
        self.n_scheduled = 0
        self.n_consumed = 0
        self.n_samples_scheduled = self.n_sampled
        self.n_in_flight = 0
        self.saved_row = -1

    @property
    def is_scored(self) -> bool:
        """Whether scores of its prompt are missing: only then it takes part in scored rounds, and in no other."""
        return self.request.prompt_candidates is not None and len(self.scores) < self.n_prompt - 1

    @property
    def n_most_reused(self) -> int:
        """Tokens that it may take over from others: one is left to sample from, and what is not scored yet has to be computed."""
        return len(self.scores) if self.is_scored else len(self.tokens) - 1

    @property
    def n_possible(self) -> int:
        """Tokens of its prompt that one round may take: up to a boundary, or all that are left."""
        end = next((end for end in self.request.boundaries if end > self.n_scheduled), self.n_context)
        return end - self.n_scheduled

    @property
    def n_emitted(self) -> int:
        """Output tokens that were delivered."""
        return len(self.tokens) - self.n_prompt

    @property
    def n_most_remaining(self) -> int:
        """Output tokens that it may still emit: the limit of a stay that begins now."""
        return self.output_limit - self.n_emitted

    @property
    def n_most_positions(self) -> int:
        """Positions that the request can fill at most: the last token it emits is never fed back."""
        return self.n_prompt + self.output_limit - 1

    @property
    def held(self) -> Holding:
        """Its pages. Raises InternalError while it has no slot."""
        if self.holding is None:
            raise InternalError(f"a {self.phase.value} sequence holds no pages")
        return self.holding

    def move(self, phase: Phase) -> None:
        """The only way to change `phase`."""
        if phase not in TRANSITIONS[self.phase]:
            raise InternalError(f"a sequence cannot go from {self.phase.value} to {phase.value}")
        self.phase = phase

    def end(self, ending: FinishReason | HeliosError) -> None:
        """Decide how it ended, once."""
        if self.ending is not None:
            raise InternalError("a sequence ended twice")
        self.ending = ending

    def take_seat(self, slot: int, generation: int, holding: Holding) -> None:
        """A stay in a slot begins behind the reused tokens of `holding`."""
        self.slot = slot
        self.generation = generation
        self.holding = holding
        self.n_context = len(self.tokens)
        self.n_scheduled = self.n_consumed = holding.n_reused

    def requeue(self) -> None:
        """Its slot and pages are given up; its output so far counts as context of the next stay."""
        self.move(Phase.QUEUED)
        self.n_preemptions += 1
        self._leave_slot()

    def usage(self) -> Usage:
        return Usage(self.n_prompt, self.n_emitted, self.n_reused_prompt)
