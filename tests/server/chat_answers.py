"""Chat answers as a client puts them together, from one document or from a stream whose every chunk is checked on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk


@dataclass
class ClientAnswer:
    """One choice. `calls` are (name, arguments) in order; `ids` theirs."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    @property
    def shown(self) -> tuple[str, str, list[tuple[str, str]], str | None]:
        """What does not differ between two runs of the same answer."""
        return self.reasoning, self.content, self.calls, self.finish_reason


def of_document(document: Any, index: int = 0) -> ClientAnswer:
    """From a response that is not streamed."""
    ChatCompletion.model_validate(document, strict=True)
    choice = document["choices"][index]
    message = choice["message"]
    assert message["role"] == "assistant"
    assert message["content"] is not None or message.get("tool_calls") or message.get("reasoning_content")
    calls = message.get("tool_calls", [])
    assert "tool_calls" not in message or calls
    assert all(call["type"] == "function" for call in calls)
    return ClientAnswer(
        reasoning=message.get("reasoning_content") or "",
        content=message["content"] or "",
        calls=[(call["function"]["name"], call["function"]["arguments"]) for call in calls],
        ids=[call["id"] for call in calls],
        finish_reason=choice["finish_reason"],
        token_ids=choice.get("token_ids", []),
        times_ns=choice.get("token_timestamps_ns", []),
        logprobs=(choice["logprobs"] or {}).get("content", []),
    )


def of_events(events: Sequence[Any], index: int = 0) -> ClientAnswer:
    """From a stream (ST1 to ST4): the role once, ids and names once, one ending, the same id and time in every chunk."""
    *chunks, done = events
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    answer = ClientAnswer()
    mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    assert mine[0]["delta"] == {"role": "assistant", "content": ""}
    for choice in mine[1:]:
        assert answer.finish_reason is None, "something follows the end"
        _take(answer, choice)
    assert answer.finish_reason is not None
    assert mine[-1]["delta"] == {}
    return answer


def _take(answer: ClientAnswer, choice: Any) -> None:
    delta = choice["delta"]
    assert "role" not in delta
    assert len(delta) <= 1
    assert None not in delta.values()
    answer.finish_reason = choice["finish_reason"]
    answer.reasoning += delta.get("reasoning_content", "")
    answer.content += delta.get("content", "")
    answer.logprobs += (choice["logprobs"] or {}).get("content", [])
    if "token_ids" in choice:
        assert delta == {}
        assert choice["finish_reason"] is None
        assert len(choice["token_ids"]) == 1
    answer.token_ids += choice.get("token_ids", [])
    answer.times_ns += choice.get("token_timestamps_ns", [])
    for call in delta.get("tool_calls", []):
        _take_call(answer, call)


def _take_call(answer: ClientAnswer, call: Any) -> None:
    if call["index"] == len(answer.calls):
        assert set(call) == {"index", "id", "type", "function"}
        assert call["function"] == {"name": call["function"]["name"], "arguments": ""}
        answer.calls.append((call["function"]["name"], ""))
        answer.ids.append(call["id"])
        return
    assert call["index"] == len(answer.calls) - 1, "calls are interleaved"
    assert set(call) == {"index", "function"}
    assert set(call["function"]) == {"arguments"}
    name, arguments = answer.calls[-1]
    answer.calls[-1] = (name, arguments + call["function"]["arguments"])
