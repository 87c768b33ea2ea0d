"""`temperature`, `sampling` and `decoding`: how the next token is chosen.

It knows field names, ranges and defaults (GRPC-2) and no prompt. Zero takes the model's default where the schema says so, and is no
penalty in the three penalties; whatever the sampler cannot hold is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import InvalidValueError
from helios.prompt.grammar.request import StructuredRequest, read_answer_form
from helios.scheduler.request import SamplingParameters
from helios.server.grpc.fields import checked_count, checked_ids, checked_number
from helios.server.grpc.response_fields import Shown
from helios.server.grpc.schema import inference_pb2
from helios.server.options import MAX_BIASES, MAX_CHOICES, Limits, seed_bits

MAX_ALLOWED_TOKENS = 1024
_LEAST_REPETITION, _MOST_REPETITION = 0.01, 100.0


def read_sampling(
    request: inference_pb2.GenerateRequest, limits: Limits, shown: Shown, new_seed: int
) -> SamplingParameters:
    """What is `shown` of each token is what the sampler is to report."""
    sampling, decoding, defaults = request.sampling, request.decoding, limits.defaults
    candidates = shown.candidates
    top_p = checked_number(sampling.top_p, "sampling.top_p", 0, 1)
    min_p = checked_number(sampling.min_p, "sampling.min_p", 0, 1)
    temperature = (
        checked_number(request.temperature, "temperature", 0, 2)
        if request.HasField("temperature")
        else defaults.temperature
    )
    top_k = sampling.top_k or defaults.top_k or 0
    return SamplingParameters(
        temperature=temperature or 0.0,
        top_p=top_p or (1.0 if defaults.top_p is None else defaults.top_p),
        top_k=0 if top_k >= limits.vocabulary else top_k,
        min_p=min_p or defaults.min_p or 0.0,
        repetition_penalty=_repetition(decoding.repetition_penalty),
        frequency_penalty=checked_number(decoding.frequency_penalty, "decoding.frequency_penalty", -2, 2),
        presence_penalty=checked_number(decoding.presence_penalty, "decoding.presence_penalty", -2, 2),
        seed=seed_bits(sampling.seed if sampling.HasField("seed") else new_seed),
        logit_bias=tuple(_biases(decoding, limits.vocabulary)),
        candidates=None if candidates is None else candidates.n_best or 0,
        named_candidates=() if candidates is None else candidates.named,
        has_distributions=shown.is_whole,
    )


def read_sequence_count(request: inference_pb2.GenerateRequest) -> int:
    """How many answers: `sampling.num_sequences`."""
    n_sequences = request.sampling.num_sequences or 1
    if n_sequences > MAX_CHOICES:
        raise InvalidValueError(
            f"sampling.num_sequences is {n_sequences:,}, the limit is {MAX_CHOICES}", param="sampling.num_sequences"
        )
    return n_sequences


def read_allowed_tokens(request: inference_pb2.GenerateRequest, vocabulary: int) -> tuple[int, ...]:
    """`decoding.allowed_token_ids`, empty where everything is allowed."""
    param, token_ids = "decoding.allowed_token_ids", request.decoding.allowed_token_ids
    checked_count(token_ids, param, MAX_ALLOWED_TOKENS, "ids")
    return checked_ids(token_ids, param, vocabulary)


def read_form(request: inference_pb2.GenerateRequest) -> StructuredRequest:
    """The form of the answer; its names are those of vLLM's `structured_outputs` over HTTP."""
    decoding = request.decoding
    name = decoding.WhichOneof("structured_output")
    if name is None:
        return StructuredRequest()
    value = list(decoding.choice.choices) if name == "choice" else getattr(decoding, name)
    return StructuredRequest(read_answer_form(name, value, "decoding") if value is not False else None)


def _repetition(value: float) -> float:
    if not value:
        return 1.0
    return checked_number(value, "decoding.repetition_penalty", _LEAST_REPETITION, _MOST_REPETITION)


def _biases(decoding: inference_pb2.DecodingParameters, vocabulary: int) -> Iterator[tuple[int, float]]:
    """In the order of the ids, so that the order in which a map was sent is of no effect."""
    checked_count(decoding.logit_bias, "decoding.logit_bias", MAX_BIASES, "entries")
    for token_id, bias in sorted(decoding.logit_bias.items()):
        param = f"decoding.logit_bias[{token_id}]"
        if token_id >= vocabulary:
            raise InvalidValueError(f"{param} is no token id from 0 to {vocabulary - 1:,}", param=param)
        yield token_id, checked_number(bias, param, -100, 100)
