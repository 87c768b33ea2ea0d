"""Responses as a client puts them together from events, each checked against OpenAI's own types and the order they promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

_EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)
_TEXTS = {
    "message": ("output_text", "response.output_text"),
    "reasoning": ("reasoning_text", "response.reasoning_text"),
}


def of_events(events: Sequence[Any]) -> Any:
    """The response in the last event; what the events before it say must come to the same output."""
    for event in events:
        _EVENT.validate_python(event, strict=True)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    created, in_progress, *middle, last = events
    assert [created["type"], in_progress["type"]] == ["response.created", "response.in_progress"]
    assert created["response"] == in_progress["response"]
    assert created["response"]["status"] == "in_progress"
    assert created["response"]["output"] == []
    assert last["type"] == f"response.{last['response']['status']}"
    assert {event["response"]["id"] for event in (created, last)} == {created["response"]["id"]}
    assert last["response"]["output"] == _items(middle)
    return last["response"]


def of_document(document: Any) -> Any:
    """A response that is not streamed."""
    Response.model_validate(document, strict=True)
    return document


def shown(response: Any) -> Any:
    """What does not differ between two runs of the same answer."""
    items = [
        {name: value for name, value in item.items() if name not in ("id", "call_id")} for item in response["output"]
    ]
    return items, response["status"], response["incomplete_details"], response["usage"]["output_tokens"]


def _items(events: Sequence[Any]) -> list[Any]:
    items: list[Any] = []
    while events:
        n_events = next(i for i, event in enumerate(events) if event["type"] == "response.output_item.done") + 1
        items.append(_item(events[:n_events], len(items)))
        events = events[n_events:]
    return items


def _item(events: Sequence[Any], index: int) -> Any:
    added, *middle, done = events
    assert added["type"] == "response.output_item.added"
    assert added["item"]["status"] == "in_progress"
    item = done["item"]
    assert item["id"] == added["item"]["id"]
    assert all(event["output_index"] == index for event in events)
    assert all(event["item_id"] == item["id"] for event in middle)
    if item["type"] == "function_call":
        _check_call(added["item"], middle, item)
    else:
        _check_text(added["item"], middle, item)
    return item


def _check_call(added: Any, middle: Sequence[Any], item: Any) -> None:
    assert added["arguments"] == ""
    assert (added["call_id"], added["name"]) == (item["call_id"], item["name"])
    prefix = "response.function_call_arguments"
    deltas = [event["delta"] for event in middle if event["type"] == f"{prefix}.delta"]
    assert "".join(deltas) == item["arguments"]
    done = [event["arguments"] for event in middle[len(deltas) :]]
    assert done == ([item["arguments"]] if item["status"] == "completed" else [])


def _check_text(added: Any, middle: Sequence[Any], item: Any) -> None:
    assert added["content"] == []
    part_type, prefix = _TEXTS[item["type"]]
    opened, *deltas, text_done, part_done = middle
    assert opened["type"] == "response.content_part.added"
    assert (opened["part"]["type"], opened["part"]["text"]) == (part_type, "")
    assert deltas
    assert {event["type"] for event in deltas} == {f"{prefix}.delta"}
    assert text_done["type"] == f"{prefix}.done"
    assert text_done["text"] == "".join(event["delta"] for event in deltas)
    assert part_done["type"] == "response.content_part.done"
    assert item["content"] == [part_done["part"]]
    assert part_done["part"]["text"] == text_done["text"]
