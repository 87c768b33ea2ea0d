"""What an answer consists of, as events in the order in which they become certain: frozen messages to the presentation.

They know no tokens and no JSON of an endpoint. Text never ends in half a character; the fragments of one call join to the exact
JSON of its arguments; a call without its `ToolCallEnd` was cut off and is not to be carried out.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Ending(enum.Enum):
    """How the answer ended; the values of `FinishReason` and one for a failed execution."""

    EOS = "eos"
    LIMIT = "limit"
    STOP = "stop"
    CANCELLED = "cancelled"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the visible answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins. `index` counts the calls of this answer from 0, `call_id` is the caller's handle, `name` is whole."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More of the JSON text of call `index`."""

    index: int
    fragment: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The arguments of call `index` are complete: its fragments are a JSON document."""

    index: int


OutputEvent = ReasoningDelta | ContentDelta | ToolCallStart | ToolArgumentsDelta | ToolCallEnd
