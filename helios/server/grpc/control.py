"""`vllm.Control`: what a router asks of a worker before and beside generation.

It knows what the engine says of itself and changes nothing but calls that are to end. Every call is answered at once.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from helios.contract.enums import ReasoningSyntax, ToolSyntax
from helios.server.grpc.calls import Calls
from helios.server.grpc.context import CallContext
from helios.server.grpc.schema import control_pb2
from helios.settings import VERSION

if TYPE_CHECKING:
    from helios.engine import Engine
    from helios.server.kv_events.sockets import Source

API_VERSION = "vllm"  # the protocol's name; a client refuses any other

_ALONE = control_pb2.ParallelismInfo(
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    data_parallel_size=1,
    data_parallel_rank=0,
    decode_context_parallel_size=1,
    world_size=1,
    data_parallel_size_local=1,
)


class ControlService:
    """Its methods answer one call each. `model_id` is what clients load the tokenizer and the chat template from, `kv_source` where
    they hear of the cache."""

    def __init__(self, engine: Engine, calls: Calls, model_id: str, kv_source: Source | None) -> None:
        self._engine = engine
        self._calls = calls
        self._model_id = model_id
        self._kv_source = kv_source
        self._instance_id = secrets.token_hex(16)

    async def get_server_info(
        self, message: control_pb2.GetServerInfoRequest, context: CallContext
    ) -> control_pb2.ServerInfo:
        limits, shape = self._engine.capacities.limits, self._engine.capacities.shape
        return control_pb2.ServerInfo(
            engine_version=f"helios {VERSION}",
            api_version=API_VERSION,
            instance_id=self._instance_id,
            parallelism=_ALONE,
            max_model_len=self._engine.context_tokens,
            kv_block_size=shape.page_tokens,
            total_kv_blocks=shape.n_pages,
            max_running_requests=limits.max_active,
            max_batched_tokens=limits.prefill_tokens,
        )

    async def get_model_info(
        self, message: control_pb2.GetModelInfoRequest, context: CallContext
    ) -> control_pb2.ModelInfo:
        frontend = self._engine.frontend
        has_reasoning = frontend.reasoning_syntax is not ReasoningSyntax.NONE
        has_calls = frontend.tool_syntax is not ToolSyntax.NONE
        return control_pb2.ModelInfo(
            model_id=self._model_id,
            served_model_name=self._engine.served_id,
            served_model_aliases=self._engine.aliases,
            supports_text_input=True,
            supports_token_ids_input=True,
            reasoning_parser=frontend.reasoning_syntax.name.lower() if has_reasoning else "",
            tool_call_parser=frontend.tool_syntax.name.lower() if has_calls else "",
        )

    async def abort(self, message: control_pb2.AbortRequest, context: CallContext) -> control_pb2.AbortResponse:
        self._calls.abort(message.request_ids)
        return control_pb2.AbortResponse()

    async def get_kv_event_sources(
        self, message: control_pb2.GetKvEventSourcesRequest, context: CallContext
    ) -> control_pb2.GetKvEventSourcesResponse:
        """One, or none where no events are published."""
        source = self._kv_source
        if source is None:
            return control_pb2.GetKvEventSourcesResponse()
        described = control_pb2.KvEventSource(
            transport="zmq",
            endpoint=source.endpoint,
            topic=source.topic,
            replay_endpoint=source.replay_endpoint,
            data_parallel_rank=0,
            encoding="msgpack",
            schema_version=1,
            buffer_steps=source.n_buffered,
            hwm=source.high_water,
            max_queue_size=source.high_water,
        )
        return control_pb2.GetKvEventSourcesResponse(sources=[described])
