"""A conversation in the terminal, with a server and in process, around a scripted engine."""

from __future__ import annotations

import argparse
import builtins
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from helios.cli.chat import LocalAssistant, add_arguments, converse, run
from helios.cli.piece import Piece, shown
from helios.cli.remote import RemoteAssistant
from helios.errors import HeliosError, RemoteError
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, with_tokens
from tests.server.conftest import RunningServer, engine, server, start_server, tokenizer, wait_until
from tests.server.scripted_engine import ScriptedEngine
from tests.server.spoken import speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

__all__ = ["engine", "server", "start_server", "tokenizer"]  # fixtures


class Recorder:
    """An assistant that answers with a count, and fails or is interrupted where told."""

    def __init__(self, raises: dict[int, BaseException] | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.raises = raises or {}
        self.n_closed = 0

    def reply(self, body: dict[str, Any]) -> Generator[Piece, None, None]:
        self.bodies.append({**body, "messages": list(body["messages"])})
        try:
            yield Piece("let me think", is_reasoning=True)
            yield Piece(f"answer {len(self.bodies)}")
            if len(self.bodies) in self.raises:
                raise self.raises[len(self.bodies)]
            yield Piece("!")
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
    assert "[let me think]\nanswer 2!\n" in capsys.readouterr().out


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


def text_of(pieces: Iterable[Piece]) -> str:
    found = list(pieces)
    assert not any(piece.is_reasoning for piece in found)
    return "".join(piece.text for piece in found)


def test_reasoning_that_is_cut_short_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And on a terminal it is faint, and nothing behind it is."""
    assert [text for text, _ in shown([Piece("a", True), Piece("b", True)])] == ["[a", "b"]
    assert capsys.readouterr().out == "]\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert list(shown([Piece("a", True), Piece(""), Piece("b")])) == [("\x1b[2ma", ""), ("\x1b[0m\nb", "b")]


def test_reasoning_comes_apart_from_the_answer(tmp_path: Path) -> None:
    """In process and through HTTP the same, as pieces of two kinds."""
    example = next(each for each in EXAMPLES if each.name == "json_tags")
    plain: Tokenizer = tokenizer_of(vocabularies.byte_level(tmp_path / "plain.gguf", user_defined=()))
    with speaking(with_tokens(plain, example.tokens), example.frontend, template_of(example)) as spoken:
        spoken.device.says("<think>Hm.</think>Hello")
        pieces = [piece for piece in RemoteAssistant(spoken.server.url).reply(BODY) if piece.text]
        said = {kind: "".join(p.text for p in pieces if p.is_reasoning is kind) for kind in (True, False)}
        assert said == {True: "Hm.", False: "Hello"}
        local = LocalAssistant(spoken.server.engine)  # type: ignore[arg-type]
        pieces = [piece for piece in local.reply(BODY) if piece.text]
        assert said == {kind: "".join(p.text for p in pieces if p.is_reasoning is kind) for kind in (True, False)}
        local.close()


@pytest.mark.parametrize(("text", "problem"), [("{", "is not JSON"), (None, "schema.json")])
def test_a_schema_that_cannot_be_read_is_one_error(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "schema.json").write_text(text)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(HeliosError, match=problem):
        run(parser.parse_args(["--url", "http://127.0.0.1:1", "--schema", str(tmp_path / "schema.json")]))


def test_answers_follow_the_schema(typed: Callable[..., None], server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"enum": ["Hello world"]}')
    typed("hi")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = ["--schema", str(tmp_path / "schema.json"), "--reasoning-effort", "low", "--seed", "1"]
    assert run(parser.parse_args(["--url", server.url, *options])) == 0
    assert server.generation().request.constraint is not None


BODY = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "seed": None, "max_tokens": 50}


def test_a_server_answers_in_pieces(server: RunningServer) -> None:
    assistant = RemoteAssistant(server.url)
    server.engine.answer = "Hello wörld"
    assert text_of(assistant.reply(BODY)) == "Hello wörld"
    with pytest.raises(RemoteError, match="temperature must be a number"):
        list(assistant.reply({**BODY, "temperature": 7}))


def begun_answer(server: RunningServer) -> tuple[Generator[Piece, None, None], Any]:
    """An answer of which the opening chunk was read: a stream begins with its first token, so that one is given."""
    server.engine.answer = None
    (token_id,) = server.engine.tokenizer.encode("a", allow_special=False)
    pieces = RemoteAssistant(server.url).reply(BODY)
    giver = threading.Thread(target=lambda: server.generation().give(token_id))
    giver.start()
    assert next(pieces) == Piece("")
    giver.join()
    return pieces, server.generation()


def test_leaving_an_answer_cancels_it_on_the_server(server: RunningServer) -> None:
    pieces, generation = begun_answer(server)
    pieces.close()
    wait_until(lambda: generation.is_cancelled)


def test_a_server_that_is_not_there_or_goes_away_is_one_error(server: RunningServer) -> None:
    pieces, _ = begun_answer(server)
    server.stop()
    with pytest.raises(RemoteError):
        list(pieces)
    with pytest.raises(RemoteError, match="does not answer"):
        list(RemoteAssistant(server.url).reply(BODY))


def test_a_model_in_process_answers_like_a_server(engine: ScriptedEngine) -> None:
    assistant = LocalAssistant(engine)  # type: ignore[arg-type]
    assert text_of(assistant.reply(BODY)) == "Hello world"
    with pytest.raises(HeliosError, match="temperature"):
        list(assistant.reply({**BODY, "temperature": 7}))
    pieces = assistant.reply(BODY)
    next(pieces)
    pieces.close()
    assert engine.generations[-1].is_cancelled
    assert text_of(assistant.reply({**BODY, "stop": "wor"})) == "Hello "
    assistant.close()
    assert engine.is_closed
