"""`response`: what the answer's messages hold (GRPC-3).

It knows the fields and what a device can report: the likeliest tokens of a position, at most so many. More than that, and tokens
by id, are refused.
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
    """Of the prompt and of the output: the ids; log-probabilities and ranks; None for no candidates, else so many."""

    prompt_token_ids: bool
    prompt_logprobs: bool
    n_prompt_candidates: int | None
    text: bool
    token_ids: bool
    logprobs: bool
    n_candidates: int | None
    skips_special: bool

    @property
    def n_scored_prompt(self) -> int | None:
        """Candidates to ask of the model for each prompt token, None for no scores."""
        return (self.n_prompt_candidates or 0) if self.prompt_logprobs else None

    @property
    def n_scored(self) -> int | None:
        """The same for each generated token."""
        return (self.n_candidates or 0) if self.logprobs else None


def read_shown(response: inference_pb2.ResponseOptions, limits: Limits) -> Shown:
    """The options; what is left out of the two with a default of true is true."""
    has = response.HasField
    shown = Shown(
        prompt_token_ids=response.prompt_token_ids,
        prompt_logprobs=response.prompt_logprobs,
        n_prompt_candidates=_read_candidates(response, "prompt_candidates", limits),
        text=response.output_text if has("output_text") else True,
        token_ids=response.output_token_ids,
        logprobs=response.output_logprobs,
        n_candidates=_read_candidates(response, "output_candidates", limits),
        skips_special=response.skip_special_tokens if has("skip_special_tokens") else True,
    )
    if shown.prompt_logprobs and not limits.scores_prompts:
        raise UnsupportedError("response.prompt_logprobs is not supported by this model", hint="leave it out")
    return shown


def _read_candidates(response: inference_pb2.ResponseOptions, name: str, limits: Limits) -> int | None:
    """How many of the likeliest tokens; None for none but the token that is there."""
    param, selector = f"response.{name}", getattr(response, name)
    select = selector.WhichOneof("select")
    if select == "top_n":
        return _checked_top(selector.top_n, f"{param}.top_n")
    if select == "all" and selector.all:
        return _whole_vocabulary(f"{param}.all", limits.vocabulary)
    if select == "token_ids" and selector.token_ids.ids:
        _refuse_ids(selector.token_ids.ids, f"{param}.token_ids", name, limits.vocabulary)
    return None


def _checked_top(n_candidates: int, param: str) -> int:
    if n_candidates > MAX_CANDIDATES:
        raise InvalidValueError(f"{param} is {n_candidates:,}, the limit is {MAX_CANDIDATES}", param=param)
    return n_candidates


def _whole_vocabulary(param: str, vocabulary: int) -> int:
    if vocabulary > MAX_CANDIDATES:
        raise InvalidValueError(
            f"{param} asks for {vocabulary:,} candidates, the limit is {MAX_CANDIDATES}", hint="use top_n", param=param
        )
    return vocabulary


def _refuse_ids(token_ids: list[int], param: str, name: str, vocabulary: int) -> None:
    checked_count(token_ids, param, MAX_CANDIDATE_IDS, "ids")
    checked_ids(token_ids, param, vocabulary)
    if name == "prompt_candidates":
        raise InvalidValueError(f"{param} cannot select prompt candidates", hint="use top_n", param=param)
    raise UnsupportedError(
        f"{param} is not supported: the {MAX_CANDIDATES} likeliest tokens are known, not others", hint="use top_n"
    )
