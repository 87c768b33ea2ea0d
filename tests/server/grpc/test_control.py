"""`vllm.Control`: what routers ask before they send anything."""

from __future__ import annotations

from collections.abc import Callable

from helios.server.grpc.schema import control_pb2
from tests.server.grpc.conftest import Client
from tests.server.scripted import CONTEXT_TOKENS, N_SLOTS, PAGE_TOKENS, PREFILL_TOKENS


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
