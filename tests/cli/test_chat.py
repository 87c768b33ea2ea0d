"""A conversation in the terminal, with a server and in process, around a scripted engine."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator
from typing import Any

import pytest

from helios.cli.chat import LocalAssistant, converse
from helios.cli.remote import RemoteAssistant
from helios.errors import HeliosError, RemoteError
from tests.server.conftest import RunningServer, engine, server, start_server, tokenizer
from tests.server.scripted_engine import ScriptedEngine

__all__ = ["engine", "server", "start_server", "tokenizer"]  # fixtures


class Recorder:
    """An assistant that answers with a count, and fails or is interrupted where told."""

    def __init__(self, raises: dict[int, BaseException] | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.raises = raises or {}
        self.n_closed = 0

    def reply(self, body: dict[str, Any]) -> Generator[str, None, None]:
        self.bodies.append({**body, "messages": list(body["messages"])})
        try:
            yield f"answer {len(self.bodies)}"
            if len(self.bodies) in self.raises:
                raise self.raises[len(self.bodies)]
            yield "!"
        finally:
            self.n_closed += 1

    def close(self) -> None:
        pass


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes `input` give these lines, then the end of input."""

    def type_lines(*lines: str | BaseException) -> None:
        pending = iter(lines)

        def read(prompt: str) -> str:
            line = next(pending, EOFError())
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr(builtins, "input", read)

    return type_lines


def test_a_conversation_remembers_what_was_said(typed: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    assistant = Recorder()
    typed("first", "  ", "second", "/new", "third", "/quit", "never")
    converse(assistant, [{"role": "system", "content": "be brief"}], {"temperature": 0.0})
    said = [[message["content"] for message in body["messages"]] for body in assistant.bodies]
    assert said == [["be brief", "first"], ["be brief", "first", "answer 1!", "second"], ["be brief", "third"]]
    assert all(body["stream"] and body["temperature"] == 0.0 for body in assistant.bodies)
    assert "answer 2!\n" in capsys.readouterr().out


def test_an_error_loses_its_line_only(typed: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    assistant = Recorder({1: RemoteError("it is away")})
    typed("first", "second")
    converse(assistant, [], {})
    assert [message["content"] for message in assistant.bodies[1]["messages"]] == ["second"]
    assert "helios: it is away" in capsys.readouterr().out


def test_an_interrupt_cuts_the_answer_and_keeps_what_was_said(typed: Callable[..., None]) -> None:
    assistant = Recorder({1: KeyboardInterrupt()})
    typed("first", "second", KeyboardInterrupt())
    converse(assistant, [], {})
    assert [message["content"] for message in assistant.bodies[1]["messages"]] == ["first", "answer 1", "second"]
    assert assistant.n_closed == 2


BODY = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "seed": None, "max_tokens": 50}


def test_a_server_answers_in_pieces(server: RunningServer) -> None:
    assistant = RemoteAssistant(server.url)
    server.engine.answer = "Hello wörld"
    assert "".join(assistant.reply(BODY)) == "Hello wörld"
    with pytest.raises(RemoteError, match="temperature must be a number"):
        list(assistant.reply({**BODY, "temperature": 7}))


def test_leaving_an_answer_cancels_it_on_the_server(server: RunningServer) -> None:
    server.engine.answer = None
    pieces = RemoteAssistant(server.url).reply(BODY)
    assert next(pieces) == ""  # the opening chunk
    pieces.close()
    generation = server.generation()
    while not generation.is_cancelled:
        pass


def test_a_server_that_is_not_there_or_goes_away_is_one_error(server: RunningServer) -> None:
    server.engine.answer = None
    pieces = RemoteAssistant(server.url).reply(BODY)
    next(pieces)
    server.stop()
    with pytest.raises(RemoteError):
        list(pieces)
    with pytest.raises(RemoteError, match="does not answer"):
        list(RemoteAssistant(server.url).reply(BODY))


def test_a_model_in_process_answers_like_a_server(engine: ScriptedEngine) -> None:
    assistant = LocalAssistant(engine)  # type: ignore[arg-type]
    assert "".join(assistant.reply(BODY)) == "Hello world"
    with pytest.raises(HeliosError, match="temperature"):
        list(assistant.reply({**BODY, "temperature": 7}))
    pieces = assistant.reply(BODY)
    next(pieces)
    pieces.close()
    assert engine.generations[-1].is_cancelled
    assert "".join(assistant.reply({**BODY, "stop": "wor"})) == "Hello "
    assistant.close()
    assert engine.is_closed
