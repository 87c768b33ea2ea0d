"""Server reflection, so that generic clients need no .proto file.

It knows the stock servicer, which speaks v1alpha. Version 1 has the same messages under another package name, so the same servicer
answers both; clients try the one and then the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection, reflection_pb2

_VERSION_1 = "grpc.reflection.v1.ServerReflection"
REFLECTION_NAMES = (_VERSION_1, reflection.SERVICE_NAME)


class _Symbols:
    """The pool of descriptors, which finds everything but methods; these are in the file of their service."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - the pool's own name for it
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service_name, _, method = symbol.rpartition(".")
            service = self._pool.FindServiceByName(service_name)
            if method not in service.methods_by_name:
                raise
            return service.file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def reflection_handlers(names: Sequence[str]) -> list[Any]:
    """Handlers that describe the services of these names, and themselves. Version 1 is not listed: its description is not here."""
    servicer = reflection.aio.ReflectionServicer((*names, reflection.SERVICE_NAME), pool=_Symbols())
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in REFLECTION_NAMES]
