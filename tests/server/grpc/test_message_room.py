"""Messages before admission: how many are read at once, and who holds up whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.server.grpc.conftest import (
    DEADLINE_S,
    Client,
    GenerateRequest,
    GenerateResponse,
    RunningGrpc,
    request_of,
)
from tests.server.scripted_engine import ScriptedEngine

ONE_MESSAGE: dict[str, Any] = {"body_memory": 1 << 20, "grpc_max_message_mb": 1}


class SilentCall:
    """A call whose message never comes."""

    def __init__(self, client: Client) -> None:
        self._is_told = threading.Event()
        method = client.channel.stream_unary(
            "/vllm.Inference/Generate", GenerateRequest.SerializeToString, GenerateResponse.FromString
        )
        self.call = method.future(self._nothing(), timeout=DEADLINE_S)

    def _nothing(self) -> Iterator[GenerateRequest]:
        self._is_told.wait(DEADLINE_S)
        yield from ()

    def close(self) -> None:
        self.call.cancel()
        self._is_told.set()


def ask_until_refused(client: Client) -> None:
    """Answers come until a silent call has arrived."""
    for _ in range(1000):
        client.generate_raw(request_of("hi"), timeout=0.5)


@pytest.fixture
def answering(scripted: ScriptedEngine) -> ScriptedEngine:
    scripted.answer = "Hello"
    return scripted


def test_a_message_waits_until_there_is_room(answering: ScriptedEngine, start: Callable[..., RunningGrpc]) -> None:
    """GRPC-4: what is read and not admitted yet is bounded like HTTP's bodies; a caller that leaves makes room."""
    client = start(answering, **ONE_MESSAGE).client()
    silent = SilentCall(client)
    try:
        with pytest.raises(grpc.RpcError) as caught:
            ask_until_refused(client)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    finally:
        silent.close()
    assert client.generate("hi").outputs.text == "Hello"
    assert client.generate("hi").outputs.text == "Hello", "a turn ends with its call"


def test_who_sends_nothing_loses_its_turn(answering: ScriptedEngine, start: Callable[..., RunningGrpc]) -> None:
    """And is answered no more: the library has no status for a call that is given up so."""
    client = start(answering, body_timeout=0.2, **ONE_MESSAGE).client()
    silent = SilentCall(client)
    try:
        assert client.generate("hi").outputs.text == "Hello"
        assert not silent.call.done()
    finally:
        silent.close()


def test_a_running_answer_holds_no_room(served: RunningGrpc, start: Callable[..., RunningGrpc]) -> None:
    """A turn ends when the message is prepared, and the time for it with it."""
    client = start(served.engine, body_timeout=0.2, **ONE_MESSAGE).client()
    calls = [client.open(request_of("hi")) for _ in range(3)]
    generations = served.engine.generations
    deadline = threading.Event()
    while len(generations) < 3:
        assert not deadline.wait(0.005)
    assert not deadline.wait(0.4), "longer than the time for a message"
    for generation in list(generations):
        for token in (*served.engine.tokenizer.encode("Hi", allow_special=False), served.engine.eos_tokens[0]):
            generation.give(token)
    assert all(list(call)[-1].outputs.HasField("finish_info") for call in calls)
