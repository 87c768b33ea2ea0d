"""Answers as the public templates render them, in every syntax and two vocabularies, whole and cut in every way."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.output.events import Ending
from helios.output.opening import open_answer
from helios.output.pipeline import OutputPipeline
from helios.output.syntax import AnswerSyntax
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import ARGUMENTS, EXAMPLES, TOOLS, Answer, Example, call_ids, cut, marked, read
from tests.output.conftest import Bound

CALLS = [("get_weather", ARGUMENTS), ("noargs", "{}")]


def check(answer: Answer) -> None:
    assert answer.reasoning == "Need it."
    assert answer.content == "Checking."
    assert answer.made == CALLS
    assert [call.call_id for call in answer.calls] == ["call_0", "call_1"]


@pytest.mark.parametrize("n_characters", [1, 3, 7, 100_000])
def test_rendered_answers_are_read_in_pieces_of_any_length(bound: Bound, n_characters: int) -> None:
    """FE-2, FE-6, T1, T17, A2."""
    text = marked(bound.example.answer, bound.tokenizer, bound.syntax)
    pieces = [text[start : start + n_characters] for start in range(0, len(text), n_characters)]
    check(read(pieces, bound.syntax, opening=bound.opening))


def test_rendered_answers_are_read_token_by_token(bound: Bound) -> None:
    """FE-7."""
    pipeline = OutputPipeline(
        bound.tokenizer, (), (), syntax=bound.syntax, tools=TOOLS, opening=bound.opening, ids=call_ids()
    )
    answer = Answer()
    for token_id in bound.tokenizer.encode(bound.example.answer, allow_special=True):
        answer.add(pipeline.push(token_id))
    answer.add(pipeline.finish(Ending.EOS))
    check(answer)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_rendered_answers_are_read_from_a_real_vocabulary(default_tokenizer: Tokenizer, example: Example) -> None:
    """FE-7: tokens of many characters, whose edges are not those of tags; no marker is one of them."""
    tokenizer = default_tokenizer
    syntax = AnswerSyntax(example.frontend, tokenizer)
    opening = open_answer(tokenizer.encode(example.prompt, allow_special=True), tokenizer, syntax)
    pipeline = OutputPipeline(tokenizer, (), (), syntax=syntax, tools=TOOLS, opening=opening, ids=call_ids())
    answer = Answer()
    for token_id in tokenizer.encode(example.answer, allow_special=False):
        answer.add(pipeline.push(token_id))
    answer.add(pipeline.finish(Ending.EOS))
    check(answer)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_rendered_answers_are_read_in_random_pieces(bound: Bound, cuts: list[int]) -> None:
    """T1."""
    text = marked(bound.example.answer, bound.tokenizer, bound.syntax)
    check(read(cut(text, cuts), bound.syntax, opening=bound.opening))


@pytest.mark.parametrize("ending", [Ending.LIMIT, Ending.EOS])
def test_an_answer_cut_off_anywhere_has_no_false_call_and_no_piece_of_markup(bound: Bound, ending: Ending) -> None:
    """T8, X4, A7, R6: what is there is a beginning of the whole; a call that was cut off has no end and is no JSON.

    One character that could begin anything, as "<" does, is text; and EOS stands for the closer of a call whose values are whole.
    """
    text = marked(bound.example.answer, bound.tokenizer, bound.syntax)
    for length in range(len(text)):
        answer = read([text[:length]], bound.syntax, opening=bound.opening, ending=ending)
        for said, whole in ((answer.reasoning, "Need it."), (answer.content, "Checking.")):
            assert whole.startswith(said.removesuffix("<").rstrip("\n"))
            assert not said.endswith("<") or text[:length].endswith("<")
        for call, (name, arguments) in zip(answer.calls, CALLS, strict=False):
            assert call.name == name
            is_closed_by_eos = ending is Ending.EOS and "argument_tags" in bound.example.name and call.is_complete
            assert arguments.startswith(call.arguments.removesuffix("}") if is_closed_by_eos else call.arguments)
            assert call.is_complete == (call.arguments == arguments) or is_closed_by_eos


def test_random_markup_is_read_the_same_however_it_is_cut(bound: Bound) -> None:
    """T1, T6: any mixture of markup and text, in any pieces; no character of a token ever comes out."""
    pieces = _pieces(bound)

    @settings(max_examples=60)
    @given(
        parts=st.lists(st.sampled_from(pieces), max_size=14),
        cuts=st.lists(st.integers(0, 500), max_size=8),
        ending=st.sampled_from([Ending.LIMIT, Ending.EOS, Ending.CANCELLED]),
    )
    def reads_the_same(parts: list[str], cuts: list[int], ending: Ending) -> None:
        text = marked("".join(parts), bound.tokenizer, bound.syntax)
        whole = read([text], bound.syntax, opening=bound.opening, ending=ending)
        assert whole == read(list(text), bound.syntax, opening=bound.opening, ending=ending)
        assert whole == read(cut(text, cuts), bound.syntax, opening=bound.opening, ending=ending)
        said = whole.reasoning + whole.content + "".join(call.name + call.arguments for call in whole.calls)
        said.encode()

    reads_the_same()


def _pieces(bound: Bound) -> list[str]:
    """The answer's own pieces: its tags, what stands between them, and half tags."""
    tags = re.split(r"(<[^>]*>)", bound.example.answer)
    return sorted({*tags, *(tag[: len(tag) // 2] for tag in tags), " ", "\n", "<", "a", '"', "{", "}"} - {""})
