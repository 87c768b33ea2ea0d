"""A GenerateRequest message, checked into typed GenerateOptions: every field acts or is refused (GRPC-2).

It knows field names and limits, no tokenizer and no engine. The prompt's length, and what depends on it, is settled where there are
tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from helios.errors import FeatureError, InvalidValueError, UnknownModelError
from helios.prompt.grammar.request import StructuredRequest
from helios.scheduler.request import SamplingParameters
from helios.server.grpc.cache_fields import CacheRules, read_cache_rules
from helios.server.grpc.fields import checked_ids
from helios.server.grpc.response_fields import Shown, read_shown
from helios.server.grpc.sampling_fields import read_allowed_tokens, read_form, read_sampling, read_sequence_count
from helios.server.grpc.schema import inference_pb2
from helios.server.grpc.stopping_fields import Stopping, read_stopping
from helios.server.options import Limits


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """`n_kept`: only the last so many prompt tokens are used, 0 for all of them."""

    prompt: str | tuple[int, ...]
    n_kept: int
    sampling: SamplingParameters
    n_sequences: int
    allowed_tokens: tuple[int, ...]
    form: StructuredRequest
    stopping: Stopping
    shown: Shown
    cache: CacheRules
    priority: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A message as it came. `salt_of` adds to a cache salt what parts its caller from others."""

    message: inference_pb2.GenerateRequest
    is_stream: bool
    salt_of: Callable[[str], str]


def read_generate_request(asked: Asked, limits: Limits, n_default: int | None, new_seed: int) -> GenerateOptions:
    """Check a message; raises RequestError naming the field. `n_default` new tokens where it has no limit, None: as many as fit."""
    request = asked.message
    if request.model and request.model != limits.served_id and request.model not in limits.aliases:
        raise UnknownModelError(request.model, limits.served_id)
    _refuse_unserved(request)
    shown = read_shown(request.response, limits)
    options = GenerateOptions(
        prompt=_read_prompt(request, limits.vocabulary),
        n_kept=request.truncate_prompt_tokens,
        sampling=read_sampling(request, limits, shown, new_seed),
        n_sequences=read_sequence_count(request),
        allowed_tokens=read_allowed_tokens(request, limits.vocabulary),
        form=read_form(request),
        stopping=read_stopping(request.stopping, limits.vocabulary, n_default),
        shown=shown,
        cache=read_cache_rules(request, asked.salt_of),
        priority=request.priority,
    )
    if options.n_sequences > 1 and not asked.is_stream:
        raise InvalidValueError(
            f"a whole answer holds one sequence, sampling.num_sequences is {options.n_sequences}",
            hint="use GenerateStream",
            param="sampling.num_sequences",
        )
    if options.form.is_constrained and options.stopping.ignores_eos:
        raise InvalidValueError(
            "stopping.ignore_eos cannot be combined with a structured output",
            hint="the form ends the answer",
            param="stopping.ignore_eos",
        )
    return options


def _refuse_unserved(request: inference_pb2.GenerateRequest) -> None:
    """`watermarking` is of effect where a watermark is configured, and there is no way to configure one."""
    if request.media:
        raise InvalidValueError("this model takes text only", hint="leave media out", param="media")
    if request.lora_name:
        raise FeatureError("lora_name needs adapters, and this server has none", hint="leave it out", param="lora_name")


def _read_prompt(request: inference_pb2.GenerateRequest, vocabulary: int) -> str | tuple[int, ...]:
    kind = request.WhichOneof("prompt")
    if kind is None:
        raise InvalidValueError("prompt is required", hint="give text or token_ids", param="prompt")
    if kind == "text":
        return request.text
    if not request.token_ids.ids:
        raise InvalidValueError("token_ids has no tokens, at least 1 is needed", param="token_ids")
    return checked_ids(request.token_ids.ids, "token_ids", vocabulary)
