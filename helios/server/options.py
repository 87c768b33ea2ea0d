"""What a caller may ask of a generation, whatever the endpoint: length, sampling, stops, choices, streaming, observation.

It knows field names, ranges and the order in which defaults apply (CON-2); it knows no prompt and no response. An explicit value
always wins, and null counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from helios.errors import InvalidValueError, UnknownModelError
from helios.scheduler.request import SamplingParameters
from helios.server.fields import Fields, is_number
from helios.server.observation_fields import Observation, read_observation
from helios.server.stop_fields import StopRules, read_stops

MAX_CHOICES = 16
MAX_BIASES = 1024  # HELIOS_MAX_BIAS
MAX_CANDIDATES = 20  # HELIOS_MAX_CANDIDATES
MAX_SALT_CHARACTERS = 1024
_SEED_BITS = (1 << 64) - 1
ANY_COUNT = (1 << 31) - 1


class SamplingDefaults(Protocol):
    """What the core recommends; None where it says nothing."""

    @property
    def temperature(self) -> float | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def top_k(self) -> int | None: ...
    @property
    def min_p(self) -> float | None: ...
    @property
    def repetition_penalty(self) -> float | None: ...
    @property
    def frequency_penalty(self) -> float | None: ...
    @property
    def presence_penalty(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """The facts of the served model that requests are checked against."""

    served_id: str
    aliases: tuple[str, ...]
    vocabulary: int
    defaults: SamplingDefaults
    calls_tools: bool = False
    scores_prompts: bool = False
    reports_distributions: bool = False
    reports_prompt_distributions: bool = False


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """A checked request without its prompt. `output_limit` None: as much as the context holds.

    `n_prompt_candidates`: alternatives to report for each prompt token, None for no scores of the prompt.
    """

    sampling: SamplingParameters
    output_limit: int | None
    n_choices: int
    stops: StopRules
    ignores_eos: bool
    is_stream: bool
    observation: Observation
    n_prompt_candidates: int | None
    priority: int
    cache_salt: str

    def seed_of(self, choice: int) -> int:
        """Choices of one request differ, and each can be had again alone."""
        return seed_bits(self.sampling.seed + choice)


def seed_bits(seed: int) -> int:
    """A seed as the device takes it: 64 bits, whatever its sign or carry."""
    return seed & _SEED_BITS


def read_options(
    fields: Fields, limits: Limits, *, limit_names: tuple[str, ...], new_seed: int, stop_name: str = "stop"
) -> GenerationOptions:
    """The options in a request body. `limit_names` are the fields that bound the output, the preferred one first; `stop_name` is
    the field of string stops."""
    _check_model(fields, limits)
    output_limits = [fields.integer(name, 1, ANY_COUNT) for name in limit_names]
    return GenerationOptions(
        sampling=_read_sampling(fields, limits, new_seed),
        output_limit=next((limit for limit in output_limits if limit is not None), None),
        n_choices=fields.integer("n", 1, MAX_CHOICES) or 1,
        stops=read_stops(fields, limits.vocabulary, stop_name),
        ignores_eos=fields.boolean("ignore_eos"),
        is_stream=fields.boolean("stream"),
        observation=read_observation(fields),
        n_prompt_candidates=_read_prompt_candidates(fields, limits),
        priority=fields.integer("priority", -ANY_COUNT, ANY_COUNT) or 0,
        cache_salt=_read_salt(fields),
    )


def _check_model(fields: Fields, limits: Limits) -> None:
    name = fields.text("model")
    if name is not None and name != limits.served_id and name not in limits.aliases:
        raise UnknownModelError(name, limits.served_id)


def _read_sampling(fields: Fields, limits: Limits, new_seed: int) -> SamplingParameters:
    """Sampling parameters: the request's, else the core's, else OpenAI's defaults; candidates are the endpoint's to set."""
    defaults = limits.defaults
    neutral = SamplingParameters()
    top_k = fields.integer("top_k", -1, ANY_COUNT)
    seed = fields.integer("seed", -(1 << 63), _SEED_BITS)
    return SamplingParameters(
        temperature=_first(fields.number("temperature", 0, 2), defaults.temperature, neutral.temperature),
        top_p=_first(fields.number("top_p", 0, 1), defaults.top_p, neutral.top_p),
        top_k=int(max(_first(top_k, defaults.top_k, neutral.top_k), 0)),
        min_p=_first(fields.number("min_p", 0, 1), defaults.min_p, neutral.min_p),
        repetition_penalty=_first(_repetition(fields), defaults.repetition_penalty, neutral.repetition_penalty),
        frequency_penalty=_first(
            fields.number("frequency_penalty", -2, 2), defaults.frequency_penalty, neutral.frequency_penalty
        ),
        presence_penalty=_first(
            fields.number("presence_penalty", -2, 2), defaults.presence_penalty, neutral.presence_penalty
        ),
        seed=seed_bits(new_seed if seed is None else seed),
        logit_bias=tuple(_read_biases(fields, limits.vocabulary)),
    )


def _read_prompt_candidates(fields: Fields, limits: Limits) -> int | None:
    """`prompt_logprobs`: alternatives for each token of the prompt."""
    n_candidates = fields.integer("prompt_logprobs", 0, MAX_CANDIDATES)
    if n_candidates is not None and not limits.scores_prompts:
        raise InvalidValueError(
            "prompt_logprobs is not supported by this model", hint="leave it out", param="prompt_logprobs"
        )
    return n_candidates


def _read_salt(fields: Fields) -> str:
    """Prefixes are shared among requests of the same salt only."""
    salt = fields.text("cache_salt")
    if salt is not None and not 1 <= len(salt) <= MAX_SALT_CHARACTERS:
        raise fields.refuse("cache_salt", f"a text of 1 to {MAX_SALT_CHARACTERS} characters")
    return salt or ""


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _repetition(fields: Fields) -> float | None:
    return fields.number("repetition_penalty", 0.01, 100)


def _read_biases(fields: Fields, vocabulary: int) -> Iterator[tuple[int, float]]:
    """The `logit_bias` object: {"token id": bias}."""
    table = fields.value("logit_bias")
    if table is None:
        return
    if not isinstance(table, dict) or len(table) > MAX_BIASES:
        raise fields.refuse("logit_bias", f"an object of at most {MAX_BIASES:,} token ids")
    for key, bias in table.items():
        param = f"logit_bias[{key[:40]}]"
        is_number_text = key.isascii() and key.isdecimal() and len(key) <= 10
        if not is_number_text or str(int(key)) != key or int(key) >= vocabulary:
            raise InvalidValueError(f"{param} is no token id from 0 to {vocabulary - 1:,}", param=param)
        if not is_number(bias) or not -100 <= bias <= 100:
            raise InvalidValueError(f"{param} must be a number from -100 to 100", param=param)
        yield int(key), float(bias)
