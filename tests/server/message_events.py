"""Messages as a client puts them together from events, each checked against Anthropic's own types and the order they promise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pydantic
from anthropic.types import Message, RawMessageStreamEvent

_EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(RawMessageStreamEvent)


def of_events(events: Sequence[Any]) -> Any:
    """The message that a stream comes to. A call that was cut off has no input."""
    events = [event for event in events if event["type"] != "ping"]
    for event in events:
        _EVENT.validate_python(event, strict=True)
    start, *middle, delta, stop = events
    assert [start["type"], delta["type"], stop["type"]] == ["message_start", "message_delta", "message_stop"]
    message = start["message"]
    Message.model_validate(message, strict=True)
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    assert delta["delta"]["stop_reason"] is not None
    return {**message, **delta["delta"], "content": _blocks(middle), "usage": message["usage"] | delta["usage"]}


def of_document(document: Any) -> Any:
    """A message that is not streamed."""
    Message.model_validate(document, strict=True)
    return document


def shown(message: Any) -> Any:
    """What does not differ between two runs of the same answer."""
    blocks = [{name: value for name, value in block.items() if name != "id"} for block in message["content"]]
    return blocks, message["stop_reason"], message["stop_sequence"], message["usage"]["output_tokens"]


def _blocks(events: Sequence[Any]) -> list[Any]:
    blocks: list[Any] = []
    while events:
        n_events = next(i for i, event in enumerate(events) if event["type"] == "content_block_stop") + 1
        assert {event["index"] for event in events[:n_events]} == {len(blocks)}
        start, *deltas, _ = events[:n_events]
        assert start["type"] == "content_block_start"
        assert all(event["type"] == "content_block_delta" for event in deltas)
        blocks.append(_block(start["content_block"], [event["delta"] for event in deltas]))
        events = events[n_events:]
    return blocks


def _block(block: Any, deltas: Sequence[Any]) -> Any:
    if block["type"] == "tool_use":
        assert block["input"] == {}
        assert {delta["type"] for delta in deltas} <= {"input_json_delta"}
        try:
            return {**block, "input": json.loads("".join(delta["partial_json"] for delta in deltas))}
        except json.JSONDecodeError:
            return {**block, "input": None}
    kind = block["type"]
    assert block[kind] == ""
    if kind == "thinking":
        *deltas, signature = deltas
        assert signature["type"] == "signature_delta"
        block = {**block, "signature": signature["signature"]}
    assert {delta["type"] for delta in deltas} == {f"{kind}_delta"}
    return {**block, kind: "".join(delta[kind] for delta in deltas)}
