"""What a generation request is and what it yields: frozen messages between threads.

It knows no text, no HTTP and no device: prompts are token ids, stops are a callable. Every request ends with exactly one
`Finished` or `Failed` event.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from helios.errors import HeliosError
from helios.scheduler.distribution import Distribution, Ranked


class FinishReason(enum.Enum):
    """How a generation ended. EOS, LIMIT and STOP are successes."""

    EOS = "eos"
    LIMIT = "limit"
    STOP = "stop"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How the next token is chosen. Field meanings and order of application are those of `sample.1` in kernels.h.

    `seed` is 64 bits. `candidates` is None for no log-probabilities, else 0..20 alternatives for each token. Beside them, which
    needs log-probabilities: `named_candidates` are reported wherever they rank, and with `has_distributions` every token is.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    candidates: int | None = None
    named_candidates: tuple[int, ...] = ()
    has_distributions: bool = False

    @property
    def needs_distribution(self) -> bool:
        return self.has_distributions or bool(self.named_candidates)

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


class TokenConstraint(Protocol):
    """What a constrained request may say next; lives on the model worker, one for each request. Errors are HeliosErrors and end
    that request alone."""

    def mask(self) -> NDArray[Any] | None:
        """uint32 [ceil(vocabulary / 32)], bit set: allowed; None where every token is. Valid until `advance`."""

    def advance(self, token_id: int) -> None:
        """Take in a token that was sampled under the mask; EOS is not fed."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A wish that the cache keeps this sequence's tokens ahead of others. A later wish under the same `key` takes its place.

    `n_most_tokens` from the first on, None for all of them, 0 for none any more; for `duration_s` seconds, None for good.
    """

    key: str
    n_most_tokens: int | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate. `output_limit` counts new tokens, at least 1; `eos_tokens` end it (at most 16).

    `host_stop`, when given, is fed every generated token on the model worker and returns True when the text is complete;
    `constraint` masks every token. Either makes the request host-decided: one round outstanding at a time (STOP-3, SPEC-7).
    `priority`: lower runs sooner. `cache_salt` separates prefixes that must not be shared; `uses_cache` False neither reads nor
    publishes any. `boundaries`: numbers of prompt tokens, ascending, behind which its state is saved, because other prompts may go
    on from there (FE-4). `retention`: what the cache is to keep of it when it is over. `is_timed`: its tokens carry their time
    (OBS-2).
    `prompt_candidates`: None for no scores of the prompt, else 0..20 alternatives for each of its tokens. Beside them, as in
    SamplingParameters: `named_prompt_candidates`, `has_prompt_distributions`.
    """

    prompt_tokens: tuple[int, ...]
    output_limit: int
    eos_tokens: tuple[int, ...] = ()
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    host_stop: Callable[[int], bool] | None = None
    constraint: TokenConstraint | None = None
    priority: int = 0
    cache_salt: str = ""
    uses_cache: bool = True
    boundaries: tuple[int, ...] = ()
    is_timed: bool = False
    prompt_candidates: int | None = None
    named_prompt_candidates: tuple[int, ...] = ()
    has_prompt_distributions: bool = False
    retention: Retention | None = None

    @property
    def needs_prompt_distributions(self) -> bool:
        return self.has_prompt_distributions or bool(self.named_prompt_candidates)


class Token(NamedTuple):
    """One generated token. `candidates` are (token id, natural-log probability), most likely first. `completed_s`: when its
    completion was validated, by the scheduler's clock, for timed requests. `named`, `distribution`: what it was chosen from, as far
    as its request wants to know."""

    token_id: int
    logprob: float | None = None
    rank: int | None = None
    candidates: tuple[tuple[int, float], ...] = ()
    completed_s: float | None = None
    named: tuple[Ranked, ...] = ()
    distribution: Distribution | None = None


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Of a request with `prompt_candidates`, once, before its first token: what the model says of each prompt token but the first,
    given those before it."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a finished request; EOS and the token that crosses a stop count as output."""

    prompt_tokens: int
    output_tokens: int
    reused_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that did not fail."""

    reason: FinishReason
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that failed."""

    error: HeliosError


Event = PromptScores | Token | Finished | Failed
ENDINGS = (Finished, Failed)
