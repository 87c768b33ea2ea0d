"""Answers, whole and streamed, by the real engine over a device that says what a test wants."""

from __future__ import annotations

import pytest

from helios.tokenizer.tokenizer import Tokenizer
from tests.server.grpc.conftest import Client, RunningGrpc, finish_of, ids_of, request_of, text_of, wait_until
from tests.server.grpc.validator import FinishInfo, check_stream
from tests.server.scripted import ScriptedDevice


def test_a_text_prompt_is_continued(client: Client, device: ScriptedDevice) -> None:
    """GRPC-1, GRPC-3: one message with prompt info, output and finish."""
    device.says("Hello world")
    response = client.generate("hi")
    assert response.outputs.text == "Hello world"
    assert response.prompt_info.num_prompt_tokens == 2
    assert response.outputs.finish_info.HasField("eos_token_id")


def test_a_stream_says_the_same(client: Client, device: ScriptedDevice, tokenizer: Tokenizer) -> None:
    """GRPC-3: prompt info alone comes first, deltas follow, the last has the finish."""
    device.says("Hello world")
    responses = client.stream("hi", response={"output_token_ids": True})
    assert text_of(responses) == "Hello world"
    assert ids_of(responses)[:-1] == tokenizer.encode("Hello world", allow_special=False)
    assert finish_of(responses).num_output_tokens == len(ids_of(responses))


def test_token_ids_are_the_prompt_as_they_are(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: nothing is put before them."""
    response = client.generate([5, 6, 7], response={"prompt_token_ids": True})
    assert list(response.prompt_info.token_ids) == [5, 6, 7]
    assert device.requests[0].prompt_tokens == (5, 6, 7)


def test_text_may_spell_control_tokens(client: Client, device: ScriptedDevice, tokenizer: Tokenizer) -> None:
    """GRPC-2: it is the caller's whole input."""
    client.generate("<|im_start|>hi")
    assert device.requests[0].prompt_tokens == tuple(tokenizer.encode("<|im_start|>hi", allow_special=True))


def test_an_empty_or_served_model_name_is_answered(client: Client) -> None:
    """GRPC-2: model."""
    for name in ("", client.engine.served_id, *client.engine.aliases):
        assert client.generate(model=name).outputs.HasField("finish_info")


def test_truncation_keeps_the_last_tokens(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: truncate_prompt_tokens."""
    response = client.generate(list(range(10, 30)), truncate_prompt_tokens=4, response={"prompt_token_ids": True})
    assert list(response.prompt_info.token_ids) == [26, 27, 28, 29]
    assert client.generate([1, 2], truncate_prompt_tokens=4).prompt_info.num_prompt_tokens == 2


def test_without_a_limit_twenty_tokens_are_generated(spoken: object, device: ScriptedDevice) -> None:
    """GRPC-2: max_new_tokens 0 is 20, as the schema says."""
    client: Client = spoken()  # type: ignore[operator]
    device.says("a" * 50)
    response = client.generate("hi")
    assert response.outputs.num_tokens == 20
    assert response.outputs.finish_info.finish_reason == FinishInfo.LENGTH


def test_a_server_may_fill_the_context_instead(spoken: object, device: ScriptedDevice) -> None:
    """--grpc-default-max-new-tokens context."""
    client: Client = spoken(grpc_default_max_new_tokens="context")  # type: ignore[operator]
    device.says("a" * 50)
    assert client.generate("hi").outputs.num_tokens == 51
    assert device.requests[0].output_limit == 4096 - 2


def test_a_limit_beyond_the_context_is_the_room_that_there_is(client: Client, device: ScriptedDevice) -> None:
    client.generate("hi", stopping={"max_new_tokens": 1_000_000})
    assert device.requests[0].output_limit == 4096 - 2


def test_text_may_be_left_out(client: Client, device: ScriptedDevice) -> None:
    """GRPC-3: output_text false."""
    device.says("Hello")
    response = client.generate(response={"output_text": False, "output_token_ids": True})
    assert response.outputs.text == ""
    assert response.outputs.num_tokens == len(response.outputs.token_ids)


def test_special_tokens_are_shown_where_they_are_wanted(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: skip_special_tokens defaults to true."""
    device.says("a<|im_start|>b")
    assert client.generate().outputs.text == "ab"
    assert client.generate(response={"skip_special_tokens": False}).outputs.text == "a<|im_start|>b"


def test_logprobs_ranks_and_candidates_run_parallel_to_the_tokens(client: Client, device: ScriptedDevice) -> None:
    """GRPC-3: the device's three likeliest are the token itself and ids 0 and 1."""
    device.says("Hello")
    options = {"output_logprobs": True, "output_candidates": {"top_n": 2}, "output_token_ids": True}
    for outputs in (client.generate(response=options).outputs, client.stream(response=options)[1].outputs):
        assert outputs.logprobs[0] == -0.25
        assert outputs.ranks[0] == 1
        (candidate,) = outputs.candidate_tokens[0].tokens
        assert (candidate.id, candidate.logprob, candidate.rank) == (0, -2.0, 2)


@pytest.mark.parametrize("selector", [{}, {"all": False}, {"token_ids": {}}])
def test_a_selector_that_selects_nothing_gives_the_sampled_token_alone(
    client: Client, device: ScriptedDevice, selector: dict[str, object]
) -> None:
    device.says("Hello")
    outputs = client.generate(response={"output_logprobs": True, "output_candidates": selector}).outputs
    assert len(outputs.logprobs) == outputs.num_tokens
    assert not outputs.candidate_tokens


def test_candidates_without_logprobs_are_not_reported(client: Client, device: ScriptedDevice) -> None:
    """GRPC-3: output_logprobs is the switch for both."""
    outputs = client.generate(response={"output_candidates": {"top_n": 2}}).outputs
    assert not outputs.candidate_tokens
    assert device.requests[0].sampling.candidates is None


def test_several_sequences_differ_by_their_seeds_and_have_ends_of_their_own(
    client: Client, device: ScriptedDevice
) -> None:
    """GRPC-1: with one prompt message for all of them."""
    device.voice = lambda request, said, mask: (
        request.eos_tokens[0] if len(said) > 6 else 30 + request.sampling.seed % 10
    )
    responses = client.stream(
        sampling={"num_sequences": 4, "seed": 40}, response={"output_token_ids": True}, temperature=1.0
    )
    for index in range(4):
        assert ids_of(responses, index)[:7] == [30 + index] * 7
        assert finish_of(responses, index).num_output_tokens == 8


def test_sequences_are_interleaved_as_their_tokens_come(served: RunningGrpc) -> None:
    """GRPC-3: nobody waits for another's end."""
    request = request_of(sampling={"num_sequences": 2})
    call = served.client().open(request)
    wait_until(lambda: len(served.engine.generations) == 2)
    responses = []
    for index in (1, 0, 0, 1, 0):
        served.engine.generations[index].give(40)
        responses.append(next(call))
        if len(responses) == 1:
            responses.append(next(call))  # behind the prompt's
    assert [each.outputs.index for each in responses[1:]] == [1, 0, 0, 1, 0]
    for generation in served.engine.generations:
        generation.give(served.engine.eos_tokens[0])
    check_stream(request, responses + list(call))


def test_the_sequences_share_one_prefill(client: Client, device: ScriptedDevice) -> None:
    """GRPC-1: the first computes the prompt, the others take its pages."""
    client.stream(list(range(2, 66)) * 2, sampling={"num_sequences": 4, "seed": 1}, temperature=1.0)
    assert client.engine.statistics()["cache_reused_tokens_total"] == 3 * 112


def test_the_request_is_named_in_the_trailing_metadata(client: Client) -> None:
    client.generate(request_id="mine-1")
    assert client.trailing["x-request-id"] == "mine-1"
    client.generate()
    assert client.trailing["x-request-id"].startswith("req-")
    client.generate(request_id="two\nlines")
    assert "x-request-id" not in client.trailing
