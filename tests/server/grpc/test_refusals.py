"""Requests that are wrong, or ask for what is not here: each by the status of its kind, the same whole and streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf import struct_pb2

from helios.errors import InternalError, InvalidValueError
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.grpc.conftest import (
    DEADLINE_S,
    Client,
    GenerateRequest,
    GenerateResponse,
    RunningGrpc,
    request_of,
    wait_until,
)

NAN, INF = float("nan"), float("inf")

# field path in the message -> fields that are wrong there
INVALID: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": 2.5}),
    ("temperature", {"temperature": -0.5}),
    ("temperature", {"temperature": NAN}),
    ("sampling.top_p", {"sampling": {"top_p": 1.5}}),
    ("sampling.top_p", {"sampling": {"top_p": -0.5}}),
    ("sampling.top_p", {"sampling": {"top_p": NAN}}),
    ("sampling.min_p", {"sampling": {"min_p": 1.5}}),
    ("sampling.num_sequences", {"sampling": {"num_sequences": 17}}),
    ("decoding.presence_penalty", {"decoding": {"presence_penalty": 2.5}}),
    ("decoding.frequency_penalty", {"decoding": {"frequency_penalty": -2.5}}),
    ("decoding.frequency_penalty", {"decoding": {"frequency_penalty": INF}}),
    ("decoding.repetition_penalty", {"decoding": {"repetition_penalty": -1.0}}),
    ("decoding.repetition_penalty", {"decoding": {"repetition_penalty": NAN}}),
    ("sampling.top_p is 1.0000001,", {"sampling": {"top_p": 1.0000001}}),
    ("decoding.repetition_penalty is 0.0099,", {"decoding": {"repetition_penalty": 0.0099}}),
    ("decoding.logit_bias[9999999] is no token id", {"decoding": {"logit_bias": {9_999_999: 1.0}}}),
    ("decoding.logit_bias[1] is 101", {"decoding": {"logit_bias": {1: 101.0, 2: 1.0}}}),
    ("decoding.logit_bias[1] is nan", {"decoding": {"logit_bias": {1: NAN}}}),
    ("decoding.logit_bias", {"decoding": {"logit_bias": dict.fromkeys(range(1025), 1.0)}}),
    ("decoding.allowed_token_ids", {"decoding": {"allowed_token_ids": [9_999_999]}}),
    ("decoding.allowed_token_ids", {"decoding": {"allowed_token_ids": [1] * 1025}}),
    ("decoding.json", {"decoding": {"json": "{no"}}),
    ("decoding.regex", {"decoding": {"regex": "("}}),
    ("decoding.choice", {"decoding": {"choice": {}}}),
    ("decoding.grammar", {"decoding": {"grammar": ""}}),
    ("decoding.grammar", {"decoding": {"grammar": "  "}}),
    ("decoding.structural_tag", {"decoding": {"structural_tag": "[]"}}),
    ("stopping.ignore_eos", {"decoding": {"regex": "a"}, "stopping": {"ignore_eos": True}}),
    ("stopping.stop_strings", {"stopping": {"stop_strings": ["a", ""]}}),
    ("stopping.stop_strings", {"stopping": {"stop_strings": ["a"] * 65}}),
    ("stopping.stop_strings", {"stopping": {"stop_strings": ["a" * 5000]}}),
    ("stopping.stop_token_ids", {"stopping": {"stop_token_ids": [9_999_999]}}),
    ("stopping.stop_token_ids", {"stopping": {"stop_token_ids": [1] * 1025}}),
    ("stopping.min_new_tokens", {"stopping": {"min_new_tokens": 6, "max_new_tokens": 5}}),
    ("stopping.min_new_tokens", {"stopping": {"min_new_tokens": 21}}),
    ("response.output_candidates.top_n", {"response": {"output_candidates": {"top_n": 21}}}),
    ("response.output_candidates.token_ids", {"response": {"output_candidates": {"token_ids": {"ids": [1] * 129}}}}),
    ("response.output_candidates.token_ids", {"response": {"output_candidates": {"token_ids": {"ids": [9_999_999]}}}}),
    ("response.prompt_candidates.top_n", {"response": {"prompt_candidates": {"top_n": 21}}}),
    ("response.prompt_candidates.token_ids", {"response": {"prompt_candidates": {"token_ids": {"ids": [1] * 129}}}}),
    ("response.prompt_candidates.token_ids", {"response": {"prompt_candidates": {"token_ids": {"ids": [9_999_999]}}}}),
    ("truncate_prompt_tokens", {"truncate_prompt_tokens": 4090}),
    ("kv.cache_salt", {"kv": {"cache_salt": "s" * 1025}}),
    ("session_id", {"session_id": "s" * 1025}),
    ("takes text only", {"media": [{"url": "http://host/a.png"}]}),
    ("protocol_version", {"kv_hints": {"protocol_version": "1.0"}}),
    ("action_version", {"kv_hints": {"protocol_version": "0.1", "actions": [{"action_type": "kv.retain"}]}}),
]


@pytest.mark.parametrize(("name", "fields"), INVALID, ids=[f"{i}-{name}" for i, (name, _) in enumerate(INVALID)])
def test_a_wrong_value_is_an_invalid_argument_that_names_the_field(
    client: Client, name: str, fields: dict[str, Any]
) -> None:
    """GRPC-2: no field is silently ignored."""
    code, details = client.refused(**fields)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert name in details


@pytest.mark.parametrize(
    ("code", "word", "fields"),
    [
        (grpc.StatusCode.NOT_FOUND, "model", {"model": "another"}),
        (grpc.StatusCode.FAILED_PRECONDITION, "lora_name", {"lora_name": "adapter"}),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "token_ids",
            {"response": {"output_logprobs": True, "output_candidates": {"token_ids": {"ids": [1]}}}},
        ),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "all",
            {"response": {"output_logprobs": True, "output_candidates": {"all": True}}},
        ),
        (grpc.StatusCode.UNIMPLEMENTED, "prompt_logprobs", {"response": {"prompt_logprobs": True}}),
    ],
)
def test_what_is_not_here_is_refused_by_its_kind(
    client: Client, code: grpc.StatusCode, word: str, fields: dict[str, Any]
) -> None:
    """GRPC-2: a status that says so."""
    found, details = client.refused(**fields)
    assert found is code
    assert word in details


@pytest.mark.parametrize("name", ["kv_transfer_params", "ec_transfer_params"])
def test_transfers_of_cached_tokens_are_refused_and_empty_ones_ask_for_nothing(client: Client, name: str) -> None:
    params = struct_pb2.Struct()
    assert client.generate(kv={name: params}).outputs.HasField("finish_info")
    params.update({"port": 5600})
    assert client.refused(kv={name: params})[0] is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("request_message", "detail"),
    [
        (GenerateRequest(), "prompt is required"),
        (request_of([]), "token_ids has no tokens"),
        (request_of(""), "text has no tokens"),
        (request_of("", truncate_prompt_tokens=3), "text has no tokens"),
    ],
)
def test_a_prompt_is_required(client: Client, request_message: GenerateRequest, detail: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate_raw(request_message)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert detail in caught.value.details()


def test_a_prompt_beyond_the_vocabulary_or_too_long_is_refused(client: Client, tokenizer: Tokenizer) -> None:
    for prompt in ([tokenizer.vocabulary_size], [1] * 4096):
        assert client.refused(prompt)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_a_whole_answer_has_one_sequence(client: Client) -> None:
    """The message has room for one; nothing is dropped in silence."""
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(sampling={"num_sequences": 2})
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "GenerateStream" in caught.value.details()


def test_false_asks_for_no_form(client: Client) -> None:
    """GRPC-2: json_object false."""
    assert client.generate(decoding={"json_object": False}).outputs.HasField("finish_info")


@pytest.mark.parametrize(("rank", "is_taken"), [("0", True), ("1", False), ("-1", False), ("x", False)])
def test_there_is_one_data_parallel_rank(client: Client, rank: str, is_taken: bool) -> None:
    client.metadata = (("x-data-parallel-rank", rank),)
    if is_taken:
        client.generate()
    else:
        assert client.refused()[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_a_full_queue_is_resource_exhausted(served: RunningGrpc) -> None:
    """HTTP-1, GRPC-4: admission counts the calls of both protocols."""
    served.engine.capacity = 0
    assert served.client().refused()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_every_sequence_takes_room(served: RunningGrpc) -> None:
    """HTTP-1: and all of it is given back when there is too little."""
    served.engine.capacity = 3
    with pytest.raises(grpc.RpcError) as caught:
        served.client().stream(sampling={"num_sequences": 4})
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    wait_until(lambda: served.engine.n_admitted == 0)


def test_a_draining_server_is_unavailable(served: RunningGrpc) -> None:
    """HTTP-4: retry elsewhere."""
    served.engine.is_draining = True
    assert served.client().refused()[0] is grpc.StatusCode.UNAVAILABLE


def test_an_engine_that_fails_is_internal_before_and_after_output(served: RunningGrpc) -> None:
    """GRPC-3: no finish follows a failure."""
    client = served.client()
    call = client.open(request_of())
    wait_until(lambda: len(served.engine.generations) == 1)
    served.engine.generations[0].fail(InternalError("the device is gone"))
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    call = client.open(request_of())
    wait_until(lambda: len(served.engine.generations) == 2)
    served.engine.generations[1].give(40)
    assert next(call).HasField("prompt_info")
    assert next(call).outputs.num_tokens == 1
    served.engine.generations[1].fail(InternalError("the device is gone"))
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert served.engine.n_admitted == 0


def test_what_nobody_meant_is_internal_and_says_nothing(served: RunningGrpc) -> None:
    served.engine.submit_error = RuntimeError("a secret")
    code, details = served.client().refused()
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in details


def test_an_unknown_method_or_service_is_unimplemented(client: Client) -> None:
    for path in ("/vllm.Inference/Other", "/vllm.Generate/Generate", "/vllm.Control/Shutdown"):
        method = client.channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as caught:
            method(b"", timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("n_messages", [0, 2])
@pytest.mark.parametrize(
    "path",
    [
        "/vllm.Inference/Generate",
        "/vllm.Inference/GenerateStream",
        "/vllm.Control/GetServerInfo",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
    ],
)
def test_a_call_of_another_number_of_messages_is_unimplemented(client: Client, path: str, n_messages: int) -> None:
    """GRPC-4: by gRPC's table of statuses; and what is behind a message is not dropped in silence."""
    method = client.channel.stream_stream(path)
    with pytest.raises(grpc.RpcError) as caught:
        next(method(iter([b""] * n_messages), timeout=DEADLINE_S))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "message" in caught.value.details()


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff", b"\x1a\x02\xff\xfe", b""], ids=["no fields", "no UTF-8", "no prompt"]
)
def test_bytes_that_are_no_request_are_an_error(client: Client, data: bytes) -> None:
    method = client.channel.unary_unary("/vllm.Inference/Generate")
    with pytest.raises(grpc.RpcError) as caught:
        method(data, timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert client.generate().outputs.HasField("finish_info")


@pytest.mark.parametrize(
    ("path", "field"), [("vllm.Inference/GenerateStream", b"\x72\0"), ("vllm.Control/Abort", b"\x0a\0")]
)
def test_a_message_of_very_many_fields_is_refused(client: Client, path: str, field: bytes) -> None:
    """GRPC-4: it would take forty times its size."""
    method = client.channel.unary_stream(f"/{path}")
    with pytest.raises(grpc.RpcError) as caught:
        next(method(field * (1 << 17), timeout=DEADLINE_S))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "65,536 fields" in caught.value.details()


def test_fields_that_the_schema_does_not_know_are_of_no_effect(client: Client) -> None:
    """GRPC-1: newer clients send numbers that others have used, such as 9 of the response options."""
    known = request_of(response={"output_token_ids": True})
    unknown = GenerateRequest.FromString(known.SerializeToString() + b"\x4a\x02\x48\x01" + b"\xaa\x06\x03abc")
    assert unknown != known
    assert client.generate_raw(unknown) == client.generate_raw(known)


def test_a_message_that_is_large_when_it_is_inflated_is_refused(spoken: Callable[..., Client]) -> None:
    """GRPC-4: the cap is for what a message takes, not for what comes over the wire."""
    client = spoken(grpc_max_message_mb=1)
    method = client.unary("Generate", GenerateResponse)
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        with pytest.raises(grpc.RpcError) as caught:
            method(request_of("x" * (64 << 20)), timeout=DEADLINE_S, compression=compression)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_an_error_that_says_much_is_cut(served: RunningGrpc) -> None:
    """GRPC-4: long status messages break clients."""
    served.engine.submit_error = InvalidValueError("x" * 100_000)
    assert len(served.client().refused()[1]) == 1000


@pytest.mark.parametrize("character", ["\U0001f600", "\n", "\ud800"])
def test_an_error_is_cut_by_what_it_takes_on_the_way(served: RunningGrpc, character: str) -> None:
    """GRPC-4: what is not ASCII is percent-encoded, and beyond 8 KiB a client reports another error."""
    served.engine.submit_error = InvalidValueError(character * 1000)
    code, details = served.client().refused()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(details) >= 300
    assert len(quote(details)) <= 4000


def test_error_text_is_short_whatever_was_sent(client: Client) -> None:
    assert len(client.refused(model="m" * 100_000)[1]) <= 1000
    assert len(client.refused(decoding={"regex": "(" * 100_000})[1]) <= 1000
