"""`POST /v1/chat/completions`: the JSON of OpenAI's chat responses and stream chunks.

It knows the response's field names and no flow. The first chunk of a choice has the role, the last has the finish reason and
an empty delta, and those between have reasoning, text, or a piece of one call; a call's id and name come once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helios.output.events import ContentDelta, ReasoningDelta, ToolArgumentsDelta, ToolCallStart
from helios.scheduler.request import PromptScores
from helios.server.answer import answer
from helios.server.choice import Part
from helios.server.exchange import Exchange
from helios.server.frontend import PreparedCall
from helios.server.logprobs import chat_logprobs, prompt_logprobs
from helios.server.services import Services
from helios.server.whole_answer import Answer
from helios.tokenizer.tokenizer import Tokenizer


async def create_chat_completion(services: Services, exchange: Exchange) -> None:
    """Answer a conversation."""
    tokenizer = services.engine.tokenizer
    await answer(services, exchange, services.frontend.prepare_chat, lambda call: _ChatShape(tokenizer, call))


class _ChatShape:
    """See `answer.Shape`."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, call: PreparedCall) -> None:
        self._tokenizer = tokenizer
        self._has_logprobs = call.options.sampling.candidates is not None
        self._n_prompt_candidates = call.options.n_prompt_candidates

    def opening(self, index: int) -> dict[str, Any]:
        return _entry(index, {"role": "assistant", "content": ""})

    def scores(self, index: int, scores: PromptScores) -> tuple[dict[str, Any], dict[str, Any]]:
        return _entry(index, {}), self._prompt_logprobs(scores)

    def part(self, index: int, part: Part) -> dict[str, Any] | None:
        match part.event:
            case ContentDelta(text):
                tokens = part.tokens if self._has_logprobs else ()
                return _entry(index, {"content": text}, chat_logprobs(self._tokenizer, tokens))
            case ReasoningDelta(text):
                return _entry(index, {"reasoning_content": text})
            case ToolCallStart(number, call_id, name):
                function = {"name": name, "arguments": ""}
                return _call_entry(index, {"index": number, "id": call_id, "type": "function", "function": function})
            case ToolArgumentsDelta(number, fragment):
                return _call_entry(index, {"index": number, "function": {"arguments": fragment}})
        return None

    def observation(self, index: int) -> dict[str, Any]:
        return _entry(index, {})

    def ending(self, index: int, finish_reason: str) -> dict[str, Any]:
        return _entry(index, {}, finish_reason=finish_reason)

    def whole(self, answer: Answer) -> dict[str, Any]:
        logprobs = chat_logprobs(self._tokenizer, answer.content_tokens) if self._has_logprobs else None
        return {
            "index": answer.index,
            "message": _message(answer),
            "logprobs": logprobs,
            "finish_reason": answer.finish_reason,
        }

    def beside(self, answers: Sequence[Answer]) -> dict[str, Any]:
        scores = answers[0].scores
        return {} if scores is None else self._prompt_logprobs(scores)

    def _prompt_logprobs(self, scores: PromptScores) -> dict[str, Any]:
        return {"prompt_logprobs": prompt_logprobs(self._tokenizer, scores.tokens, self._n_prompt_candidates or 0)}


def _message(answer: Answer) -> dict[str, Any]:
    """Content is null where the answer is calls or reasoning alone."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
    if not answer.content and (answer.calls or answer.reasoning):
        message["content"] = None
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    return message


def _entry(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _call_entry(index: int, call: dict[str, Any]) -> dict[str, Any]:
    return _entry(index, {"tool_calls": [call]})
