"""`vllm.Control`: what routers ask before they send anything."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgpack
import zmq

from helios.cache.books import prefix_key
from helios.cache.journal import Journal
from helios.scheduler.scheduler import SchedulerLimits
from helios.server.grpc.schema import control_pb2
from helios.server.kv_events.sockets import KvEventSockets
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.grpc.conftest import Client, RunningGrpc
from tests.server.scripted import (
    CONTEXT_TOKENS,
    N_SLOTS,
    PAGE_TOKENS,
    PREFILL_TOKENS,
    ScriptedDevice,
    scripted_engine,
)
from tests.server.scripted_engine import TEMPLATE, ScriptedEngine
from tests.server.spoken import bound_frontend


def test_the_server_says_what_it_holds(client: Client) -> None:
    """The numbers are those of the engine; a router divides by the parallel sizes, so none of them is 0."""
    info = client.control("GetServerInfo", control_pb2.ServerInfo)
    assert info.api_version == "vllm"
    assert info.max_model_len == CONTEXT_TOKENS
    assert info.kv_block_size == PAGE_TOKENS
    assert info.total_kv_blocks == 4 * CONTEXT_TOKENS // PAGE_TOKENS
    assert info.max_running_requests == N_SLOTS
    assert info.max_batched_tokens == PREFILL_TOKENS
    sizes = {field.name: value for field, value in info.parallelism.ListFields()}
    assert set(sizes.values()) == {1}
    assert len(sizes) == 6, "all but the rank, which is 0"
    assert info == client.control("GetServerInfo", control_pb2.ServerInfo)


def test_each_start_is_another_instance(spoken: Callable[..., Client]) -> None:
    """By which a router knows that a worker's cache is gone."""
    ids = {spoken().control("GetServerInfo", control_pb2.ServerInfo).instance_id for _ in range(2)}
    assert len(ids) == 2


def test_the_model_is_named(spoken: Callable[..., Client]) -> None:
    client = spoken()
    info = client.control("GetModelInfo", control_pb2.ModelInfo)
    assert info.served_model_name == info.model_id == client.engine.served_id
    assert list(info.served_model_aliases) == list(client.engine.aliases)
    assert info.supports_text_input
    assert info.supports_token_ids_input
    assert not info.supports_lora
    assert not info.supports_multimodal
    named = spoken(grpc_model_id="some/where").control("GetModelInfo", control_pb2.ModelInfo)
    assert named.model_id == "some/where"


def test_there_are_no_event_sources(client: Client) -> None:
    """An empty list, where no events are published."""
    assert not client.control("GetKvEventSources", control_pb2.GetKvEventSourcesResponse).sources


def test_the_event_source_is_told_where_there_is_one(
    tokenizer: Tokenizer, device: ScriptedDevice, start: Callable[..., RunningGrpc]
) -> None:
    """What a router needs to hear of the cache, and it hears of what a request has left there."""
    frontend = bound_frontend(ScriptedEngine(tokenizer).frontend, tokenizer)
    limits = SchedulerLimits(1, 16, 16, PAGE_TOKENS, 16)
    journal = Journal(prefix_key(limits.cache_identity, "", "", ()))
    with (
        KvEventSockets("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "kv") as sockets,
        scripted_engine(tokenizer, frontend, TEMPLATE, device, time.monotonic, journal=journal) as engine,
    ):
        server = start(engine, kv_sockets=sockets)
        client = server.client()
        (source,) = client.control("GetKvEventSources", control_pb2.GetKvEventSourcesResponse).sources
        assert (source.transport, source.encoding, source.topic, source.schema_version) == ("zmq", "msgpack", "kv", 1)
        assert source.HasField("data_parallel_rank")
        assert source.buffer_steps == 10_000
        prompt = list(range(3, 3 + 2 * PAGE_TOKENS))
        with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
            subscriber.subscribe(b"kv")
            subscriber.connect(source.endpoint)
            while not subscriber.poll(50):  # it takes a moment until it hears
                prompt[0] += 1
                client.generate(prompt)
            _, _, payload = subscriber.recv_multipart()
        _, events, _ = msgpack.unpackb(payload)
        assert events[0]["block_size"] == client.control("GetServerInfo", control_pb2.ServerInfo).kv_block_size
        assert events[0]["token_ids"][1:PAGE_TOKENS] == prompt[1:PAGE_TOKENS]
        server.stop()
