"""The body of `POST /v1/completions`, checked into a typed CompletionRequest.

It knows the OpenAI field names and nothing of tokens' meaning. Prompts are text or token ids inside the vocabulary. Scores of an
echoed prompt are asked of the model as scores of any prompt are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.prompt.grammar.request import StructuredRequest, read_structured
from helios.server.fields import Fields, checked_text, read_token_ids
from helios.server.options import MAX_CANDIDATES, MAX_CHOICES, GenerationOptions, Limits, read_options
from helios.server.stop_fields import check_ending
from helios.server.unserved import COMPLETIONS, refuse_unserved

Prompt = str | tuple[int, ...]
_DEFAULT_OUTPUT_TOKENS = 16  # OpenAI's


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Prompts to continue and how. `echoes`: the answer begins with the prompt; `is_echo_only`: and consists of nothing else."""

    prompts: tuple[Prompt, ...]
    structured: StructuredRequest
    options: GenerationOptions
    echoes: bool
    is_echo_only: bool


def read_completion_request(fields: Fields, limits: Limits, new_seed: int) -> CompletionRequest:
    """Check a request body; raises RequestError naming the field."""
    refuse_unserved(fields, COMPLETIONS)
    echoes = fields.boolean("echo")
    is_echo_only = echoes and fields.value("max_tokens") == 0 and not isinstance(fields.value("max_tokens"), bool)
    limit_names = () if is_echo_only else ("max_tokens",)
    options = read_options(fields, limits, limit_names=limit_names, new_seed=new_seed)
    structured = read_structured({name: fields.value(name) for name in ("response_format", "structured_outputs")})
    form_param = None if structured.answer is None else structured.answer.param
    check_ending(options.stops, form_param, ignores_eos=options.ignores_eos)
    prompts = _read_prompts(fields, limits.vocabulary)
    n_choices = len(prompts) * options.n_choices
    if n_choices > MAX_CHOICES:
        raise InvalidValueError(
            f"prompts and n ask for {n_choices} choices, the limit is {MAX_CHOICES}", param="prompt"
        )
    if options.observation.has_token_ids and len(prompts) > 1:
        raise InvalidValueError("return_token_ids takes one prompt at a time", param="return_token_ids")
    n_candidates = fields.integer("logprobs", 0, MAX_CANDIDATES)
    options = dataclasses.replace(
        options,
        output_limit=1 if is_echo_only else options.output_limit or _DEFAULT_OUTPUT_TOKENS,
        sampling=dataclasses.replace(options.sampling, candidates=n_candidates),
        n_prompt_candidates=_prompt_candidates(options, n_candidates, limits, echoes=echoes),
    )
    return CompletionRequest(prompts, structured, options, echoes, is_echo_only)


def _prompt_candidates(
    options: GenerationOptions, n_candidates: int | None, limits: Limits, *, echoes: bool
) -> int | None:
    """An echoed prompt with log-probabilities has them for its own tokens too."""
    if not echoes or n_candidates is None:
        return options.n_prompt_candidates
    if not limits.scores_prompts:
        raise InvalidValueError(
            "echo with logprobs needs scores of the prompt, which this model does not give", param="echo"
        )
    return max(n_candidates, options.n_prompt_candidates or 0)


def _read_prompts(fields: Fields, vocabulary: int) -> tuple[Prompt, ...]:
    """One prompt, or a list of them."""
    value = fields.value("prompt")
    is_one = isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], int))
    values = [value] if is_one else value
    if not isinstance(values, list) or not values:
        raise fields.refuse("prompt", "text, a list of token ids, or a list of those")
    return tuple(_read_prompt(one, vocabulary) for one in values)


def _read_prompt(value: Any, vocabulary: int) -> Prompt:
    if isinstance(value, str) and value:
        return checked_text(value, "prompt")
    if not isinstance(value, list) or not value:
        raise InvalidValueError("prompt must be nonempty text or a nonempty list of token ids", param="prompt")
    return read_token_ids(value, "prompt", vocabulary)
