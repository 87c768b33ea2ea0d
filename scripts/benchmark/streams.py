"""The command: what a streamed token costs the server in CPU time, as an event of SSE and as a gRPC message, in alternated rounds.

It measures presentation and network, not a model: the engine in the server process says the same token again and again, one at a
time, for both protocols. Beside them, what grpcio takes by itself to send a message that is there already. The clients live in this
process and are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc

from helios.scheduler.request import Event, GenerationRequest, Token
from helios.server.access import Access
from helios.server.grpc.address import take_address
from helios.server.grpc.schema import inference_pb2
from helios.server.listener import bind
from helios.server.server import Server
from helios.settings import Settings
from tests.server.scripted_engine import ScriptedEngine, ScriptedGeneration
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

N_STREAMS, N_TOKENS = 16, 500
TOKEN_GAP_S = 0.002  # so that tokens come one by one, as they do in decoding
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class _PacedGeneration(ScriptedGeneration):
    """One token after the other, as many as were asked for."""

    async def next_batch(self) -> list[Event]:
        await asyncio.sleep(TOKEN_GAP_S)
        self._give(Token(40))
        return await super().next_batch()


@dataclass
class _PacedEngine(ScriptedEngine):
    answer: str | None = None

    def submit(self, request: GenerationRequest, arrived_s: float | None = None) -> ScriptedGeneration:
        return _PacedGeneration(request)


def main() -> int:
    """Print microseconds for each token and the ratio."""
    parser = argparse.ArgumentParser(prog="scripts/bench-streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds, each with both protocols (7)")
    rounds = parser.parse_args().rounds
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    http_port, grpc_target, bare_target = ours.recv()
    assert server.pid is not None
    contenders: list[tuple[str, Callable[[], Coroutine[Any, Any, int]]]] = [
        ("SSE", lambda: _sse(http_port)),
        ("gRPC", lambda: _grpc(grpc_target)),
        ("bare", lambda: _grpc(bare_target)),
    ]
    figures: dict[str, list[float]] = {name: [] for name, _ in contenders}
    for index in range(rounds):
        for name, stream in contenders if index % 2 == 0 else reversed(contenders):
            before_s = _cpu_s(server.pid)
            n_messages = asyncio.run(stream())
            figures[name].append((_cpu_s(server.pid) - before_s) / (N_STREAMS * N_TOKENS) * 1e6)
            print(f"{name:5} {figures[name][-1]:7.1f} us a token, {n_messages:,} messages", flush=True)
    ours.send(None)
    server.join()
    print("median:", ", ".join(f"{name} {statistics.median(values):.1f} us" for name, values in figures.items()))
    for other in ("SSE", "bare"):
        ratios = [one / beside for one, beside in zip(figures["gRPC"], figures[other], strict=True)]
        print(f"gRPC / {other} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return 0


def _cpu_s(pid: int) -> float:
    """User and system time of a process, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def _serve(pipe: Connection) -> None:
    asyncio.run(_serve_until_told(pipe))


async def _serve_until_told(pipe: Connection) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = vocabularies.byte_level(Path(directory) / "a.gguf", control=("<|im_end|>", "<|im_start|>"))
        engine: Any = _PacedEngine(tokenizer_of(path))
    settings = Settings(port=0, grpc_port=0)
    with bind(settings) as listener, take_address(settings, 0) as address:
        server = Server(engine, settings, Access())
        await server.start(listener, address)
        bare = grpc.aio.server(handlers=[_bare_handlers()])
        bare_port = bare.add_insecure_port("127.0.0.1:0")
        await bare.start()
        pipe.send((listener.socket.getsockname()[1], address.target, f"127.0.0.1:{bare_port}"))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await bare.stop(None)
        await server.stop()


def _bare_handlers() -> Any:
    """The streamed method, with nothing but the library: bytes that are there already, at the same pace."""
    message = inference_pb2.GenerateResponse(outputs={"text": "I", "num_tokens": 1}).SerializeToString()

    async def stream(_: Any, context: Any) -> None:
        for _ in range(N_TOKENS):
            await asyncio.sleep(TOKEN_GAP_S)
            await context.write(message)

    return grpc.method_handlers_generic_handler(
        "vllm.Inference", {"GenerateStream": grpc.unary_stream_rpc_method_handler(stream)}
    )


async def _sse(port: int) -> int:
    return sum(await asyncio.gather(*(_one_sse(port) for _ in range(N_STREAMS))))


async def _one_sse(port: int) -> int:
    """Events of one streamed completion."""
    body = json.dumps({"prompt": "hi", "max_tokens": N_TOKENS, "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    n_events, last = 0, b""
    while b"[DONE]" not in last:
        last = await reader.read(1 << 16)
        n_events += last.count(b"data: ")
    writer.close()
    return n_events


async def _grpc(target: str) -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        return sum(await asyncio.gather(*(_one_grpc(channel) for _ in range(N_STREAMS))))


async def _one_grpc(channel: Any) -> int:
    """Messages of one stream."""
    method = channel.unary_stream(
        "/vllm.Inference/GenerateStream",
        request_serializer=inference_pb2.GenerateRequest.SerializeToString,
        response_deserializer=inference_pb2.GenerateResponse.FromString,
    )
    request = inference_pb2.GenerateRequest(text="hi", stopping={"max_new_tokens": N_TOKENS})
    n_messages = 0
    async for _ in method(request):
        n_messages += 1
    return n_messages
