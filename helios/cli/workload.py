"""The prompts of a measurement: random words, an exact number of tokens, no two alike.

It knows a server only through the token counts it reports. Every word is one token in the vocabularies of common models,
which is verified on each answer, never assumed; the random words come first, so no prefix cache can shorten the work.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from helios.cli.streams import Endpoint
from helios.cli.timeline import Timeline
from helios.errors import RemoteError, UnmeasurableError

_WORD_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand part "
    "place case week company system program question work number night point home water room mother area money story fact "
    "month lot right study book eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea body information back parent face level office door "
    "health person art war history party result change reason research girl moment air teacher force education"
)
WORDS = tuple(_WORD_TEXT.split())
TASK = "Write a very long story with all of these words."
PROBE_WORDS = 8
ANSWER_TIMEOUT_S = 300.0


class Workload:
    """Makes chat requests whose prompts have exactly the tokens asked for, and runs them against one endpoint."""

    def __init__(self, endpoint: Endpoint, seed: int) -> None:
        self.endpoint = endpoint
        self.random = random.Random(seed)
        self.model, self.context_tokens = _first_model(endpoint)  # None where the server does not say it
        self.overhead_tokens = self.overhead(TASK)

    def overhead(self, user: str) -> int:
        """Tokens of a prompt besides the words of its system message, where `user` is the other one."""
        (probe,) = self.endpoint.stream([self.body(self.words(PROBE_WORDS), user, 1)], ANSWER_TIMEOUT_S)
        return probe.n_prompt_tokens - PROBE_WORDS

    def run(self, n_streams: int, n_prompt_tokens: int, n_new_tokens: int) -> list[Timeline]:
        """n_streams requests at once, greedy, each with a prompt of n_prompt_tokens and at most n_new_tokens of answer."""
        n_words = n_prompt_tokens - self.overhead_tokens
        if n_words < 1:
            raise UnmeasurableError(
                f"a prompt of {n_prompt_tokens:,} tokens is too short: "
                f"the server's chat template and the task take {self.overhead_tokens:,}"
            )
        bodies = [self.body(self.words(n_words), TASK, n_new_tokens) for _ in range(n_streams)]
        return self.answer(bodies, n_prompt_tokens)

    def words(self, n_words: int) -> str:
        """Random words, one token each."""
        return " ".join(self.random.choices(WORDS, k=n_words))

    def answer(self, bodies: Sequence[Mapping[str, Any]], n_prompt_tokens: int) -> list[Timeline]:
        """Run requests at once. Raises RemoteError when a prompt does not have exactly n_prompt_tokens."""
        n_most_tokens = n_prompt_tokens + max(body["max_tokens"] for body in bodies)
        if self.context_tokens is not None and n_most_tokens > self.context_tokens:
            raise UnmeasurableError(
                f"prompt and answer take {n_most_tokens:,} tokens, the server's context has {self.context_tokens:,}"
            )
        timelines = self.endpoint.stream(bodies, ANSWER_TIMEOUT_S)
        for timeline in timelines:
            if timeline.n_prompt_tokens != n_prompt_tokens:
                raise RemoteError(
                    f"a prompt meant to have {n_prompt_tokens:,} tokens had {timeline.n_prompt_tokens:,}: "
                    "the server's vocabulary does not hold common words as single tokens"
                )
        return timelines

    def body(self, system: str, user: str, n_new_tokens: int) -> dict[str, Any]:
        """A streamed chat request of two messages, greedy, that does not end before its limit."""
        return {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "max_tokens": n_new_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def _first_model(endpoint: Endpoint) -> tuple[str, int | None]:
    """Its name, and the tokens of its context where they are told (as Helios and vLLM do)."""
    status, body = endpoint.get("/v1/models", timeout_s=30)
    try:
        if status == 200:
            model = json.loads(body)["data"][0]
            n_tokens = model.get("max_model_len")
            return str(model["id"]), n_tokens if isinstance(n_tokens, int) else None
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise RemoteError(f"GET /v1/models answered {status} without a model's name: {body[:200].decode(errors='replace')}")
