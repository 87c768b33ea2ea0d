"""What a caller may ask of a generation, whatever the endpoint: length, sampling, stops, choices, streaming.

It knows field names, ranges and the order in which defaults apply; it knows no prompt and no response. A field that would
change the answer and is not built here is refused, never ignored (CON-2, STOP-1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from helios.errors import InvalidValueError, UnknownModelError
from helios.scheduler.request import SamplingParameters
from helios.server.fields import Fields, checked_text, is_number

MAX_CHOICES = 16
MAX_STOPS = 4
MAX_STOP_BYTES = 4096
MAX_BIASES = 1024  # HELIOS_MAX_BIAS
MAX_CANDIDATES = 20  # HELIOS_MAX_CANDIDATES
_SEED_BITS = (1 << 64) - 1
_ANY_COUNT = (1 << 31) - 1


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


@dataclass(frozen=True, slots=True)
class Limits:
    """The facts of the served model that requests are checked against."""

    served_id: str
    aliases: tuple[str, ...]
    vocabulary: int
    defaults: SamplingDefaults


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """A checked request without its prompt. `output_limit` None: as much as the context holds."""

    sampling: SamplingParameters
    output_limit: int | None
    n_choices: int
    stops: tuple[str, ...]
    ignores_eos: bool
    is_stream: bool
    includes_usage: bool

    def seed_of(self, choice: int) -> int:
        """Choices of one request differ, and each can be had again alone."""
        return (self.sampling.seed + choice) & _SEED_BITS


# Fields that would change the answer and are not served, with the values that ask for nothing. Null always asks for nothing.
_UNSERVED: Mapping[str, tuple[object, ...]] = {
    "tools": ([],), "functions": ([],), "tool_choice": ("none", "auto"), "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "audio": (), "web_search_options": (),
    "structured_outputs": (), "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    "grammar": ("",), "json_schema": (), "best_of": (1,), "use_beam_search": (False,), "length_penalty": (1,),
    "stop_token_ids": ([],), "stop_token_sequences": ([],), "include_stop_str_in_output": (False,), "min_tokens": (0,),
    "bad_words": ([],), "allowed_token_ids": (), "prompt_logprobs": (0,), "truncate_prompt_tokens": (),
    "add_generation_prompt": (True,), "continue_final_message": (False,), "chat_template": (), "chat_template_kwargs": ({},),
    "documents": ([],), "skip_special_tokens": (True,), "return_token_ids": (False,), "return_token_timestamps": (False,),
    "echo": (False,), "suffix": ("",), "typical_p": (1,), "mirostat": (0,), "xtc_probability": (0,), "dry_multiplier": (0,),
}  # fmt: skip


def read_options(fields: Fields, limits: Limits, *, limit_names: tuple[str, ...], new_seed: int) -> GenerationOptions:
    """The options in a request body. `limit_names` are the fields that bound the output, the preferred one first."""
    _check_model(fields, limits)
    _refuse_unserved(fields)
    output_limits = [fields.integer(name, 1, _ANY_COUNT) for name in limit_names]
    stream_options = fields.object("stream_options")
    return GenerationOptions(
        sampling=_read_sampling(fields, limits, new_seed),
        output_limit=next((limit for limit in output_limits if limit is not None), None),
        n_choices=fields.integer("n", 1, MAX_CHOICES) or 1,
        stops=_read_stops(fields),
        ignores_eos=fields.boolean("ignore_eos"),
        is_stream=fields.boolean("stream"),
        includes_usage=stream_options is not None and stream_options.boolean("include_usage"),
    )


def _check_model(fields: Fields, limits: Limits) -> None:
    name = fields.text("model")
    if name is not None and name != limits.served_id and name not in limits.aliases:
        raise UnknownModelError(name, limits.served_id)


def _refuse_unserved(fields: Fields) -> None:
    for name, neutral in _UNSERVED.items():
        value = fields.value(name)
        if value is not None and not any(type(value) is type(other) and value == other for other in neutral):
            raise InvalidValueError(f"{name} is not supported by this server", hint="leave it out", param=name)


def _read_sampling(fields: Fields, limits: Limits, new_seed: int) -> SamplingParameters:
    """Sampling parameters: the request's, else the core's, else OpenAI's defaults; candidates are the endpoint's to set."""
    defaults = limits.defaults
    neutral = SamplingParameters()
    top_k = fields.integer("top_k", -1, _ANY_COUNT)
    seed = fields.integer("seed", -(1 << 63), _SEED_BITS)
    return SamplingParameters(
        temperature=_first(fields.number("temperature", 0, 2), defaults.temperature, neutral.temperature),
        top_p=_first(fields.number("top_p", 0, 1), defaults.top_p, neutral.top_p),
        top_k=int(max(_first(top_k, defaults.top_k, neutral.top_k), 0)),
        min_p=_first(fields.number("min_p", 0, 1), defaults.min_p, neutral.min_p),
        repetition_penalty=_first(_repetition(fields), defaults.repetition_penalty, neutral.repetition_penalty),
        frequency_penalty=_first(fields.number("frequency_penalty", -2, 2), neutral.frequency_penalty),
        presence_penalty=_first(fields.number("presence_penalty", -2, 2), neutral.presence_penalty),
        seed=(new_seed if seed is None else seed) & _SEED_BITS,
        logit_bias=tuple(_read_biases(fields, limits.vocabulary)),
    )


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


def _read_stops(fields: Fields) -> tuple[str, ...]:
    """STOP-1: null, one nonempty string, or up to four totalling at most 4096 UTF-8 bytes; an empty list disables."""
    value = fields.value("stop")
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise fields.refuse("stop", f"a nonempty text or a list of at most {MAX_STOPS} of them")
    n_bytes = sum(len(checked_text(stop, "stop").encode()) for stop in stops)
    if n_bytes > MAX_STOP_BYTES:
        raise InvalidValueError(f"stop has {n_bytes:,} bytes, the limit is {MAX_STOP_BYTES:,}", param="stop")
    return tuple(stops)
