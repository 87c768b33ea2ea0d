"""Clients that are not ours: grpcio's asynchronous one, grpclib, and buf's; and reflection, by which they need no schema."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Any

import grpc
import grpclib.client
import h2.connection
import h2.events
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.server.grpc.conftest import (
    DEADLINE_S,
    Client,
    GenerateRequest,
    GenerateResponse,
    request_of,
    text_of,
)
from tests.server.grpc.validator import check_stream, check_whole
from tests.server.scripted import ScriptedDevice

BUF = Path(sysconfig.get_path("scripts")) / "buf"


@pytest.fixture(autouse=True)
def greeting(device: ScriptedDevice) -> None:
    device.says("Hello world")


def test_the_asynchronous_client(client: Client) -> None:
    """GRPC-4: grpc.aio, whole and streamed."""

    async def talk() -> None:
        async with grpc.aio.insecure_channel(client.target) as channel:
            types = {
                "request_serializer": GenerateRequest.SerializeToString,
                "response_deserializer": GenerateResponse.FromString,
            }
            whole = await channel.unary_unary("/vllm.Inference/Generate", **types)(request_of())
            check_whole(request_of(), whole)
            stream = channel.unary_stream("/vllm.Inference/GenerateStream", **types)(request_of())
            responses = [response async for response in stream]
            check_stream(request_of(), responses)
            assert whole.outputs.text == text_of(responses) == "Hello world"

    asyncio.run(talk())


def test_a_pure_python_client(client: Client) -> None:
    """GRPC-4: grpclib over h2."""

    async def talk() -> None:
        host, port = client.target.rsplit(":", 1)
        async with grpclib.client.Channel(host, int(port)) as channel:
            types = (GenerateRequest, GenerateResponse)
            whole = await grpclib.client.UnaryUnaryMethod(channel, "/vllm.Inference/Generate", *types)(request_of())
            check_whole(request_of(), whole)
            stream = grpclib.client.UnaryStreamMethod(channel, "/vllm.Inference/GenerateStream", *types)
            responses = await stream(request_of())
            check_stream(request_of(), responses)
            assert whole.outputs.text == text_of(responses) == "Hello world"
            with pytest.raises(grpclib.GRPCError) as caught:
                await stream(request_of(model="other"))
            assert caught.value.status is grpclib.const.Status.NOT_FOUND

    asyncio.run(talk())


def test_compressed_requests_are_taken(client: Client) -> None:
    """GRPC-4: gzip and deflate, large enough to be compressed really."""
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        method = client.unary("Generate", GenerateResponse)
        response = method(request_of("hi " * 1000), timeout=DEADLINE_S, compression=compression)
        assert response.outputs.text == "Hello world"


def buf(client: Client, *words: str, data: Any = None) -> str:
    """`buf curl`, which knows the server by reflection only."""
    command = [str(BUF), "curl", "--protocol", "grpc", "--http2-prior-knowledge", *words]
    command += [] if data is None else ["-d", json.dumps(data)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not BUF.is_file(), reason="buf is a test dependency that not every machine has a wheel of")
def test_buf_lists_services_and_generates(client: Client) -> None:
    """GRPC-4: a client of grpcurl's kind, with nothing but the address."""
    url = f"http://{client.target}"
    services = buf(client, "--list-services", url).split()
    assert {"vllm.Inference", "vllm.Control", "grpc.health.v1.Health"} <= set(services)
    methods = buf(client, "--list-methods", url).split()
    assert {"vllm.Inference/Generate", "vllm.Inference/GenerateStream"} <= set(methods)
    whole = json.loads(buf(client, f"{url}/vllm.Inference/Generate", data={"text": "hi"}))
    assert whole["outputs"]["text"] == "Hello world"
    stream = buf(client, f"{url}/vllm.Inference/GenerateStream", data={"text": "hi"})
    decoder, messages = json.JSONDecoder(), []
    while stream := stream.strip():
        message, end = decoder.raw_decode(stream)
        messages.append(message)
        stream = stream[end:]
    assert "promptInfo" in messages[0]
    assert "".join(each.get("outputs", {}).get("text", "") for each in messages) == "Hello world"


def test_a_schema_that_was_learnt_by_reflection_generates(client: Client) -> None:
    """GRPC-4: v1alpha, by the stock descriptor database; dependencies included."""
    database = ProtoReflectionDescriptorDatabase(client.channel)
    assert {"vllm.Inference", "vllm.Control"} <= set(database.get_services())
    pool = DescriptorPool(database)
    service = pool.FindServiceByName("vllm.Inference")
    assert [method.name for method in service.methods] == ["Generate", "GenerateStream"]
    assert pool.FindMessageTypeByName("vllm.KVHintAction").fields_by_name["payload"].message_type.name == "Struct"


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_versions_of_reflection_answer_each_request_as_it_comes(client: Client, version: str) -> None:
    """GRPC-4: an unknown symbol is an answer, and the stream goes on."""
    method = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [
        {"list_services": "*"},
        {"file_containing_symbol": "no.such.Symbol"},
        {"file_containing_symbol": "vllm.Inference.Other"},
        {"file_containing_symbol": "vllm.Inference.Generate"},
        {"file_containing_symbol": "vllm.CandidateTokenInfo.TokenInfo"},
        {"file_by_filename": "google/protobuf/struct.proto"},
    ]
    answers = list(method((reflection_pb2.ServerReflectionRequest(**each) for each in asked), timeout=DEADLINE_S))
    assert "vllm.Inference" in [service.name for service in answers[0].list_services_response.service]
    not_found = grpc.StatusCode.NOT_FOUND.value[0]
    assert [answer.error_response.error_code for answer in answers] == [0, not_found, not_found, 0, 0, 0]
    assert all(answer.file_descriptor_response.file_descriptor_proto for answer in answers[3:])


def test_a_client_may_ping_while_nothing_is_asked(client: Client) -> None:
    """GRPC-4: five pings on an idle connection, where the library by default ends it at the third."""
    host, port = client.target.rsplit(":", 1)
    state = h2.connection.H2Connection()
    state.initiate_connection()
    events: list[h2.events.Event] = []
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        for index in range(5):
            state.ping(bytes([index]) * 8)
            connection.sendall(state.data_to_send())
            while sum(isinstance(event, h2.events.PingAckReceived) for event in events) <= index:
                received = connection.recv(65536)
                assert received, "the server has closed the connection"
                events += state.receive_data(received)
                connection.sendall(state.data_to_send())
            time.sleep(0.6)
    assert not [event for event in events if isinstance(event, h2.events.ConnectionTerminated)]
