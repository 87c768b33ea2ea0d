"""Tokens to shown text, presented and decided by two instances of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.enums import ReasoningSyntax, ToolSyntax
from helios.output.events import ContentDelta, Ending, OutputEvent
from helios.output.pipeline import OutputPipeline, host_stop
from helios.output.syntax import AnswerSyntax
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import frontend
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("vocabulary") / "output.gguf"
    return tokenizer_of(vocabularies.byte_level(path))


def byte_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token a byte."""
    by_bytes = {tokenizer.token_bytes(token_id): token_id for token_id in range(256)}
    return [by_bytes[bytes([byte])] for byte in text.encode()]


def text_of(events: list[OutputEvent]) -> str:
    assert all(isinstance(event, ContentDelta) for event in events)
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def end_of(tokenizer: Tokenizer) -> int:
    token_id = tokenizer.token_id("<|end|>")
    assert token_id is not None
    return token_id


@given(text=st.text(max_size=30), stops=st.lists(st.text(min_size=1, max_size=3), max_size=4))
def test_worker_and_presentation_end_at_the_same_token(tokenizer: Tokenizer, text: str, stops: list[str]) -> None:
    """STOP-3."""
    pipeline = OutputPipeline(tokenizer, stops, [end_of(tokenizer)])
    decide = host_stop(tokenizer, stops)
    shown = ""
    for token_id in byte_ids(tokenizer, text):
        shown += text_of(pipeline.push(token_id))
        is_decided = decide is not None and decide(token_id)
        assert is_decided == pipeline.is_stopped == pipeline.is_done
        if is_decided:
            break
    else:
        shown += text_of(pipeline.push(end_of(tokenizer)))
    assert pipeline.is_done
    assert text.startswith(shown)
    assert (shown == text) is not pipeline.is_stopped
    assert all(stop not in shown for stop in stops)


def test_no_stops_need_no_decision(tokenizer: Tokenizer) -> None:
    """Without stops the worker may run ahead, so there must be nothing to ask."""
    assert host_stop(tokenizer, ()) is None


def test_characters_appear_when_their_last_byte_does(tokenizer: Tokenizer) -> None:
    """Research item 1."""
    pipeline = OutputPipeline(tokenizer, (), ())
    assert [text_of(pipeline.push(token_id)) for token_id in byte_ids(tokenizer, "é😀")] == ["", "é", "", "", "", "😀"]


def test_eos_shows_nothing_and_releases_what_was_held(tokenizer: Tokenizer) -> None:
    """STOP-2: EOS or the limit flushes an unmatched prefix."""
    for is_eos in (True, False):
        pipeline = OutputPipeline(tokenizer, ["END"], [end_of(tokenizer)])
        shown = "".join(text_of(pipeline.push(token_id)) for token_id in byte_ids(tokenizer, "x EN"))
        assert shown == "x "
        last = pipeline.push(end_of(tokenizer)) if is_eos else pipeline.finish(Ending.LIMIT)
        assert text_of(last) == "EN"
        assert pipeline.ending is (Ending.EOS if is_eos else Ending.LIMIT)
        assert pipeline.is_done
        assert not pipeline.is_stopped
        assert pipeline.push(5) == pipeline.finish(Ending.CANCELLED) == []


def test_an_unfinished_character_ends_as_a_replacement_that_a_stop_can_match(tokenizer: Tokenizer) -> None:
    tail = byte_ids(tokenizer, "😀")[:2]
    for stops, shown in (((), "a\ufffd"), (("\ufffd",), "a")):
        pipeline = OutputPipeline(tokenizer, stops, ())
        text = "".join(text_of(pipeline.push(token_id)) for token_id in (*byte_ids(tokenizer, "a"), *tail))
        assert text + text_of(pipeline.finish(Ending.LIMIT)) == shown
        assert pipeline.is_stopped is bool(stops)


def test_nothing_of_a_token_is_shown_after_the_stop_inside_it(tokenizer: Tokenizer) -> None:
    """STOP-2: inside one token too."""
    (hello,) = tokenizer.encode("hello", allow_special=False)
    pipeline = OutputPipeline(tokenizer, ["ll"], ())
    assert text_of(pipeline.push(hello)) == "he"
    assert pipeline.is_stopped


def test_a_model_without_syntaxes_says_plain_content(tokenizer: Tokenizer) -> None:
    """FE-7: nothing is parsed, whatever is spelled; with stops the parser that is then used changes nothing."""
    syntax = AnswerSyntax(frontend(ToolSyntax.NONE, None, ReasoningSyntax.NONE, None, None), tokenizer)
    assert not syntax.is_parsed(has_tools=False)
    text = "<think>a</think><tool_call>{"
    for stops in ((), ("zzz",)):
        pipeline = OutputPipeline(tokenizer, stops, (), syntax=syntax, tools={"f": {}})
        shown = "".join(text_of(pipeline.push(token_id)) for token_id in byte_ids(tokenizer, text))
        assert shown + text_of(pipeline.finish(Ending.EOS)) == text


@pytest.mark.parametrize("ending", [Ending.LIMIT, Ending.CANCELLED, Ending.FAULT])
def test_each_ending_is_told_apart_and_a_fault_gives_out_nothing_more(tokenizer: Tokenizer, ending: Ending) -> None:
    """FE-7."""
    pipeline = OutputPipeline(tokenizer, ["END"], ())
    pipeline.push(byte_ids(tokenizer, "E")[0])
    assert text_of(pipeline.finish(ending)) == ("" if ending is Ending.FAULT else "E")
    assert pipeline.ending is ending
    assert pipeline.finish(Ending.EOS) == []
    assert pipeline.ending is ending
