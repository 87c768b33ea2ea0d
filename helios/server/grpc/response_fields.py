"""`response`: what the answer's messages hold (GRPC-3).

It knows the fields and what a model can report: at each position the likeliest tokens, at most so many, tokens by id, or all of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import InvalidValueError, UnsupportedError
from helios.server.grpc.fields import checked_count, checked_ids
from helios.server.grpc.schema import inference_pb2
from helios.server.options import MAX_CANDIDATES, Limits

MAX_CANDIDATE_IDS = 128


@dataclass(frozen=True, slots=True)
class Candidates:
    """Which tokens beside the one that is there: the `n_best` likeliest, the `named` ones, or all (`is_whole`). Without any of
    these a message has no lists of candidates at all."""

    n_best: int | None = None
    named: tuple[int, ...] = ()
    is_whole: bool = False

    @property
    def needs_distribution(self) -> bool:
        return self.is_whole or bool(self.named)


@dataclass(frozen=True, slots=True)
class Shown:
    """Of the prompt and of the output: the ids; the candidates beside log-probabilities and ranks, None for none of these."""

    prompt_token_ids: bool
    prompt_candidates: Candidates | None
    text: bool
    token_ids: bool
    candidates: Candidates | None
    skips_special: bool

    @property
    def is_prompt_whole(self) -> bool:
        """Whether to ask for the whole vocabulary at the prompt's tokens."""
        return self.prompt_candidates is not None and self.prompt_candidates.is_whole

    @property
    def is_whole(self) -> bool:
        """The same at the generated ones."""
        return self.candidates is not None and self.candidates.is_whole

    @property
    def has_whole(self) -> bool:
        return self.is_whole or self.is_prompt_whole


def read_shown(response: inference_pb2.ResponseOptions, limits: Limits) -> Shown:
    """The options; what is left out of the two with a default of true is true. Candidates are of no effect without
    log-probabilities, and no less checked."""
    has = response.HasField
    prompt_candidates = _read_candidates(response.prompt_candidates, "response.prompt_candidates", limits.vocabulary)
    candidates = _read_candidates(response.output_candidates, "response.output_candidates", limits.vocabulary)
    if response.prompt_logprobs:
        if not limits.scores_prompts:
            raise UnsupportedError("response.prompt_logprobs is not supported by this model", hint="leave it out")
        _check_reported(prompt_candidates, "response.prompt_candidates", limits.reports_prompt_distributions)
    if response.output_logprobs:
        _check_reported(candidates, "response.output_candidates", limits.reports_distributions)
    return Shown(
        prompt_token_ids=response.prompt_token_ids,
        prompt_candidates=prompt_candidates if response.prompt_logprobs else None,
        text=response.output_text if has("output_text") else True,
        token_ids=response.output_token_ids,
        candidates=candidates if response.output_logprobs else None,
        skips_special=response.skip_special_tokens if has("skip_special_tokens") else True,
    )


def _read_candidates(selector: inference_pb2.CandidateTokens, param: str, vocabulary: int) -> Candidates:
    """A list without ids, and `all` that is false, select nothing."""
    match selector.WhichOneof("select"):
        case "top_n":
            if selector.top_n > MAX_CANDIDATES:
                param = f"{param}.top_n"
                raise InvalidValueError(f"{param} is {selector.top_n:,}, the limit is {MAX_CANDIDATES}", param=param)
            return Candidates(n_best=selector.top_n)
        case "token_ids":
            param = f"{param}.token_ids"
            checked_count(selector.token_ids.ids, param, MAX_CANDIDATE_IDS, "ids")
            return Candidates(named=checked_ids(selector.token_ids.ids, param, vocabulary))
    return Candidates(is_whole=selector.all)


def _check_reported(candidates: Candidates, param: str, reports_distributions: bool) -> None:
    if candidates.needs_distribution and not reports_distributions:
        raise UnsupportedError(
            f"{param}.{'all' if candidates.is_whole else 'token_ids'} is not supported by this model",
            hint="use top_n, or prepare it anew",
        )
