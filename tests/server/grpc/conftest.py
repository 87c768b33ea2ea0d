"""A real server with a gRPC port on loopback, in a thread of its own, and a client whose every answer is checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from helios.owner import Owner
from helios.server.grpc.address import take_address
from helios.server.grpc.schema import control_pb2, inference_pb2
from helios.server.kv_events.sockets import KvEventSockets
from helios.server.listener import bind
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.conftest import Serving, serve_in_thread
from tests.server.conftest import wait_until as wait_within
from tests.server.grpc.validator import check_stream, check_whole
from tests.server.scripted import ScriptedDevice, scripted_engine
from tests.server.scripted_engine import TEMPLATE, ScriptedEngine
from tests.server.spoken import bound_frontend
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

DEADLINE_S = 120.0  # no test waits so long unless something is wrong
GenerateRequest = inference_pb2.GenerateRequest
GenerateResponse = inference_pb2.GenerateResponse


def wait_until(condition: Callable[[], bool]) -> None:
    wait_within(condition, DEADLINE_S)


def request_of(prompt: str | list[int] = "hi", **fields: Any) -> GenerateRequest:
    """A request; messages inside may be given as dicts."""
    request = GenerateRequest(**fields)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
    return request


@dataclass
class Client:
    """Stock grpcio, synchronous. Answers are checked by the rules of their messages; `trailing` is the last call's metadata."""

    channel: grpc.Channel
    engine: Any
    target: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    trailing: dict[str, str] = field(default_factory=dict)

    def generate(self, prompt: str | list[int] = "hi", **fields: Any) -> GenerateResponse:
        request = request_of(prompt, **fields)
        response, call = self.unary("Generate", GenerateResponse).with_call(
            request, timeout=DEADLINE_S, metadata=self.metadata
        )
        self.trailing = dict(call.trailing_metadata() or ())
        check_whole(request, response)
        return response

    def stream(self, prompt: str | list[int] = "hi", **fields: Any) -> list[GenerateResponse]:
        request = request_of(prompt, **fields)
        call = self.open(request)
        responses = list(call)
        self.trailing = dict(call.trailing_metadata() or ())
        check_stream(request, responses)
        return responses

    def open(self, request: GenerateRequest, timeout: float | None = DEADLINE_S) -> Any:
        """A stream that is read as the test likes."""
        method = self.channel.unary_stream(
            "/vllm.Inference/GenerateStream", GenerateRequest.SerializeToString, GenerateResponse.FromString
        )
        return method(request, timeout=timeout, metadata=self.metadata)

    def refused(self, prompt: str | list[int] = "hi", **fields: Any) -> tuple[grpc.StatusCode, str]:
        """The status of a request that is refused, which must be the same for both methods."""
        request = request_of(prompt, **fields)
        statuses = []
        for call in (self.generate_raw, lambda request: list(self.open(request))):
            with pytest.raises(grpc.RpcError) as caught:
                call(request)
            statuses.append((caught.value.code(), caught.value.details()))
        assert statuses[0] == statuses[1]
        assert len(statuses[0][1]) <= 1000
        return statuses[0]

    def generate_raw(self, request: GenerateRequest, timeout: float | None = DEADLINE_S) -> GenerateResponse:
        response: GenerateResponse = self.unary("Generate", GenerateResponse)(
            request, timeout=timeout, metadata=self.metadata
        )
        return response

    def control(self, name: str, response: type[Any], **fields: Any) -> Any:
        request = getattr(control_pb2, f"{name}Request")(**fields)
        return self.unary(name, response, service="vllm.Control")(request, timeout=DEADLINE_S, metadata=self.metadata)

    def unary(self, name: str, response: type[Any], service: str = "vllm.Inference") -> Any:
        return self.channel.unary_unary(
            f"/{service}/{name}", lambda message: message.SerializeToString(), response.FromString
        )


def text_of(responses: list[GenerateResponse], index: int = 0) -> str:
    return "".join(each.outputs.text for each in responses if each.outputs.index == index)


def ids_of(responses: list[GenerateResponse], index: int = 0) -> list[int]:
    return [i for each in responses if each.outputs.index == index for i in each.outputs.token_ids]


def finish_of(responses: list[GenerateResponse], index: int = 0) -> inference_pb2.FinishInfo:
    (finish,) = [
        each.outputs.finish_info
        for each in responses
        if each.outputs.index == index and each.outputs.HasField("finish_info")
    ]
    return finish


@dataclass
class RunningGrpc(Owner):
    """A server under test."""

    engine: Any
    target: str
    http_url: str
    serving: Serving
    channels: list[grpc.Channel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stop = self.serving.stop
        self.pass_time = self.serving.loop.pass_time
        self.pass_time_until = self.serving.pass_time_until

    def client(self, **metadata: str) -> Client:
        """A client with a connection of its own."""
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(self.target, options)
        self.channels.append(channel)
        return Client(
            channel,
            self.engine,
            self.target,
            tuple((name.replace("_", "-"), value) for name, value in metadata.items()),
        )

    def close(self) -> None:
        """Hang up for all clients, then stop."""
        for channel in self.channels:
            channel.close()
        self.stop()


def run_grpc(engine: Any, settings: Settings, kv_sockets: KvEventSockets | None = None) -> RunningGrpc:
    assert settings.grpc_port is not None
    listener, address = bind(settings), take_address(settings, settings.grpc_port)
    serving = serve_in_thread(engine, settings, listener, address, kv_sockets)
    return RunningGrpc(engine, address.target, listener.url, serving)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "grpc.gguf"
    return tokenizer_of(vocabularies.byte_level(path, control=("<|end|>", "<|im_end|>", "<|im_start|>")))


@pytest.fixture
def device(tokenizer: Tokenizer) -> ScriptedDevice:
    return ScriptedDevice(tokenizer)


@pytest.fixture
def start() -> Iterator[Callable[..., RunningGrpc]]:
    """Starts servers around an engine with given settings; all are stopped at the end."""
    running: list[RunningGrpc] = []

    def start_one(engine: Any, kv_sockets: KvEventSockets | None = None, **settings: Any) -> RunningGrpc:
        merged = Settings(**{"port": 0, "grpc_port": 0, "drain_timeout": 0.2, **settings})
        server = run_grpc(engine, merged, kv_sockets)
        running.append(server)
        return server

    yield start_one
    for server in running:
        server.close()


@pytest.fixture
def spoken(
    tokenizer: Tokenizer, device: ScriptedDevice, start: Callable[..., RunningGrpc]
) -> Iterator[Callable[..., Client]]:
    """A client of the real engine over the scripted device."""
    engines = []

    def start_one(**settings: Any) -> Client:
        frontend = bound_frontend(ScriptedEngine(tokenizer).frontend, tokenizer)
        engines.append(scripted_engine(tokenizer, frontend, TEMPLATE, device, time.monotonic))
        return start(engines[-1], **settings).client()

    yield start_one
    for engine in engines:
        engine.close()


@pytest.fixture
def client(spoken: Callable[..., Client]) -> Client:
    return spoken()


@pytest.fixture
def scripted(tokenizer: Tokenizer) -> ScriptedEngine:
    """An engine that leaves every generation to the test."""
    return ScriptedEngine(tokenizer, answer=None)


@pytest.fixture
def served(scripted: ScriptedEngine, start: Callable[..., RunningGrpc]) -> RunningGrpc:
    return start(scripted)
