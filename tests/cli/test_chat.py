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
from helios.cli.main import main
from helios.cli.piece import Piece, shown
from helios.cli.remote import RemoteAssistant
from helios.cli.streams import Endpoint
from helios.errors import HeliosError, RemoteError
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, with_tokens
from tests.server.certificates import make_certificate
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
        pieces = [piece for piece in remote(spoken.server).reply(BODY) if piece.text]
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


KEY = "sk-secret-of-this-test"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "seed": None, "max_tokens": 50}


def remote(server: RunningServer) -> RemoteAssistant:
    return RemoteAssistant(Endpoint.from_url(server.url))


@pytest.fixture
def guarded(
    start_server: Callable[..., RunningServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunningServer:
    """Speaks TLS with a certificate that this process trusts, and wants the key KEY."""
    certificate = make_certificate(tmp_path / "certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
    monkeypatch.delenv("HELIOS_API_KEY", raising=False)
    (tmp_path / "keys").write_text(f"{KEY}\n")
    (tmp_path / "keys").chmod(0o600)
    return start_server(api_key_file=str(tmp_path / "keys"), **certificate.settings)


@pytest.mark.parametrize("is_flag", [True, False])
def test_a_server_with_tls_and_a_key_is_talked_to(
    guarded: RunningServer,
    typed: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_flag: bool,
) -> None:
    """The key is given by flag or by environment, where the flag wins, and is printed nowhere."""
    typed("hi")
    monkeypatch.setenv("HELIOS_API_KEY", "sk-wrong" if is_flag else KEY)
    assert main(["chat", "--url", guarded.url, *(["--api-key", KEY] if is_flag else [])]) == 0
    printed = "".join(capsys.readouterr())
    assert "Hello world" in printed
    assert KEY not in printed
    assert KEY not in repr(Endpoint.from_url(guarded.url, KEY))


@pytest.mark.parametrize("key", [None, "sk-wrong"])
def test_a_key_that_is_missing_or_wrong_is_the_servers_own_message(
    guarded: RunningServer, typed: Callable[..., None], capsys: pytest.CaptureFixture[str], key: str | None
) -> None:
    typed("hi")
    assert main(["chat", "--url", guarded.url, *(["--api-key", key] if key else [])]) == 0
    printed = "".join(capsys.readouterr())
    assert "API key" in printed
    assert "Hello" not in printed
    assert "sk-wrong" not in printed


def test_a_certificate_that_nobody_vouches_for_is_not_taken(
    guarded: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(RemoteError, match="certificate verify failed"):
        list(RemoteAssistant(Endpoint.from_url(guarded.url, KEY)).reply(BODY))


@pytest.mark.parametrize(
    "words", [["--api-key", KEY], ["--url", "http://127.0.0.1:9", "--api-key", "sk-secret\nX-Other: 1"]]
)
@pytest.mark.parametrize("verb", ["chat", "bench"])
def test_a_key_that_cannot_be_sent_is_refused(verb: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *words]) == 2
    assert "sk-secret" not in "".join(capsys.readouterr())


def test_streams_are_timed_through_tls_with_a_key(guarded: RunningServer) -> None:
    """What `helios bench` takes its figures from."""
    endpoint = Endpoint.from_url(guarded.url, KEY)
    assert endpoint.get("/v1/models", timeout_s=60)[0] == 200
    body = {**BODY, "stream_options": {"include_usage": True}}
    del body["seed"]
    timelines = endpoint.stream([body] * 3, timeout_s=60)
    assert [timeline.text for timeline in timelines] == ["Hello world"] * 3
    with pytest.raises(RemoteError, match="API key"):
        Endpoint.from_url(guarded.url, "sk-wrong").stream([body], timeout_s=60)


def test_a_server_answers_in_pieces(server: RunningServer) -> None:
    assistant = remote(server)
    server.engine.answer = "Hello wörld"
    assert text_of(assistant.reply(BODY)) == "Hello wörld"
    with pytest.raises(RemoteError, match="temperature must be a number"):
        list(assistant.reply({**BODY, "temperature": 7}))


def begun_answer(server: RunningServer) -> tuple[Generator[Piece, None, None], Any]:
    """An answer of which the opening chunk was read: a stream begins with its first token, so that one is given."""
    server.engine.answer = None
    (token_id,) = server.engine.tokenizer.encode("a", allow_special=False)
    pieces = remote(server).reply(BODY)
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
        list(remote(server).reply(BODY))


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
