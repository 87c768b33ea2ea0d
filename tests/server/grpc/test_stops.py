"""How an answer ends: limits, ends of generation, stop tokens, stop strings, least lengths."""

from __future__ import annotations

from typing import Any

import pytest

from helios.tokenizer.tokenizer import Tokenizer
from tests.server.grpc.conftest import Client, finish_of, text_of
from tests.server.grpc.validator import FinishInfo
from tests.server.scripted import ScriptedDevice, is_allowed


def ends(client: Client, **fields: Any) -> tuple[str, Any]:
    """The text and the finish of an answer, which is the same whole and streamed."""
    responses = client.stream(**fields)
    outputs = client.generate(**fields).outputs
    assert text_of(responses) == outputs.text
    assert finish_of(responses) == outputs.finish_info
    return outputs.text, outputs.finish_info


@pytest.fixture
def end_token(tokenizer: Tokenizer) -> int:
    token_id = tokenizer.token_id("<|end|>")
    assert token_id is not None
    return token_id


def test_an_end_of_generation_is_counted_and_not_shown(client: Client, device: ScriptedDevice, end_token: int) -> None:
    """GRPC-3: STOP with eos_token_id."""
    device.says("Hi")
    text, finish = ends(client, response={"skip_special_tokens": False})
    assert text == "Hi"
    assert (finish.finish_reason, finish.eos_token_id, finish.num_output_tokens) == (FinishInfo.STOP, end_token, 3)


def test_the_ending_token_is_shown_with_include_stop_strings(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: include_stop_strings speaks of tokens too, where special ones are shown at all."""
    device.says("Hi")
    assert ends(client, stopping={"include_stop_strings": True})[0] == "Hi"
    shown = ends(client, stopping={"include_stop_strings": True}, response={"skip_special_tokens": False})[0]
    assert shown == "Hi<|end|>"


def test_a_limit_ends_with_length(client: Client, device: ScriptedDevice) -> None:
    """GRPC-3: LENGTH has no stop reason."""
    device.says("abcdefgh")
    text, finish = ends(client, stopping={"max_new_tokens": 3})
    assert text == "abc"
    assert finish.finish_reason == FinishInfo.LENGTH


def test_a_stop_string_is_taken_out_of_the_text(client: Client, device: ScriptedDevice) -> None:
    """GRPC-3: the tokens end with the one that completes it, the text before the match."""
    device.says("one stop two")
    text, finish = ends(client, stopping={"stop_strings": ["never", "stop"], "max_new_tokens": 50})
    assert text == "one "
    assert finish.stop_string == "stop"


def test_a_stop_string_may_be_kept(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: include_stop_strings; what the last token says beyond the stop is not shown."""
    device.says("one stop two")
    text, _ = ends(client, stopping={"stop_strings": ["sto"], "include_stop_strings": True, "max_new_tokens": 50})
    assert text == "one sto"


def test_a_stop_that_an_unfinished_character_spells_at_the_limit_is_a_stop(
    client: Client, device: ScriptedDevice
) -> None:
    """GRPC-3: what is taken out of the text is told."""
    device.says("a€b")
    text, finish = ends(client, stopping={"stop_strings": ["a\ufffd"], "max_new_tokens": 2})
    assert text == ""
    assert (finish.finish_reason, finish.stop_string) == (FinishInfo.STOP, "a\ufffd")


def test_what_may_become_a_stop_is_held_back_and_then_given_out(client: Client, device: ScriptedDevice) -> None:
    device.says("abab abc")
    assert ends(client, stopping={"stop_strings": ["abx"], "max_new_tokens": 50})[0] == "abab abc"


def test_a_stop_token_ends_with_its_id(client: Client, device: ScriptedDevice, tokenizer: Tokenizer) -> None:
    """GRPC-3: STOP with stop_token_id; it is counted and not shown."""
    device.says("abc!d")
    (stop,) = tokenizer.encode("!", allow_special=False)
    text, finish = ends(client, stopping={"stop_token_ids": [stop]})
    assert (text, finish.stop_token_id, finish.num_output_tokens) == ("abc", stop, 4)
    assert stop in device.requests[0].eos_tokens, "the device looks for so few by itself"
    assert ends(client, stopping={"stop_token_ids": [stop], "include_stop_strings": True})[0] == "abc!"


def test_more_stop_tokens_than_the_device_holds_are_looked_for_by_the_host(
    client: Client, device: ScriptedDevice, tokenizer: Tokenizer
) -> None:
    device.says("abc!d")
    (stop,) = tokenizer.encode("!", allow_special=False)
    many = [stop, *range(150, 180)]
    text, finish = ends(client, stopping={"stop_token_ids": many})
    assert (text, finish.stop_token_id) == ("abc", stop)
    assert stop not in device.requests[0].eos_tokens


def test_an_end_of_generation_that_is_listed_is_still_the_models(
    client: Client, device: ScriptedDevice, end_token: int
) -> None:
    """Some routers list it with every request."""
    device.says("ab")
    assert ends(client, stopping={"stop_token_ids": [end_token]})[1].eos_token_id == end_token
    both = {"stop_token_ids": [end_token], "ignore_eos": True}
    assert ends(client, stopping=both)[1].stop_token_id == end_token


def test_stop_tokens_and_strings_may_be_combined(client: Client, device: ScriptedDevice, end_token: int) -> None:
    device.says("one stop")
    stopping = {"stop_token_ids": [end_token], "stop_strings": ["stop"]}
    assert ends(client, stopping=stopping)[1].stop_string == "stop"


def test_an_end_of_generation_may_be_ignored(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: ignore_eos."""
    device.says("a<|end|>b<|end|>")
    text, finish = ends(client, stopping={"ignore_eos": True, "max_new_tokens": 4})
    assert (text, finish.finish_reason) == ("ab", FinishInfo.LENGTH)


def test_there_is_no_end_before_the_least_length(client: Client, device: ScriptedDevice, tokenizer: Tokenizer) -> None:
    """GRPC-2: min_new_tokens keeps ends of generation and stop tokens from being sampled."""
    (filler,) = tokenizer.encode("x", allow_special=False)

    def wants_to_end(request: Any, said: Any, mask: Any) -> int:
        end: int = request.eos_tokens[0]
        return end if is_allowed(mask, end) else filler

    device.voice = wants_to_end
    assert ends(client)[0] == ""
    text, finish = ends(client, stopping={"min_new_tokens": 5, "stop_token_ids": [7]})
    assert (text, finish.num_output_tokens) == ("xxxxx", 6)


def test_stop_strings_are_not_looked_for_before_the_least_length(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: text of the first tokens never takes part in a match."""
    device.says("ab ab ab")
    assert ends(client, stopping={"stop_strings": ["ab"]})[0] == ""
    assert ends(client, stopping={"stop_strings": ["ab"], "min_new_tokens": 1})[0] == "ab "
    assert ends(client, stopping={"stop_strings": ["ab"], "min_new_tokens": 5})[0] == "ab ab "


def test_a_character_of_several_tokens_is_shown_once_it_is_whole(client: Client, device: ScriptedDevice) -> None:
    """GRPC-3: text may be empty while tokens are there."""
    device.says("a€b")
    responses = client.stream()
    assert text_of(responses) == "a€b"
    assert "�" not in "".join(each.outputs.text for each in responses)
    assert client.generate(stopping={"max_new_tokens": 2}).outputs.text == "a�"
