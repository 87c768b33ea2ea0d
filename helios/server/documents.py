"""What stands around the choices of a response: its envelope, usage, and what was observed.

It knows the response's field names and no flow. Every document of one response has the same id, time and model; usage is on exactly
one of them (OBS-3, OBS-4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from helios.errors import InternalError
from helios.scheduler.request import Token, Usage
from helios.server.choice import Choice


@dataclass(frozen=True, slots=True)
class Times:
    """When the request came and when its first sequence was submitted, and the origin of all times, by one monotonic clock."""

    origin_s: float
    ingress_s: float
    enqueue_s: float

    def since_origin_ns(self, time_s: float) -> int:
        return round((time_s - self.origin_s) * 1e9)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that every document of one response shares. `has_reasoning`: the model's syntax knows some."""

    response_id: str
    created: int
    model: str
    n_choices: int
    has_reasoning: bool

    def document(self, kind: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": entries,
        }

    def usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Token counts over all choices; choices of the same prompt read it once."""
        usages = _usages(choices)
        prompts = usages[:: self.n_choices]
        n_prompt = sum(usage.prompt_tokens for usage in prompts)
        n_output = sum(usage.output_tokens for usage in usages)
        document: dict[str, Any] = {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_output,
            "total_tokens": n_prompt + n_output,
            "prompt_tokens_details": {"cached_tokens": sum(usage.reused_prompt_tokens for usage in prompts)},
        }
        if self.has_reasoning:
            n_reasoning = sum(choice.n_reasoning_tokens for choice in choices)
            document["completion_tokens_details"] = {"reasoning_tokens": n_reasoning}
        return document

    def observed(self, choices: Sequence[Choice], times: Times | None) -> dict[str, Any]:
        """What an observed response ends with beside its usage (OBS-3)."""
        n_reused = sum(usage.reused_prompt_tokens for usage in _usages(choices)[:: self.n_choices])
        document: dict[str, Any] = {"reused_prompt_tokens": n_reused}
        if times is not None:
            document["performance"] = {
                "ingress_ns": times.since_origin_ns(times.ingress_s),
                "enqueue_ns": times.since_origin_ns(times.enqueue_s),
                "reused_prompt_tokens": n_reused,
            }
        return document


def observed_tokens(tokens: Iterable[Token], times: Times | None) -> dict[str, Any]:
    """Raw tokens of a choice, and their times where they were asked for: arrays of equal length (OBS-1, OBS-2)."""
    kept = tuple(tokens)
    document: dict[str, Any] = {"token_ids": [token.token_id for token in kept]}
    if times is not None:
        document["token_timestamps_ns"] = [times.since_origin_ns(_completed_s(token)) for token in kept]
    return document


def _completed_s(token: Token) -> float:
    if token.completed_s is None:
        raise InternalError("a timed request's token has no time")
    return token.completed_s


def _usages(choices: Sequence[Choice]) -> list[Usage]:
    usages = [choice.usage for choice in choices if choice.usage is not None]
    if len(usages) != len(choices):
        raise InternalError("a choice ended without its usage")
    return usages
