"""Sends one shape, vanishing where it says, and judges the answer that came back.

It knows HTTP and the OpenAI wire. An outcome that is not expected is a sentence, never an exception, so that a run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from helios.cli.streams import Endpoint
from helios.cli.timeline import Answer, read_answer
from helios.errors import RemoteError
from scripts.soaking.shapes import HTTP_PATH, Drop, Shape, request_head

ANSWER_TIMEOUT_S = 120.0
BUSY = (429, 503)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request went: `kind` is answered, refused (4xx as it should be), busy, dropped, or wrong with a `fault`."""

    kind: str
    fault: str = ""


async def send(endpoint: Endpoint, shape: Shape) -> Outcome:
    """Run one request to its end, or to where its client vanishes."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await _exchange(endpoint, shape)
    except TimeoutError:
        return Outcome("wrong", f"no end of the answer in {ANSWER_TIMEOUT_S:.0f} s (dropped: {shape.drop.value})")
    except (OSError, RemoteError, ValueError, LookupError, TypeError) as error:
        if shape.drop is not Drop.NEVER:
            return Outcome("dropped")
        return Outcome("wrong", f"{type(error).__name__}: {error}")


async def ask(endpoint: Endpoint, body: dict[str, Any]) -> bytes:
    """The message text and finish reasons of one complete, not streamed answer, as bytes to compare."""
    content = json.dumps(body).encode()
    shape = Shape(request_head(HTTP_PATH, len(content)), content, body, True, Drop.NEVER, False, 0)
    while True:
        answer = read_answer(await _read_all(endpoint, shape))
        if answer.status == 200:
            choices = json.loads(answer.body)["choices"]
            return json.dumps([(choice["message"]["content"], choice["finish_reason"]) for choice in choices]).encode()
        if answer.status not in BUSY:
            raise RemoteError(f"a probe was answered {answer.status}: {answer.body[:200].decode(errors='replace')}")
        await asyncio.sleep(0.05)


async def _exchange(endpoint: Endpoint, shape: Shape) -> Outcome:
    if shape.drop is Drop.NEVER:
        return judge(shape, read_answer(await _read_all(endpoint, shape)))
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        whole = shape.head + shape.content
        cuts = {
            Drop.CONNECTED: 0,
            Drop.IN_HEAD: len(shape.head) // 2,
            Drop.IN_BODY: len(shape.head) + len(shape.content) // 2,
        }
        writer.write(whole[: cuts.get(shape.drop, len(whole))])
        await writer.drain()
        if shape.drop is Drop.FIRST_BYTES:
            await reader.read(1)
        elif shape.drop is Drop.IN_ANSWER:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readexactly(shape.answer_bytes)
        return Outcome("dropped")
    finally:
        if shape.is_reset:
            writer.transport.abort()
        await _close(writer)


async def _read_all(endpoint: Endpoint, shape: Shape) -> bytes:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(shape.head + shape.content)
        with contextlib.suppress(ConnectionError):  # a refusal may come, and the connection close, before all is sent
            await writer.drain()
        return await reader.read()
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def judge(shape: Shape, answer: Answer) -> Outcome:
    """Whether a complete answer is the kind that the shape has to get."""
    if answer.status in BUSY:
        return Outcome("busy") if shape.is_good else Outcome("refused")
    if not shape.is_good:
        if 400 <= answer.status < 500 and "message" in json.loads(answer.body)["error"]:
            return Outcome("refused")
        return Outcome("wrong", f"a bad request was answered {answer.status}: {answer.body[:200]!r}")
    if answer.status != 200:
        return Outcome("wrong", f"a good request was answered {answer.status}: {answer.body[:200]!r}")
    fault = _stream_fault(shape, answer.body) if shape.body["stream"] else _whole_fault(shape, answer.body)
    return Outcome("wrong", fault) if fault else Outcome("answered")


def _whole_fault(shape: Shape, body: bytes) -> str:
    answer = json.loads(body)
    n_choices, n_tokens = shape.body.get("n", 1), answer["usage"]["completion_tokens"]
    if len(answer["choices"]) != n_choices or any(not choice["finish_reason"] for choice in answer["choices"]):
        return f"{n_choices} finished choices were asked for: {body[:300]!r}"
    if not n_choices <= n_tokens <= n_choices * shape.body["max_tokens"]:
        return f"{n_choices} choices of at most {shape.body['max_tokens']} tokens have {n_tokens}"
    return ""


def _stream_fault(shape: Shape, body: bytes) -> str:
    events = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        return f"the stream does not end in [DONE]: {body[-200:]!r}"
    finished = [
        choice["index"]
        for event in events[:-1]
        for choice in json.loads(event).get("choices", ())
        if choice.get("finish_reason")
    ]
    if sorted(finished) != list(range(shape.body.get("n", 1))):
        return f"{shape.body.get('n', 1)} choices were asked for, {finished} finished"
    return ""
