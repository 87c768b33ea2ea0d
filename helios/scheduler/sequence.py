"""One sequence on its way through the model: a table of phases and one function that moves between them.

It knows counts and page ids, not bytes or devices. What was launched (`n_scheduled`, `n_samples_scheduled`) runs ahead of what
a completion has confirmed (`n_consumed`, `n_emitted`) by at most the rounds in flight.
"""

from __future__ import annotations

import enum

from helios.errors import InternalError
from helios.scheduler.request import FinishReason, GenerationRequest, Usage


class Phase(enum.Enum):
    """Where a sequence is. DRAINING: its ending is decided, rounds that touch its slot and pages are still in flight."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    DRAINING = "draining"
    DONE = "done"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.QUEUED: frozenset({Phase.PREFILL, Phase.DONE}),
    Phase.PREFILL: frozenset({Phase.DECODE, Phase.DRAINING, Phase.DONE}),
    Phase.DECODE: frozenset({Phase.DRAINING, Phase.DONE}),
    Phase.DRAINING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}


class Sequence:
    """The scheduler's record of one GenerationRequest. Slot and pages are held from admission to DONE."""

    __slots__ = (
        "arrival",
        "device_finish",
        "finish_reason",
        "generation",
        "is_initialized",
        "key",
        "n_consumed",
        "n_emitted",
        "n_in_flight",
        "n_reserved_pages",
        "n_samples_scheduled",
        "n_scheduled",
        "output_limit",
        "page_ids",
        "phase",
        "request",
        "slot",
    )

    def __init__(self, key: int, arrival: int, request: GenerationRequest, output_limit: int) -> None:
        self.key = key
        self.arrival = arrival
        self.request = request
        self.output_limit = output_limit
        self.phase = Phase.QUEUED
        self.slot = -1
        self.generation = 0
        self.page_ids: list[int] = []
        self.n_reserved_pages = 0
        self.n_scheduled = 0
        self.n_samples_scheduled = 0
        self.n_consumed = 0
        self.n_emitted = 0
        self.n_in_flight = 0
        self.is_initialized = False
        self.device_finish = 0
        self.finish_reason: FinishReason | None = None

    @property
    def n_prompt(self) -> int:
        return len(self.request.prompt_tokens)

    @property
    def n_most_positions(self) -> int:
        """Positions that the request can fill at most: the last token it emits is never fed back."""
        return self.n_prompt + self.output_limit - 1

    @property
    def is_host_decided(self) -> bool:
        """True while the host must see each token before the next round (STOP-3)."""
        return self.request.host_stop is not None

    @property
    def is_active(self) -> bool:
        return self.phase in (Phase.PREFILL, Phase.DECODE)

    @property
    def can_decode(self) -> bool:
        return self.phase is Phase.DECODE and self.n_samples_scheduled < self.output_limit

    def move(self, phase: Phase) -> None:
        """The only way to change `phase`."""
        if phase not in TRANSITIONS[self.phase]:
            raise InternalError(f"a sequence cannot go from {self.phase.value} to {phase.value}")
        self.phase = phase

    def usage(self) -> Usage:
        return Usage(prompt_tokens=self.n_prompt, output_tokens=self.n_emitted)
