"""Sampling and decoding parameters: what reaches the sampler, and answers that are held to a form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helios.scheduler.request import GenerationRequest, SamplingParameters
from helios.server.grpc.response_fields import read_shown
from helios.server.grpc.sampling_fields import read_sampling
from helios.server.options import Limits
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.grpc.conftest import Client, finish_of, request_of, text_of
from tests.server.grpc.validator import FinishInfo
from tests.server.scripted import ScriptedDevice, is_allowed
from tests.server.scripted_engine import Defaults

CORE = Defaults(temperature=0.5, top_p=0.75, top_k=40, min_p=0.25, repetition_penalty=1.5, presence_penalty=1.0)


def sampling_of(defaults: Defaults | None = None, **fields: Any) -> SamplingParameters:
    limits = Limits("served", (), 1000, defaults or Defaults())
    request = request_of(**fields)
    return read_sampling(request, limits, read_shown(request.response, limits), new_seed=77)


def test_without_defaults_everything_is_neutral_and_greedy() -> None:
    """GRPC-2: temperature's default is the model's, or 0."""
    assert sampling_of() == SamplingParameters(temperature=0.0, seed=77)


def test_zero_takes_the_models_default_and_is_no_penalty() -> None:
    """GRPC-2: as the schema's comments say."""
    found = sampling_of(CORE)
    assert found == SamplingParameters(temperature=0.5, top_p=0.75, top_k=40, min_p=0.25, seed=77)


def test_a_given_value_wins() -> None:
    found = sampling_of(
        CORE,
        temperature=0.0,
        sampling={"top_p": 1.0, "top_k": 7, "min_p": 0.125, "seed": 0},
        decoding={
            "presence_penalty": -2.0,
            "frequency_penalty": 2.0,
            "repetition_penalty": 1.25,
            "logit_bias": {9: 1, 3: -1},
        },
    )
    assert found == SamplingParameters(
        temperature=0.0,
        top_p=1.0,
        top_k=7,
        min_p=0.125,
        seed=0,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        repetition_penalty=1.25,
        logit_bias=((3, -1.0), (9, 1.0)),
    )


def test_a_top_k_of_the_whole_vocabulary_switches_the_models_off() -> None:
    assert sampling_of(CORE, sampling={"top_k": 1000}).top_k == 0
    assert sampling_of(CORE, sampling={"top_k": 0xFFFFFFFF}).top_k == 0


@pytest.mark.parametrize("repetition_penalty", [0.01, 100.0])
def test_the_ends_of_a_range_belong_to_it(repetition_penalty: float) -> None:
    """As over HTTP, although 0.01 in single precision is less than 0.01."""
    found = sampling_of(decoding={"repetition_penalty": repetition_penalty}).repetition_penalty
    assert found == pytest.approx(repetition_penalty)


def test_a_negative_seed_is_a_seed() -> None:
    assert sampling_of(sampling={"seed": -1}).seed == (1 << 64) - 1


def test_each_sequence_has_its_own_seed_and_can_be_had_again(client: Client, device: ScriptedDevice) -> None:
    """GRPC-1: sequence i of seed s is the answer of seed s + i."""
    client.stream(sampling={"num_sequences": 3, "seed": -2})
    seeds = {request.sampling.seed for request in device.requests}
    assert seeds == {(1 << 64) - 2, (1 << 64) - 1, 0}


def test_priority_salt_and_bypass_reach_the_scheduler(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: priority, cache_salt, bypass_prefix_cache."""
    client.generate(priority=-5, kv={"cache_salt": "mine", "bypass_prefix_cache": True})
    request = device.requests[0]
    assert (request.priority, request.cache_salt, request.uses_cache) == (-5, "mine", False)
    client.generate(watermarking=False)
    assert device.requests[1].uses_cache


def test_only_allowed_tokens_are_generated(client: Client, device: ScriptedDevice, tokenizer: Tokenizer) -> None:
    """GRPC-2: an end of generation that is not listed cannot come either."""
    first, second = tokenizer.encode("xy", allow_special=False)

    def speak(request: GenerationRequest, said: Sequence[int], mask: Any) -> int:
        wanted = [request.eos_tokens[0], *tokenizer.encode("ab", allow_special=False), second, first]
        return next(token for token in wanted if is_allowed(mask, token))

    device.voice = speak
    response = client.generate(decoding={"allowed_token_ids": [first, second]}, stopping={"max_new_tokens": 3})
    assert response.outputs.text == "yyy"
    assert response.outputs.finish_info.finish_reason == FinishInfo.LENGTH


TAG = {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}
FORMS: list[tuple[dict[str, Any], str]] = [
    ({"json": json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})}, '{"a": 1}'),
    ({"regex": "[a-c]{3}"}, "abc"),
    ({"choice": {"choices": ["yes", "no"]}}, "no"),
    ({"grammar": 'start: "x" "y"'}, "xy"),
    ({"json_object": True}, '{"b": []}'),
    ({"structural_tag": json.dumps({"structures": [TAG], "triggers": ["<f>"]})}, "so <f>7</f>"),
]


@pytest.mark.parametrize(("decoding", "text"), FORMS, ids=[next(iter(form)) for form, _ in FORMS])
def test_a_form_allows_an_answer_of_its_kind(
    client: Client, device: ScriptedDevice, decoding: dict[str, Any], text: str
) -> None:
    """GRPC-2: each of the six; the device refuses what the mask forbids."""
    device.says(text)
    responses = client.stream(decoding=decoding, stopping={"max_new_tokens": 100})
    assert text_of(responses) == text
    assert finish_of(responses).finish_reason == FinishInfo.STOP


@pytest.mark.parametrize(("decoding", "text"), FORMS[:-1], ids=[next(iter(form)) for form, _ in FORMS[:-1]])
def test_a_form_forbids_another_kind(
    client: Client, device: ScriptedDevice, tokenizer: Tokenizer, decoding: dict[str, Any], text: str
) -> None:
    """GRPC-2: a model that wants to say "!" from the first token on never does."""
    (unwanted,) = tokenizer.encode("!", allow_special=False)
    plan = tokenizer.encode(text, allow_special=False)

    def speak(request: GenerationRequest, said: Sequence[int], mask: Any) -> int:
        if is_allowed(mask, unwanted):
            return unwanted
        return plan[len(said)] if len(said) < len(plan) else request.eos_tokens[0]

    device.voice = speak
    said = client.generate(decoding=decoding, stopping={"max_new_tokens": 100}).outputs.text
    assert not said.startswith("!")


def test_a_form_within_allowed_tokens_ends_although_no_ending_is_among_them(
    client: Client, device: ScriptedDevice, tokenizer: Tokenizer
) -> None:
    """GRPC-2: a choice in the tokens that are allowed, whole and streamed."""
    allowed = tokenizer.encode("no", allow_special=False)
    decoding = {"choice": {"choices": ["yes", "no"]}, "allowed_token_ids": allowed}
    for ask in (lambda **fields: [client.generate(**fields)], client.stream):
        device.says("no")
        responses = ask(decoding=decoding)
        assert text_of(responses) == "no"
        assert finish_of(responses).WhichOneof("stop_reason") == "eos_token_id"


def test_a_form_and_allowed_tokens_that_exclude_each_other_fail_the_request(
    client: Client, tokenizer: Tokenizer
) -> None:
    import grpc

    (other,) = tokenizer.encode("z", allow_special=False)
    code, details = client.refused(decoding={"regex": "[ab]+", "allowed_token_ids": [other]})
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "no token" in details
