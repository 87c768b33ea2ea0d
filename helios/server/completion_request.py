"""The body of `POST /v1/completions`, checked into a typed CompletionRequest.

It knows the OpenAI field names and nothing of tokens' meaning. Prompts are text or token ids inside the vocabulary.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.server.fields import Fields, checked_text
from helios.server.options import MAX_CHOICES, GenerationOptions, Limits, read_options

Prompt = str | tuple[int, ...]
_DEFAULT_OUTPUT_TOKENS = 16  # OpenAI's


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Prompts to continue and how."""

    prompts: tuple[Prompt, ...]
    options: GenerationOptions


def read_completion_request(fields: Fields, limits: Limits, new_seed: int) -> CompletionRequest:
    """Check a request body; raises RequestError naming the field."""
    options = read_options(fields, limits, limit_names=("max_tokens",), new_seed=new_seed)
    if fields.value("logprobs") is not None:
        raise InvalidValueError(
            "logprobs is not supported for completions", hint="use chat completions", param="logprobs"
        )
    prompts = _read_prompts(fields, limits.vocabulary)
    n_choices = len(prompts) * options.n_choices
    if n_choices > MAX_CHOICES:
        raise InvalidValueError(
            f"prompts and n ask for {n_choices} choices, the limit is {MAX_CHOICES}", param="prompt"
        )
    output_limit = options.output_limit or _DEFAULT_OUTPUT_TOKENS
    return CompletionRequest(prompts, dataclasses.replace(options, output_limit=output_limit))


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


def read_token_ids(values: list[Any], param: str, vocabulary: int) -> tuple[int, ...]:
    """A list of token ids, each inside the model's own vocabulary."""
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocabulary:
            name = f"{param}[{index}]"
            raise InvalidValueError(f"{name} must be a token id from 0 to {vocabulary - 1:,}", param=name)
    return tuple(values)
