"""Reasoning between think tags: where it begins and ends, and what is only spelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.contract.enums import ReasoningSyntax
from helios.output.events import Ending
from helios.output.pipeline import OutputPipeline
from helios.output.syntax import AnswerSyntax
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, Answer, marked, read, with_tokens
from tests.output.conftest import Bound

CALL = "<tool_call>\n<function=noargs>\n</function>\n</tool_call>"


@pytest.fixture(params=["tokens", "text"])
def qwen(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"function_tags-{request.param}"]


def parts(answer: Answer) -> tuple[str, str, list[str]]:
    return answer.reasoning, answer.content, [name for name, _ in answer.made]


def test_a_closer_with_content_and_a_call_in_one_delta(qwen: Bound) -> None:
    """R1, R2."""
    answer = qwen.said(f"<think>\nwhy\n</think>\n\nso\n\n{CALL}")
    assert parts(answer) == ("why", "so", ["noargs"])


def test_a_delimiter_that_is_a_token_is_not_its_spelling(qwen: Bound) -> None:
    """R3, FE-3: spelled with ordinary tokens it stays text, in reasoning and in content."""
    spelled = "<think>\na" + "</think>"
    tokens = qwen.marked("<think>\na")
    for pieces in ([tokens + "</think>b"], [tokens, *"</think>b"]):
        answer = read(pieces, qwen.syntax)
        if qwen.has_tokens:
            assert parts(answer) == ("a</think>b", "", [])
        else:
            assert parts(answer) == ("a", "b", [])
    assert parts(qwen.said(spelled + "b")) == ("a", "b", [])


def test_a_second_closer_is_dropped_as_a_token_and_kept_as_text(qwen: Bound) -> None:
    """R4, FE-3."""
    answer = qwen.said("<think>a</think>b</think>c")
    assert parts(answer) == ("a", "bc" if qwen.has_tokens else "b</think>c", [])


def test_an_opener_that_the_prompt_already_holds_is_dropped_once_more(qwen: Bound) -> None:
    """R5."""
    opening = qwen.marked("<think>\n")
    assert parts(qwen.said("<think>\na</think>b", opening=opening)) == ("a", "b", [])
    assert parts(qwen.said("a<think>b</think>c", opening=opening)) == ("a<think>b", "c", [])


@pytest.mark.parametrize("ending", [Ending.EOS, Ending.LIMIT])
def test_reasoning_that_never_closes_is_all_reasoning(qwen: Bound, ending: Ending) -> None:
    """R6."""
    assert parts(qwen.said("<think>\nso long", ending=ending)) == ("so long", "", [])


def test_the_declared_tool_opener_ends_reasoning(qwen: Bound) -> None:
    """R7, FE-2; prose about the tag does not, nor does a call when there are no tools (T10)."""
    assert parts(qwen.said(f"<think>\na\n\n{CALL}")) == ("a", "", ["noargs"])
    assert parts(qwen.said("<think>a <tool_call> is a tag</think>b")) == ("a <tool_call> is a tag", "b", [])
    assert parts(qwen.said(f"<think>a{CALL}</think>b", tools=None)) == (f"a{CALL}", "b", [])


def test_the_closer_may_still_follow_a_call_that_ended_reasoning(qwen: Bound) -> None:
    """R4, R7: it is markup; reasoning does not open again."""
    assert parts(qwen.said(f"<think>a{CALL}\n</think>\n\nb")) == ("a", "b", ["noargs"])
    assert parts(qwen.said(f"<think>a{CALL}\n</think>")) == ("a", "", ["noargs"])


def test_a_tool_opener_that_is_not_declared_stays_reasoning(plain_tokenizer: Tokenizer) -> None:
    """R7, FE-2: drafts of calls in reasoning are prose."""
    frontend = EXAMPLES[0].frontend
    assert frontend.reasoning_markers is not None
    undeclared = replace(frontend, reasoning_markers=replace(frontend.reasoning_markers, terminal_markers=()))
    answer = read([f"<think>a{CALL}</think>b{CALL}"], AnswerSyntax(undeclared, plain_tokenizer))
    assert parts(answer) == (f"a{CALL}", "b", ["noargs"])


def test_text_before_the_opener_is_content(qwen: Bound) -> None:
    """R8."""
    assert parts(qwen.said("well <think>\na</think>b")) == ("a", "well b", [])


def test_reasoning_opens_once(qwen: Bound) -> None:
    """R9: a later opener is text, and so is what follows it."""
    answer = qwen.said("<think>a</think>b <think>c")
    assert parts(answer) == ("a", "b <think>c", [])


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>a</think>b", "a", "b"),
        ("<think>\na\n</think>\n\nb", "a", "b"),
        ("<think>\n\na\n\n</think>\n\n\nb", "\na\n", "\nb"),
        ("<think>\n</think>\nb", "", "b"),
        ("<think> a </think> b", " a ", " b"),
        ("<think>\n\n</think>\n\nb\n", "", "b\n"),
    ],
)
def test_as_many_newlines_as_the_data_says_belong_to_the_tags(
    qwen: Bound, text: str, reasoning: str, content: str
) -> None:
    """R10, FE-2."""
    assert parts(qwen.said(text)) == (reasoning, content, [])


def test_newlines_that_the_prompt_holds_are_not_expected_again(qwen: Bound) -> None:
    """R10, R13: thinking switched off by an empty pair in the prompt, with one of its two newlines."""
    opening = qwen.marked("<think>\n\n</think>\n")
    assert parts(qwen.said("\n\nb", opening=opening)) == ("", "\nb", [])


def test_a_character_cut_by_a_delimiter_is_replaced_on_its_side(bound_by_name: dict[str, Bound]) -> None:
    """R11: half a character in front of the token stays in front of it."""
    bound = bound_by_name["function_tags-tokens"]
    by_bytes = {bound.tokenizer.token_bytes(token_id): token_id for token_id in range(256)}
    half = [by_bytes[bytes([byte])] for byte in "😀".encode()[:2]]
    ids = [
        *bound.tokenizer.encode("<think>", allow_special=True),
        *half,
        *bound.tokenizer.encode("</think>", allow_special=True),
        *bound.tokenizer.encode("é", allow_special=False),
    ]
    pipeline = OutputPipeline(bound.tokenizer, (), (), syntax=bound.syntax)
    answer = Answer()
    for token_id in ids:
        answer.add(pipeline.push(token_id))
    answer.add(pipeline.finish(Ending.EOS))
    assert parts(answer) == ("\ufffd", "é", [])


def test_structured_content_is_opaque(qwen: Bound) -> None:
    """FE-3: literal delimiters inside a structured answer are answer text; a call may still come instead (S4)."""
    document = '{"a": "<think></think><tool_call>\n<function=noargs></function></tool_call>"}'
    assert parts(qwen.said(f"<think>\na\n</think>\n\n{document}", is_structured=True)) == ("a", document, [])
    assert parts(qwen.said(document, is_structured=True)) == ("", document, [])
    assert parts(qwen.said(f"<think>a</think>{CALL}", is_structured=True)) == ("a", "", ["noargs"])


def test_a_model_without_reasoning_takes_its_tags_for_text(plain_tokenizer: Tokenizer) -> None:
    """FE-2: tool syntaxes stand without reasoning too; what a grammar constrains is as opaque there (FE-3)."""
    frontend = replace(EXAMPLES[0].frontend, reasoning_syntax=ReasoningSyntax.NONE, reasoning_markers=None)
    for tokenizer in (plain_tokenizer, with_tokens(plain_tokenizer, EXAMPLES[0].tokens)):
        syntax = AnswerSyntax(frontend, tokenizer)
        text = marked(f"<think>a</think>b{CALL}", tokenizer, syntax)
        assert parts(read([text], syntax)) == parts(read(list(text), syntax)) == ("", "<think>a</think>b", ["noargs"])
        assert parts(read([text], syntax, is_structured=True)) == ("", f"<think>a</think>b{CALL}", [])
        call = marked(f"\n\n{CALL}", tokenizer, syntax)
        assert parts(read([call], syntax, is_structured=True)) == ("", "", ["noargs"])
