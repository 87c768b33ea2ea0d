"""The content blocks of an answer as they grow, and the events that tell of them.

It knows the block and event names of the Anthropic API and no flow. Blocks never overlap, and a message that is not streamed holds
the same blocks; only a call that was cut off is left out there, since its input is no object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from helios.output.events import ContentDelta, ReasoningDelta, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from helios.server.choice import Part

_Event = dict[str, Any]
_MOST_DIGITS = 640  # of an integer, as Python may be told to limit them at the least
_SIGNATURE = "unsigned"  # clients that find none take a thinking block for one that cannot be sent back


@dataclass(slots=True)
class _Block:
    """One block. `document` is how it opens; its text grows in the field `text_name`, by deltas of a kind with theirs."""

    document: dict[str, Any]
    text_name: str
    delta_type: str
    delta_name: str
    pieces: list[str] = field(default_factory=list)
    is_complete: bool = True

    @property
    def kind(self) -> str:
        return str(self.document["type"])

    def closed(self) -> dict[str, Any]:
        """The block as a message that is not streamed holds it."""
        text = "".join(self.pieces)
        value = json.loads(text, parse_int=_number, parse_float=_number) if self.kind == "tool_use" else text
        signature = {"signature": _SIGNATURE} if self.kind == "thinking" else {}
        return {**self.document, self.text_name: value, **signature}


class ContentBlocks:
    """`add` every part, then `end`; each gives the events that came of it. `blocks` are the complete ones in the end."""

    def __init__(self, *, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._blocks: list[_Block] = []
        self._is_open = False

    @property
    def blocks(self) -> list[dict[str, Any]]:
        return [block.closed() for block in self._blocks if block.is_complete]

    @property
    def has_calls(self) -> bool:
        """Whether there are calls to be carried out: some, and none of them cut off."""
        calls = [block for block in self._blocks if block.kind == "tool_use"]
        return bool(calls) and all(call.is_complete for call in calls)

    def add(self, part: Part) -> Iterator[_Event]:
        match part.event:
            case ContentDelta(text):
                yield from self._add_text("text", text)
            case ReasoningDelta(text):
                if self._shows_thinking:
                    yield from self._add_text("thinking", text)
            case ToolCallStart(_, call_id, name):
                call = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                yield from self._open(_Block(call, "input", "input_json_delta", "partial_json", is_complete=False))
            case ToolArgumentsDelta(_, fragment):
                yield self._grow(fragment)
            case ToolCallEnd():
                self._blocks[-1].is_complete = True
                yield from self._close()

    def end(self, *, is_cut: bool) -> Iterator[_Event]:
        """The answer has ended. A block that was cut closes like any other."""
        return self._close()

    def _close(self) -> Iterator[_Event]:
        """Of the block that is open, if there is one."""
        if not self._is_open:
            return
        self._is_open = False
        if self._blocks[-1].kind == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _SIGNATURE})
        yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _add_text(self, kind: str, text: str) -> Iterator[_Event]:
        if not self._is_open or self._blocks[-1].kind != kind:
            signature = {"signature": ""} if kind == "thinking" else {}
            yield from self._open(_Block({"type": kind, kind: "", **signature}, kind, f"{kind}_delta", kind))
        yield self._grow(text)

    def _open(self, block: _Block) -> Iterator[_Event]:
        yield from self._close()
        self._blocks.append(block)
        self._is_open = True
        yield {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block.document}

    def _grow(self, text: str) -> _Event:
        block = self._blocks[-1]
        block.pieces.append(text)
        return self._delta({"type": block.delta_type, block.delta_name: text})

    def _delta(self, delta: dict[str, Any]) -> _Event:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}


def _number(text: str) -> int | float | str:
    """The number, or its text when it is one that readers of JSON cannot take."""
    if text.lstrip("-").isdecimal():
        return int(text) if len(text) <= _MOST_DIGITS else text
    value = float(text)
    return value if math.isfinite(value) else text
