"""Tokens to marked text up to a stop: strings through markup, tokens and sequences of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.enums import ReasoningSyntax
from helios.output.events import Ending
from helios.output.pipeline import OutputPipeline, host_stop
from helios.output.stops import TokenStopMatcher
from helios.output.syntax import AnswerSyntax
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import TOOLS, Answer, call_ids
from tests.output.conftest import Bound

TOKENS = st.integers(0, 2)
SEQUENCES = st.lists(st.lists(TOKENS, min_size=1, max_size=4), max_size=4)


@given(sequences=SEQUENCES, tokens=st.lists(TOKENS, max_size=30))
def test_the_sequence_that_ends_first_is_removed_and_no_more_is_held_than_may_become_one(
    sequences: list[list[int]], tokens: list[int]
) -> None:
    """STOP-4."""
    matcher = TokenStopMatcher(sequences)
    shown: list[int] = []
    for n_fed, token in enumerate(tokens, start=1):
        shown += matcher.push(token)
        fed = tokens[:n_fed]
        complete = [len(each) for each in sequences if fed[-len(each) :] == each]
        assert matcher.is_matched == bool(complete)
        if complete:
            assert shown == fed[: n_fed - max(complete)]
            assert matcher.push(token) == matcher.flush() == []
            return
        n_held = max((n for each in sequences for n in range(1, len(each)) if fed[-n:] == each[:n]), default=0)
        assert shown == fed[: n_fed - n_held]
    assert shown + matcher.flush() == tokens


def run(
    bound: Bound, text: str, *, stops: Sequence[str] = (), stop_sequences: Sequence[Sequence[int]] = ()
) -> tuple[Answer, Ending | None]:
    """The answer and its ending; the worker decides at every token as the presentation does."""
    pipeline = OutputPipeline(
        bound.tokenizer, stops, (), stop_sequences=stop_sequences, syntax=bound.syntax, tools=TOOLS, ids=call_ids()
    )
    decide = host_stop(bound.tokenizer, stops, stop_sequences, bound.syntax)
    answer = Answer()
    for token_id in bound.tokenizer.encode(text, allow_special=True):
        answer.add(pipeline.push(token_id))
        is_decided = decide is not None and decide(token_id)
        assert is_decided == pipeline.is_stopped
        if is_decided:
            break
    answer.add(pipeline.finish(Ending.LIMIT))
    return answer, pipeline.ending


@pytest.fixture(params=["tokens", "text"])
def qwen(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"function_tags-{request.param}"]


TEXT = "<think>\nabc\n</think>\n\nsay<tool_call>\n<function=noargs>\n</function>\n</tool_call>\nmore"


@pytest.mark.parametrize(
    ("stop", "reasoning", "content", "n_calls"),
    [
        ("bc", "a", "", 0),  # inside of reasoning
        ("ay", "abc", "s", 0),
        ("</think>", "abc\n", "", 0),  # the closer itself: removed, and nothing of it shown
        ("think>\n\n", "abc\n", "", 0),  # from inside of a closer, which is removed whole
        ("y<tool", "abc", "sa", 0),  # across a marker's beginning
        ("function=", "abc", "say", 0),
        ("ore", "abc", "say\nm", 1),  # an earlier completed call stays
        ("zzz", "abc", "say\nmore", 1),
    ],
)
def test_stops_are_matched_in_what_the_tokens_spell(
    qwen: Bound, stop: str, reasoning: str, content: str, n_calls: int
) -> None:
    """STOP-2, STOP-3: reasoning and tool envelopes included, before presentation."""
    answer, ending = run(qwen, TEXT, stops=(stop,))
    assert (answer.reasoning.rstrip("\n"), len(answer.made)) == (reasoning.rstrip("\n"), n_calls)
    assert answer.content == content.replace("\n", "", 1)
    assert ending is (Ending.STOP if stop in TEXT else Ending.LIMIT)


def test_a_token_sequence_ends_an_answer_and_is_not_shown(qwen: Bound) -> None:
    """STOP-4: a pending prefix is held, and shown when it turns out to be none."""
    ids = [qwen.tokenizer.encode(character, allow_special=False)[0] for character in "xyz"]
    for text, sequences, content, ending in (
        ("axyzb", [ids], "a", Ending.STOP),
        ("axyb", [ids], "axyb", Ending.LIMIT),
        ("axy", [ids], "axy", Ending.LIMIT),
        ("axyzb", [[ids[2]]], "axy", Ending.STOP),
        ("axxyzb", [ids, [ids[0], ids[1], ids[0]]], "ax", Ending.STOP),
    ):
        answer, found = run(qwen, text, stop_sequences=sequences)
        assert (answer.content, found) == (content, ending)


def test_a_stop_token_that_is_markup_is_not_shown(bound_by_name: dict[str, Bound]) -> None:
    """STOP-4."""
    bound = bound_by_name["function_tags-tokens"]
    closer = bound.tokenizer.token_id("</think>")
    assert closer is not None
    answer, ending = run(bound, "<think>\na</think>b", stop_sequences=[[closer]])
    assert (answer, ending) == (Answer(reasoning="a"), Ending.STOP)


def test_an_answer_keeps_the_space_of_its_first_word(sentencepiece: Tokenizer) -> None:
    """Research item 4: the answer continues a prompt, so "Say" and "hello" are two words, also for the stops."""
    hello = sentencepiece.token_id("\u2581hello")
    assert hello is not None
    answer = Answer()
    answer.add(OutputPipeline(sentencepiece, (), ()).push(hello))
    assert answer.content == " hello"
    decide = host_stop(sentencepiece, [" hello"])
    assert decide is not None
    assert decide(hello)


def test_half_a_character_before_a_stop_token_is_replaced(bound_by_name: dict[str, Bound]) -> None:
    """STOP-2: held bytes are flushed when a stop ends the text, as at any other end."""
    bound = bound_by_name["function_tags-text"]
    by_bytes = {bound.tokenizer.token_bytes(token_id): token_id for token_id in range(256)}
    pipeline = OutputPipeline(bound.tokenizer, (), (), stop_sequences=[[by_bytes[b"!"]]], syntax=bound.syntax)
    answer = Answer()
    for piece in (b"a", b"\xf0", b"\x9f", b"!"):
        answer.add(pipeline.push(by_bytes[piece]))
    assert answer.content == "a\ufffd"


def test_stops_of_a_plain_chat_are_watched_in_the_same_text(bound_by_name: dict[str, Bound]) -> None:
    """STOP-3: where nothing could be parsed, the worker and the presentation still spell control tokens alike."""
    bound = bound_by_name["function_tags-tokens"]
    frontend = replace(bound.example.frontend, reasoning_syntax=ReasoningSyntax.NONE, reasoning_markers=None)
    syntax = AnswerSyntax(frontend, bound.tokenizer)
    assert not syntax.is_parsed(has_tools=False)
    for stop in ("<|im_start|>", "m_start", "ab"):
        pipeline = OutputPipeline(bound.tokenizer, [stop], (), syntax=syntax)
        decide = host_stop(bound.tokenizer, [stop], (), syntax)
        assert decide is not None
        answer = Answer()
        for token_id in bound.tokenizer.encode("a<|im_start|>b", allow_special=True):
            answer.add(pipeline.push(token_id))
            assert decide(token_id) == pipeline.is_stopped
        answer.add(pipeline.finish(Ending.LIMIT))
        assert answer.content == ("ab" if stop == "ab" else "a")


@given(
    text=st.text(st.sampled_from("ab<>/think\n"), max_size=24),
    stops=st.lists(st.text(st.sampled_from("ab<>think/"), min_size=1, max_size=4), max_size=3),
)
def test_the_worker_and_the_presentation_stop_at_the_same_token(
    bound_by_name: dict[str, Bound], text: str, stops: list[str]
) -> None:
    """STOP-3: `run` compares them at every token."""
    for name in ("function_tags-tokens", "function_tags-text"):
        run(bound_by_name[name], text.replace("t", "</think>"), stops=tuple(stops))
