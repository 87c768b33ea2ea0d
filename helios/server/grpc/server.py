"""The gRPC port: `vllm.Inference`, `vllm.Control`, health and reflection for one engine, started and ended in order.

It knows the library's server and its options, no fields. A call is refused or answered, never dropped without a status; when `stop`
returns, none is left.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from helios.errors import SettingError
from helios.server.grpc.address import GrpcAddress
from helios.server.grpc.calls import Calls
from helios.server.grpc.context import answering
from helios.server.grpc.control import ControlService
from helios.server.grpc.health import HealthService
from helios.server.grpc.inference import InferenceService
from helios.server.grpc.message_room import GRACE_S, MessageRoom
from helios.server.grpc.parsing import bounded_parser
from helios.server.grpc.preparation import Preparation
from helios.server.grpc.reflection import REFLECTION_NAMES, reflection_handlers
from helios.server.grpc.schema import control_pb2, inference_pb2
from helios.server.grpc.stock_calls import StockCalls
from helios.server.services import Services

INFERENCE, CONTROL = "vllm.Inference", "vllm.Control"
_LOG = logging.getLogger(__name__)
N_MORE_WAITING = 1024  # calls that wait for their messages to be read, over those that may be admitted
_N_COPIES = 4  # of a message between its first byte and its tokens: as it arrives, as bytes, as a message, as text
_LAST_WORDS_S = 0.5  # for statuses that are still on their way when the last call has ended
_OPTIONS = (
    # What a call may send before its message is read, and never more: the library would learn megabytes from a fast peer.
    ("grpc.http2.lookahead_bytes", 16 << 10),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),  # a port that is in use is an error, not shared
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 512),  # of one connection; more wait at the client
    # Clients may ping, idle or not: some do so every 10 s, and nobody is sent away for less than a flood.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    # A peer that vanished without a word is found in about a minute. The library has no use for `keepalive_timeout_ms` here: what
    # ends a connection is the time that any ping may take, a minute by itself.
    ("grpc.keepalive_time_ms", 45_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
)


class GrpcServer:
    """Serves one engine over gRPC. `start` and `stop` belong to the event loop."""

    def __init__(self, services: Services, address: GrpcAddress) -> None:
        self._services = services
        self._address = address
        self._calls = Calls()
        self._health = HealthService((INFERENCE, CONTROL), self._is_serving)
        self._server: Any = None

    async def start(self) -> None:
        """Begin to serve; SettingError when the address is taken after all."""
        settings = self._services.settings
        message_nbytes = settings.grpc_max_message_mb << 20
        options = (
            *_OPTIONS,
            ("grpc.max_receive_message_length", message_nbytes),
            ("grpc.max_allowed_incoming_connections", settings.connection_limit),  # TLS handshakes count
            ("grpc.server_handshake_timeout_ms", _milliseconds(settings.header_timeout)),
            ("grpc.max_connection_idle_ms", _milliseconds(settings.idle_timeout)),
        )
        n_turns = max(1, settings.body_memory // (_N_COPIES * message_nbytes))
        room = MessageRoom(n_turns, settings.queue_capacity + N_MORE_WAITING, settings.body_timeout, GRACE_S)
        stock_calls = StockCalls((health.SERVICE_NAME, *REFLECTION_NAMES), settings.body_timeout)
        self._server = grpc.aio.server(handlers=self._handlers(room), interceptors=(stock_calls,), options=options)
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        address = self._address
        address.release()
        try:
            if address.credentials is None:
                self._server.add_insecure_port(address.target)
            else:
                self._server.add_secure_port(address.target, address.credentials)
        except RuntimeError as error:
            raise SettingError(f"cannot listen on {address.target}", hint="choose another with --grpc-port") from error
        await self._server.start()
        await self._health.start()

    async def stop(self, limit_s: float) -> None:
        """NOT_SERVING at once, at most `limit_s` seconds for open calls, then the rest is dropped."""
        await self._health.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._calls.n_open:
                    await asyncio.sleep(0.02)
        if self._calls.n_open:
            _LOG.warning("dropping %d gRPC calls after %g seconds", self._calls.n_open, limit_s)
        await self._server.stop(0 if self._calls.n_open else _LAST_WORDS_S)

    def _is_serving(self) -> bool:
        return self._services.engine.is_ready() and not self._services.is_draining

    def _handlers(self, room: MessageRoom) -> list[Any]:
        services, settings = self._services, self._services.settings
        engine = services.engine
        limit = settings.grpc_default_max_new_tokens
        preparation = Preparation(engine, services.frontend, limit if isinstance(limit, int) else None)
        inference = InferenceService(services, preparation, self._calls)
        control = ControlService(engine, self._calls, settings.grpc_model_id or engine.served_id, services.kv_source)
        return [
            grpc.method_handlers_generic_handler(
                INFERENCE,
                {
                    "Generate": grpc.stream_unary_rpc_method_handler(
                        answering(f"/{INFERENCE}/Generate", inference.generate, services, room, is_generating=True),
                        bounded_parser(inference_pb2.GenerateRequest),
                        _serialized,
                    ),
                    "GenerateStream": grpc.stream_stream_rpc_method_handler(
                        answering(
                            f"/{INFERENCE}/GenerateStream",
                            inference.generate_stream,
                            services,
                            room,
                            is_generating=True,
                        ),
                        bounded_parser(inference_pb2.GenerateRequest),
                        _serialized,
                    ),
                },
            ),
            grpc.method_handlers_generic_handler(
                CONTROL,
                {
                    name: grpc.stream_unary_rpc_method_handler(
                        answering(f"/{CONTROL}/{name}", handler, services, room, is_generating=False),
                        bounded_parser(message),
                        _serialized,
                    )
                    for name, handler, message in (
                        ("GetServerInfo", control.get_server_info, control_pb2.GetServerInfoRequest),
                        ("GetModelInfo", control.get_model_info, control_pb2.GetModelInfoRequest),
                        ("Abort", control.abort, control_pb2.AbortRequest),
                        ("GetKvEventSources", control.get_kv_event_sources, control_pb2.GetKvEventSourcesRequest),
                    )
                },
            ),
            *reflection_handlers((INFERENCE, CONTROL, health.SERVICE_NAME)),
        ]


def _serialized(message: Any) -> bytes:
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
