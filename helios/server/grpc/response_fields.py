"""`response`: what the answer's messages hold (GRPC-3).

It knows the fields and what a device can report: the likeliest tokens of a position, at most so many, and of the output's positions
also tokens by id, or all of them. Of the prompt's positions these are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import InvalidValueError, UnsupportedError
from helios.server.grpc.fields import checked_count, checked_ids
from helios.server.grpc.schema import inference_pb2
from helios.server.options import MAX_CANDIDATES, Limits

MAX_CANDIDATE_IDS = 128


@dataclass(frozen=True, slots=True)
class Shown:
    """Of the prompt and of the output: the ids; log-probabilities and ranks; None for no candidates, else so many; of the
    output, named ones or all of them."""

    prompt_token_ids: bool
    prompt_logprobs: bool
    n_prompt_candidates: int | None
    text: bool
    token_ids: bool
    logprobs: bool
    n_candidates: int | None
    named_candidates: tuple[int, ...] | None
    has_all_candidates: bool
    skips_special: bool

    @property
    def n_scored_prompt(self) -> int | None:
        """Candidates to ask of the model for each prompt token, None for no scores."""
        return (self.n_prompt_candidates or 0) if self.prompt_logprobs else None

    @property
    def n_scored(self) -> int | None:
        """The same for each generated token."""
        return (self.n_candidates or 0) if self.logprobs else None

    @property
    def named(self) -> tuple[int, ...]:
        """Tokens whose log-probabilities to ask for at each generated one."""
        return (self.named_candidates or ()) if self.logprobs else ()

    @property
    def is_whole(self) -> bool:
        """Whether to ask for those of all tokens."""
        return self.logprobs and self.has_all_candidates


def read_shown(response: inference_pb2.ResponseOptions, limits: Limits) -> Shown:
    """The options; what is left out of the two with a default of true is true."""
    has = response.HasField
    shown = Shown(
        prompt_token_ids=response.prompt_token_ids,
        prompt_logprobs=response.prompt_logprobs,
        n_prompt_candidates=_read_prompt_candidates(response.prompt_candidates, limits),
        text=response.output_text if has("output_text") else True,
        token_ids=response.output_token_ids,
        logprobs=response.output_logprobs,
        n_candidates=_read_top(response.output_candidates, "response.output_candidates"),
        named_candidates=_read_named(response.output_candidates, limits.vocabulary),
        has_all_candidates=response.output_candidates.all,
        skips_special=response.skip_special_tokens if has("skip_special_tokens") else True,
    )
    if shown.prompt_logprobs and not limits.scores_prompts:
        raise UnsupportedError("response.prompt_logprobs is not supported by this model", hint="leave it out")
    if (shown.named or shown.is_whole) and not limits.reports_distributions:
        selector = "all" if shown.is_whole else "token_ids"
        raise UnsupportedError(
            f"response.output_candidates.{selector} is not supported by this model",
            hint="use top_n, or prepare it anew",
        )
    return shown


def _read_prompt_candidates(selector: inference_pb2.CandidateTokens, limits: Limits) -> int | None:
    """How many of the likeliest tokens; None for none but the token that is there."""
    param = "response.prompt_candidates"
    if selector.all:
        return _whole_vocabulary(f"{param}.all", limits.vocabulary)
    if selector.token_ids.ids:
        raise InvalidValueError(
            f"{param}.token_ids cannot select prompt candidates", hint="use top_n", param=f"{param}.token_ids"
        )
    return _read_top(selector, param)


def _read_top(selector: inference_pb2.CandidateTokens, param: str) -> int | None:
    """How many of the likeliest tokens, where that is what is selected."""
    if selector.WhichOneof("select") != "top_n":
        return None
    if selector.top_n > MAX_CANDIDATES:
        raise InvalidValueError(
            f"{param}.top_n is {selector.top_n:,}, the limit is {MAX_CANDIDATES}", param=f"{param}.top_n"
        )
    return selector.top_n


def _read_named(selector: inference_pb2.CandidateTokens, vocabulary: int) -> tuple[int, ...] | None:
    """Tokens by id, where they are selected so; none of them is no selection."""
    ids, param = selector.token_ids.ids, "response.output_candidates.token_ids"
    checked_count(ids, param, MAX_CANDIDATE_IDS, "ids")
    return checked_ids(ids, param, vocabulary) or None


def _whole_vocabulary(param: str, vocabulary: int) -> int:
    if vocabulary > MAX_CANDIDATES:
        raise InvalidValueError(
            f"{param} asks for {vocabulary:,} candidates, the limit is {MAX_CANDIDATES}", hint="use top_n", param=param
        )
    return vocabulary
