"""A generation whose events a test gives batch by batch, and the endings that no answer should have."""

from __future__ import annotations

from collections.abc import Sequence

from helios.errors import DeviceError, HeliosError, InternalError, ShuttingDownError
from helios.scheduler.request import Event, Failed, Finished, FinishReason, PromptScores, Token, Usage

SCORES = PromptScores((Token(7, -1.0),))
USAGE = Usage(1, 2)
BAD_ENDINGS: list[tuple[Event, type[HeliosError]]] = [
    (Failed(DeviceError("it died")), DeviceError),
    (Finished(FinishReason.CANCELLED, USAGE), ShuttingDownError),
    (Finished(FinishReason.STOP, USAGE), InternalError),
]


class Batches:
    """A generation whose events come in given batches, and none after the last."""

    def __init__(self, batches: Sequence[Sequence[Event]]) -> None:
        self._batches = list(batches)

    async def next_batch(self) -> list[Event]:
        return list(self._batches.pop(0))

    def cancel(self) -> None:
        pass
