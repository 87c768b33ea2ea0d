"""The output items of a response as they grow, and the events that tell of it.

It knows the item and event names of the Responses API and no flow. Items never overlap: one is done before the next is added, and a
response that is not streamed holds the same items, since both are made here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from helios.output.events import ContentDelta, ReasoningDelta, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from helios.server.choice import Part
from helios.server.logprobs import chat_logprobs
from helios.tokenizer.tokenizer import Tokenizer

_Event = dict[str, Any]


class OutputItems:
    """`add` every part, then `end`; each gives the events that came of it. `items` are all so far."""

    def __init__(self, tokenizer: Tokenizer, *, has_logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._has_logprobs = has_logprobs
        self._items: list[_TextItem | _CallItem] = []
        self._is_open = False

    @property
    def items(self) -> list[dict[str, Any]]:
        return [item.document for item in self._items]

    def add(self, part: Part) -> Iterator[_Event]:
        match part.event:
            case ContentDelta(text):
                yield from self._add_text(_MESSAGE, text, self._logprobs(part))
            case ReasoningDelta(text):
                yield from self._add_text(_REASONING, text, [])
            case ToolCallStart(_, call_id, name):
                yield from self._open(_CallItem(len(self._items), call_id, name))
            case ToolArgumentsDelta(_, fragment):
                yield self._items[-1].grow(fragment, [])
            case ToolCallEnd():
                yield from self._close("completed")

    def end(self, *, is_cut: bool) -> Iterator[_Event]:
        """The answer has ended, `is_cut` before the model ended it. A call that is open then was cut off whatever the reason."""
        is_call = self._is_open and isinstance(self._items[-1], _CallItem)
        yield from self._close("incomplete" if is_cut or is_call else "completed")

    def _add_text(self, kind: _TextKind, text: str, logprobs: list[Any]) -> Iterator[_Event]:
        last = self._items[-1] if self._is_open else None
        if not isinstance(last, _TextItem) or last.kind is not kind:
            last = _TextItem(len(self._items), kind)
            yield from self._open(last)
        yield last.grow(text, logprobs)

    def _open(self, item: _TextItem | _CallItem) -> Iterator[_Event]:
        yield from self._close(
            "incomplete" if self._is_open and isinstance(self._items[-1], _CallItem) else "completed"
        )
        self._items.append(item)
        self._is_open = True
        yield from item.opening()

    def _close(self, status: str) -> Iterator[_Event]:
        if self._is_open:
            self._is_open = False
            yield from self._items[-1].closing(status)

    def _logprobs(self, part: Part) -> list[Any]:
        logprobs = chat_logprobs(self._tokenizer, part.tokens) if self._has_logprobs else None
        return [] if logprobs is None else list(logprobs["content"])


@dataclass(frozen=True, slots=True)
class _TextKind:
    """An item with one part of text. `item` and `part` are what their documents have besides."""

    id_prefix: str
    event: str
    item: dict[str, Any]
    part: dict[str, Any]
    has_logprobs: bool


_MESSAGE = _TextKind(
    "msg",
    "response.output_text",
    {"type": "message", "role": "assistant"},
    {"type": "output_text", "annotations": []},
    True,
)
_REASONING = _TextKind(
    "rs", "response.reasoning_text", {"type": "reasoning", "summary": []}, {"type": "reasoning_text"}, False
)


@dataclass(slots=True)
class _TextItem:
    """A message, or reasoning."""

    index: int
    kind: _TextKind
    item_id: str = field(init=False)
    status: str = "in_progress"
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.item_id = f"{self.kind.id_prefix}_{secrets.token_hex(12)}"

    @property
    def document(self) -> dict[str, Any]:
        return self._document([self._part()])

    def opening(self) -> Iterator[_Event]:
        yield {"type": "response.output_item.added", "output_index": self.index, "item": self._document([])}
        yield {"type": "response.content_part.added", **self._place(), "part": self._part()}

    def grow(self, text: str, logprobs: list[Any]) -> _Event:
        self.pieces.append(text)
        self.logprobs += logprobs
        return {"type": f"{self.kind.event}.delta", **self._place(), "delta": text, **self._scores(logprobs)}

    def closing(self, status: str) -> Iterator[_Event]:
        self.status = status
        part = self._part()
        yield {"type": f"{self.kind.event}.done", **self._place(), "text": part["text"], **self._scores(self.logprobs)}
        yield {"type": "response.content_part.done", **self._place(), "part": part}
        yield {"type": "response.output_item.done", "output_index": self.index, "item": self._document([part])}

    def _document(self, content: list[Any]) -> dict[str, Any]:
        return {"id": self.item_id, **self.kind.item, "status": self.status, "content": content}

    def _part(self) -> dict[str, Any]:
        return {**self.kind.part, "text": "".join(self.pieces), **self._scores(self.logprobs)}

    def _scores(self, logprobs: list[Any]) -> dict[str, Any]:
        return {"logprobs": list(logprobs)} if self.kind.has_logprobs else {}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "output_index": self.index, "content_index": 0}


@dataclass(slots=True)
class _CallItem:
    """A function call. Its arguments are told to be done only when they are."""

    index: int
    call_id: str
    name: str
    item_id: str = field(default_factory=lambda: f"fc_{secrets.token_hex(12)}")
    status: str = "in_progress"
    pieces: list[str] = field(default_factory=list)

    @property
    def document(self) -> dict[str, Any]:
        return {
            "id": self.item_id,
            "type": "function_call",
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": "".join(self.pieces),
        }

    def opening(self) -> Iterator[_Event]:
        yield {"type": "response.output_item.added", "output_index": self.index, "item": self.document}

    def grow(self, text: str, logprobs: list[Any]) -> _Event:
        self.pieces.append(text)
        return {"type": "response.function_call_arguments.delta", **self._place(), "delta": text}

    def closing(self, status: str) -> Iterator[_Event]:
        self.status = status
        document = self.document
        if status == "completed":
            done = {"name": self.name, "arguments": document["arguments"]}
            yield {"type": "response.function_call_arguments.done", **self._place(), **done}
        yield {"type": "response.output_item.done", "output_index": self.index, "item": document}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "output_index": self.index}
