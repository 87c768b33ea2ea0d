"""`helios chat [MODEL]`: a conversation in the terminal, with a model in this process or with a server.

It knows lines of text and the chat request's body; an Assistant answers. Ctrl-C ends an answer and keeps what was said, at
the prompt it ends the program; an error loses the line that caused it and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from helios.cli.model import add_settings, core_path, load_settings, start_engine
from helios.cli.piece import Piece, shown
from helios.cli.remote import RemoteAssistant
from helios.cli.streams import add_endpoint, endpoint_of
from helios.errors import HeliosError, MissingFileError, SettingError

if TYPE_CHECKING:
    from helios.engine import Engine
    from helios.server.choice import Choice
    from helios.server.frontend import PreparedCall

_ENGINE_SETTINGS = ("device", "context", "kv", "threads", "accept")
_HELP = "/new starts over, /quit ends, Ctrl-C cuts an answer short"


class Assistant(Protocol):
    """Who answers a chat request's body, piece by piece. Closing the generator cancels the answer."""

    def reply(self, body: dict[str, Any]) -> Generator[Piece, None, None]: ...
    def close(self) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a .core, a .gguf, or nothing for the default model")
    add_endpoint(parser, "talk to the server at this URL instead")
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument("--temperature", type=float, help="0 always takes the likeliest token")
    parser.add_argument("--max-tokens", type=int, help="most tokens of one answer")
    parser.add_argument("--seed", type=int, help="makes sampling repeatable")
    parser.add_argument("--reasoning-effort", metavar="LEVEL", help="none to high, for models that reason")
    parser.add_argument("--schema", type=Path, metavar="FILE", help="a JSON Schema that every answer follows")
    add_settings(parser, _ENGINE_SETTINGS)


def run(arguments: argparse.Namespace) -> int:
    options = {name: getattr(arguments, name) for name in ("temperature", "max_tokens", "seed", "reasoning_effort")}
    if arguments.schema is not None:
        options["structured_outputs"] = {"json": _read_schema(arguments.schema)}
    opening = [{"role": "system", "content": arguments.system}] if arguments.system else []
    with contextlib.closing(_assistant(arguments)) as assistant:
        converse(assistant, opening, options)
    return 0


def _read_schema(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingFileError(f"--schema {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingError(f"--schema {path} is not JSON: {error}") from error


def converse(assistant: Assistant, opening: list[dict[str, str]], options: dict[str, Any]) -> None:
    """Read lines and print answers until the input ends or says so."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing for input())
    print(_HELP)
    messages = list(opening)
    for line in _lines():
        if line == "/new":
            messages = list(opening)
            continue
        messages.append({"role": "user", "content": line})
        try:
            answer = _print_answer(assistant.reply({**options, "messages": messages, "stream": True}))
        except HeliosError as error:
            print(f"helios: {error}")
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": answer})


def _lines() -> Iterator[str]:
    """What the user types, until /quit, the end of input, or Ctrl-C."""
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line == "/quit":
            return
        if line:
            yield line


def _print_answer(pieces: Generator[Piece, None, None]) -> str:
    """Print an answer as it comes; returns what was said, all or up to Ctrl-C, without the reasoning."""
    said: list[str] = []
    try:
        for text, answer in shown(pieces):
            said.append(answer)
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()
    print()
    return "".join(said)


def _assistant(arguments: argparse.Namespace) -> Assistant:
    endpoint = endpoint_of(arguments)
    if endpoint is not None:
        return RemoteAssistant(endpoint)
    settings = load_settings(arguments)
    return LocalAssistant(start_engine(core_path(arguments.model, settings), settings))


class LocalAssistant:
    """A model in this process. It takes the same request body as a server and runs it the same way."""

    def __init__(self, engine: Engine) -> None:
        from helios.server.frontend import Frontend

        self._engine = engine
        self._frontend = Frontend(engine, 1)
        self._runner = asyncio.Runner()

    def reply(self, body: dict[str, Any]) -> Generator[Piece, None, None]:
        from helios.output.events import ContentDelta, ReasoningDelta

        call = self._frontend.prepare_chat(json.dumps(body).encode())
        choice = self._runner.run(self._start(call))
        try:
            while True:
                delta = self._runner.run(choice.next_delta())
                for event in [part.event for part in delta.parts]:
                    if isinstance(event, ContentDelta | ReasoningDelta):
                        yield Piece(event.text, isinstance(event, ReasoningDelta))
                if delta.finish_reason is not None:
                    return
        finally:
            choice.cancel()

    def close(self) -> None:
        self._runner.close()
        self._frontend.close()
        self._engine.close()

    async def _start(self, call: PreparedCall) -> Choice:
        from helios.server.choice import Choice

        generation = self._engine.submit(call.requests[0])
        return Choice(0, generation, self._frontend.pipeline(call), call.reading, attribution=None)
