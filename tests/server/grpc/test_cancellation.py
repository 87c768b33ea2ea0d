"""Calls that end early: by their callers, by deadlines, by aborts, by readers that stop reading, by the server's own end."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, PingReceived

from helios.scheduler.request import Finished, FinishReason, Usage
from helios.server.grpc import server
from helios.server.grpc.schema import control_pb2
from tests.server.grpc.conftest import (
    DEADLINE_S,
    Client,
    GenerateRequest,
    GenerateResponse,
    RunningGrpc,
    finish_of,
    request_of,
    wait_until,
)
from tests.server.grpc.validator import FinishInfo, check_stream
from tests.server.scripted_engine import ScriptedEngine


def generation(served: RunningGrpc, index: int = 0) -> Any:
    wait_until(lambda: len(served.engine.generations) > index)
    return served.engine.generations[index]


@pytest.mark.parametrize("has_begun", [False, True], ids=["queued", "running"])
def test_a_cancelled_stream_ends_its_generation_at_once(served: RunningGrpc, has_begun: bool) -> None:
    """GRPC-4: in each phase; nothing has to be sent for it to be noticed."""
    call = served.client().open(request_of())
    running = generation(served)
    if has_begun:
        running.give(40)
        next(call)
    call.cancel()
    wait_until(lambda: running.is_cancelled)
    wait_until(lambda: served.engine.n_admitted == 0)


def test_a_cancelled_call_ends_its_generation_at_once(served: RunningGrpc) -> None:
    """GRPC-4: a whole answer too, and all sequences of a stream."""
    client = served.client()
    future = client.unary("Generate", GenerateResponse).future(request_of(), timeout=DEADLINE_S)
    running = generation(served)
    future.cancel()
    wait_until(lambda: running.is_cancelled)
    call = client.open(request_of(sampling={"num_sequences": 3}))
    wait_until(lambda: len(served.engine.generations) == 4)
    call.cancel()
    wait_until(lambda: all(each.is_cancelled for each in served.engine.generations))
    wait_until(lambda: served.engine.n_admitted == 0)


def test_a_lost_connection_ends_its_generations(served: RunningGrpc) -> None:
    """GRPC-4: as a cancellation does."""
    client = served.client()
    call = client.open(request_of())
    running = generation(served)
    client.channel.close()
    wait_until(lambda: running.is_cancelled)
    wait_until(lambda: served.engine.n_admitted == 0)
    with pytest.raises(grpc.RpcError):
        next(call)


class Peer:
    """A connection with one stream, which answers pings for as long as it is read."""

    def __init__(self, connection: socket.socket, request: GenerateRequest) -> None:
        self._connection = connection
        self._state = H2Connection(H2Configuration(client_side=True))
        self.events: list[Event] = []
        self._state.initiate_connection()
        path = "/vllm.Inference/GenerateStream"
        headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "peer", "te": "trailers"}
        self._state.send_headers(1, [*headers.items(), ("content-type", "application/grpc")])
        data = request.SerializeToString()
        self._state.send_data(1, b"\0" + len(data).to_bytes(4, "big") + data, end_stream=True)
        connection.sendall(self._state.data_to_send())

    def read_until(self, kind: type[Event], n: int) -> None:
        """Read, and answer what comes, until there have been `n` events of a kind."""
        while sum(isinstance(event, kind) for event in self.events) < n:
            data = self._connection.recv(1 << 16)
            assert data, "the server has closed the connection"
            self.events += self._state.receive_data(data)
            self._connection.sendall(self._state.data_to_send())


@pytest.mark.parametrize("has_begun", [False, True], ids=["queued", "running"])
def test_a_peer_that_vanished_without_a_word_is_found(
    scripted: ScriptedEngine, start: Callable[..., RunningGrpc], monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """GRPC-4: its connection stays open and answers no ping. The call ends and gives its place back, however long it was quiet."""
    sooner = {"grpc.keepalive_time_ms": 100, "grpc.http2.ping_timeout_ms": 5000}
    options = [(name, sooner.pop(name, value)) for name, value in server._OPTIONS]
    assert not sooner
    monkeypatch.setattr(server, "_OPTIONS", options)
    served = start(scripted)
    host, _, port = served.target.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        peer = Peer(connection, request_of())
        running = generation(served)
        if has_begun:
            running.give(40)
            peer.read_until(DataReceived, 1)
        peer.read_until(PingReceived, 5)
        assert not running.is_cancelled
        wait_until(lambda: running.is_cancelled)
        wait_until(lambda: served.engine.n_admitted == 0)


def call_until(has_arrived: Callable[[], bool], call: Callable[[float], object]) -> None:
    """Call with ever later deadlines until a call has reached the server before its own; each must end by it."""
    for timeout_s in (0.3, 1, 3, 10):
        with pytest.raises(grpc.RpcError) as caught:
            call(timeout_s)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if has_arrived():
            break


@pytest.mark.parametrize("has_begun", [False, True], ids=["queued", "running"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_deadline_ends_the_call_in_each_phase(served: RunningGrpc, has_begun: bool, is_stream: bool) -> None:
    """GRPC-4: DEADLINE_EXCEEDED, and the generation is cancelled."""
    client, request = served.client(), request_of()
    if has_begun:
        threading.Thread(target=lambda: generation(served).give(40)).start()
    call = client.open if is_stream else client.generate_raw
    call_until(lambda: bool(served.engine.generations), lambda timeout_s: list(call(request, timeout=timeout_s)))
    wait_until(lambda: generation(served).is_cancelled)
    wait_until(lambda: served.engine.n_admitted == 0)


def test_a_deadline_while_the_prompt_is_prepared_starts_no_generation(
    scripted: Any, start: Callable[..., RunningGrpc]
) -> None:
    """GRPC-4: the permit is given back although the preparation goes on."""
    served = start(scripted, frontend_workers=1)
    is_entered, may_go_on = threading.Event(), threading.Event()
    encode = scripted.tokenizer.encode

    def slow(text: str, *, allow_special: bool) -> list[int]:
        if text == "slow":
            is_entered.set()
            may_go_on.wait(DEADLINE_S)
        ids: list[int] = encode(text, allow_special=allow_special)
        return ids

    scripted.tokenizer.encode = slow
    try:
        client, request = served.client(), request_of("slow")
        call_until(is_entered.is_set, lambda timeout_s: client.generate_raw(request, timeout=timeout_s))
        assert is_entered.is_set()
        wait_until(lambda: served.engine.n_admitted == 0)
    finally:
        may_go_on.set()
        del scripted.tokenizer.encode
    assert not served.engine.generations


def test_an_abort_ends_a_stream_as_aborted_with_status_ok(served: RunningGrpc) -> None:
    """GRPC-3: ABORTED in the finish, what came before stands."""
    client, request = served.client(), request_of(request_id="mine")
    call = client.open(request)
    generation(served).give(40)
    responses = [next(call), next(call)]
    client.control("Abort", control_pb2.AbortResponse, request_ids=["unknown", "mine", "mine"])
    responses += call
    check_stream(request, responses)
    assert call.code() is grpc.StatusCode.OK
    assert finish_of(responses).finish_reason == FinishInfo.ABORTED
    assert finish_of(responses).num_output_tokens == 1


def test_an_abort_ends_queued_and_whole_answers_and_all_of_a_name(served: RunningGrpc) -> None:
    """Control.Abort: idempotent; an empty list is fine."""
    client, request = served.client(), request_of(request_id="twice")
    future = client.unary("Generate", GenerateResponse).future(request, timeout=DEADLINE_S)
    call = client.open(request)
    wait_until(lambda: len(served.engine.generations) == 2)
    for request_ids in ([], ["twice"], ["twice"]):
        client.control("Abort", control_pb2.AbortResponse, request_ids=request_ids)
    responses = list(call)
    check_stream(request, responses)
    assert finish_of(responses).finish_reason == FinishInfo.ABORTED
    assert future.result().outputs.finish_info.finish_reason == FinishInfo.ABORTED
    client.control("Abort", control_pb2.AbortResponse, request_ids=["twice"])


CANDIDATES = tuple((token_id, -1.0) for token_id in range(20))
ALL_OPTIONS = {"output_token_ids": True, "output_logprobs": True, "output_candidates": {"top_n": 20}}


def give_much(running: Any) -> None:
    for _ in range(200):
        running.give(40, -1.0, CANDIDATES)


def give_until_it_is_not_taken(running: Any) -> int:
    """Large batches, each taken before the next is given; how many tokens were given when no more were taken."""
    for n_given in range(0, 1_000_000, 200):
        n_before = running.n_taken
        give_much(running)
        deadline_s = time.monotonic() + 1.0
        while running.n_taken == n_before:
            if time.monotonic() > deadline_s:
                return n_given + 200
            time.sleep(0.001)
    raise AssertionError("everything was taken, though nobody read it")


@pytest.fixture
def talkative(scripted: ScriptedEngine) -> ScriptedEngine:
    """Its answers are larger than what a connection holds."""
    scripted.context_tokens = 1 << 20
    return scripted


TALK = {"response": ALL_OPTIONS, "stopping": {"max_new_tokens": 1_000_000}}


def test_a_reader_that_stops_reading_holds_back_its_stream_and_nobody_else(
    talkative: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    """GRPC-4: what is under way to it is bounded; others go on, and so does it when it reads again."""
    served, request = start(talkative), request_of(**TALK)
    stalled = served.client().open(request, timeout=None)
    running = generation(served)
    n_given = give_until_it_is_not_taken(running)
    assert running.n_taken < n_given
    other = served.client().open(request_of())
    generation(served, 1).give(41)
    assert [next(other), next(other)][1].outputs.num_tokens == 1
    other.cancel()
    running.give(talkative.eos_tokens[0])
    responses = list(stalled)
    check_stream(request, responses)
    assert finish_of(responses).num_output_tokens == n_given + 1


def test_a_reader_that_never_reads_again_is_dropped(
    talkative: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    """GRPC-4: after --stall-timeout, with its generation."""
    served = start(talkative, stall_timeout=600)
    stalled = served.client().open(request_of(**TALK), timeout=None)
    running = generation(served)

    def is_dropped() -> bool:
        give_much(running)
        return bool(running.is_cancelled)

    served.pass_time_until(is_dropped, 600)
    wait_until(lambda: served.engine.n_admitted == 0)
    with pytest.raises(grpc.RpcError) as caught:
        list(stalled)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_that_ends_finishes_open_calls_within_its_time(
    scripted: Any, start: Callable[..., RunningGrpc]
) -> None:
    """HTTP-4: drained as HTTP is."""
    served = start(scripted, drain_timeout=3600)
    call = served.client().open(request_of())
    running = generation(served)
    stopping = threading.Thread(target=served.stop)
    stopping.start()
    wait_until(lambda: served.engine.is_draining)
    with pytest.raises(grpc.RpcError) as caught:
        served.client().generate_raw(request_of())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    running.give(40)
    running.give(scripted.eos_tokens[0])
    assert finish_of(list(call)).finish_reason == FinishInfo.STOP
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()


def test_what_is_cancelled_by_the_servers_end_is_unavailable(served: RunningGrpc) -> None:
    call = served.client().open(request_of())
    running = generation(served)
    running.send(Finished(FinishReason.CANCELLED, Usage(2, 0)))
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_ends_although_a_call_never_does(served: RunningGrpc) -> None:
    """HTTP-4: after its time, what is left is dropped."""
    call = served.client().open(request_of())
    running = generation(served)
    served.stop()
    assert running.is_cancelled
    with pytest.raises(grpc.RpcError):
        list(call)


def test_three_hundred_calls_on_one_channel(scripted: Any, start: Callable[..., RunningGrpc]) -> None:
    """GRPC-4: all at once, by the asynchronous client; each gets its own answer."""
    scripted.answer, scripted.capacity = "Hello", 300
    target = start(scripted).target

    async def crowd() -> list[Any]:
        async with grpc.aio.insecure_channel(target) as channel:
            method = channel.unary_unary(
                "/vllm.Inference/Generate",
                request_serializer=GenerateRequest.SerializeToString,
                response_deserializer=GenerateResponse.FromString,
            )
            return list(await asyncio.gather(*(method(request_of([2] * (1 + i))) for i in range(300))))

    responses = asyncio.run(crowd())
    assert [each.outputs.text for each in responses] == ["Hello"] * 300
    assert [each.prompt_info.num_prompt_tokens for each in responses] == list(range(1, 301))


def test_a_prompt_of_five_mebibytes_is_taken(client: Client) -> None:
    """GRPC-4: the usual cap of 4 MiB is raised. Tokens, of one byte each, since to read so much text takes seconds."""
    prompt = [2] * (5 << 20)
    assert client.generate(prompt, truncate_prompt_tokens=7).prompt_info.num_prompt_tokens == 7


def test_a_message_beyond_the_cap_is_resource_exhausted(spoken: Callable[..., Client]) -> None:
    """GRPC-4: --grpc-max-message-mb."""
    client = spoken(grpc_max_message_mb=1)
    assert client.refused("x" * (1 << 20))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.generate("x" * 1000).prompt_info.num_prompt_tokens == 1000
