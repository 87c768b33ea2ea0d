"""Server reflection, so that generic clients need no .proto file.

It knows the stock servicer, which speaks v1alpha. Version 1 has the same messages under another package name, so the same servicer
answers both; clients try the one and then the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

SERVICE_NAMES = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


def reflection_handlers(names: Sequence[str]) -> list[Any]:
    """Handlers that describe the services of these names, and themselves."""
    servicer = reflection.aio.ReflectionServicer((*names, *SERVICE_NAMES))
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in SERVICE_NAMES]
