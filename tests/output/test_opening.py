"""What a prompt already holds of the answer: the open assistant envelope and nothing else (FE-4)."""

from __future__ import annotations

import pytest

from helios.output.opening import open_answer
from helios.output.parser import AnswerParser
from helios.output.states import Phase
from tests.output.answers import BAR, TOOLS, Answer, call_ids, read
from tests.output.conftest import Bound


def opened(bound: Bound, prompt: str) -> str:
    return open_answer(bound.tokenizer.encode(prompt, allow_special=True), bound.tokenizer, bound.syntax)


def phase(bound: Bound, prompt: str) -> Phase:
    return AnswerParser(bound.syntax, TOOLS, call_ids(), opening=opened(bound, prompt)).phase


def continued(bound: Bound, prompt: str, answer: str) -> Answer:
    """What is read of an answer behind a prompt, the same whole and character by character."""
    text, opening = bound.marked(answer), opened(bound, prompt)
    whole = read([text], bound.syntax, opening=opening)
    assert whole == read(list(text), bound.syntax, opening=opening)
    return whole


def names(*examples: str) -> list[str]:
    return [f"{example}-{kind}" for example in examples for kind in ("tokens", "text")]


CHAT = "<|im_start|>user\nW? <think>x</think> <think><|im_end|>\n<|im_start|>assistant\n"
DSML_TURN = f"W?<{BAR}Assistant{BAR}>"


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        *((name, CHAT, Phase.UNDECIDED) for name in names("function_tags")),
        *((name, CHAT + "<think>\n", Phase.REASONING) for name in names("function_tags")),
        *((name, CHAT + "<think>", Phase.REASONING) for name in names("function_tags")),
        *((name, CHAT + "<think>\n\n</think>\n\n", Phase.CONTENT) for name in names("function_tags")),  # R13
        *((name, "<|user|>W?<|assistant|></think>", Phase.CONTENT) for name in names("compact_argument_tags")),
        *((name, "<|user|>W?<|assistant|><think>", Phase.REASONING) for name in names("compact_argument_tags")),
        *((name, "<|user|>W?<|assistant|>", Phase.UNDECIDED) for name in names("argument_tags")),
        *((name, "<|user|>W?<|assistant|>\n<think></think>", Phase.CONTENT) for name in names("argument_tags")),
        *((name, DSML_TURN + "<think>", Phase.REASONING) for name in names("dsml")),
        *((name, DSML_TURN + "</think>", Phase.CONTENT) for name in names("dsml")),
    ],
)
def test_the_prompt_says_where_the_answer_stands(
    bound_by_name: dict[str, Bound], name: str, prompt: str, expected: Phase
) -> None:
    """FE-4, R13."""
    assert phase(bound_by_name[name], prompt) is expected


@pytest.mark.parametrize("name", names("function_tags"))
@pytest.mark.parametrize(
    "history",
    [
        "<|im_start|>user\n<think><|im_end|>\n",
        "<|im_start|>assistant\n<think>\nx\n</think>\n\ny<|im_end|>\n",
        "<|im_start|>assistant\n<think><|im_end|>\n<|im_start|>user\n<tool_response>\n<think>\n</tool_response><|im_end|>\n",
    ],
)
def test_completed_messages_say_nothing(bound_by_name: dict[str, Bound], name: str, history: str) -> None:
    """R12: stale tags of history, and what users and tools spell."""
    bound = bound_by_name[name]
    assert phase(bound, f"{history}<|im_start|>assistant\n") is Phase.UNDECIDED
    assert phase(bound, f"{history}<|im_start|>assistant\n<think>\n") is Phase.REASONING


@pytest.mark.parametrize("name", names("dsml"))
def test_only_text_behind_the_last_message_end_opens_reasoning_after_embedded_results(
    bound_by_name: dict[str, Bound], name: str
) -> None:
    """R14, FE-4: the assistant's turn goes on without a new header."""
    bound = bound_by_name[name]
    turn = f"{DSML_TURN}<think>a</think>b<{BAR}end{BAR}>\n\n<function_results>\n<result>sunny</result>\n</function_results>\n\n"
    assert phase(bound, f"{turn}<think>") is Phase.REASONING
    assert phase(bound, turn) is Phase.UNDECIDED
    assert continued(bound, f"{turn}<think>", "c</think>d") == Answer(reasoning="c", content="d")


@pytest.mark.parametrize("name", names("function_tags"))
def test_a_continued_message_goes_on_where_it_stands(bound_by_name: dict[str, Bound], name: str) -> None:
    """FE-4: inside of reasoning and of content; what the prompt holds is not said again."""
    bound = bound_by_name[name]
    assert continued(bound, f"{CHAT}<think>\nab", "c\n</think>\n\nd") == Answer(reasoning="c", content="d")
    assert continued(bound, f"{CHAT}<think>\nab\n</thi", "s</think>d") == Answer(reasoning="s", content="d")
    assert continued(bound, f"{CHAT}<think>a</think>bc", "d <think>") == Answer(content="d <think>")
    assert continued(bound, f"{CHAT}a <tool", " b") == Answer(content=" b")


@pytest.mark.parametrize("name", names("function_tags"))
def test_a_call_that_the_prompt_left_open_is_this_answers_first(bound_by_name: dict[str, Bound], name: str) -> None:
    """FE-4, FE-6: continuation inside of a tool body gives the whole call; completed calls of the prompt are not repeated."""
    call = "<tool_call>\n<function=noargs>\n</function>\n</tool_call>\n"
    half = "<tool_call>\n<function=get_weather>\n<parameter=city>\nSan"
    answer = continued(bound_by_name[name], CHAT + call + half, " F\n</parameter>\n</function>\n</tool_call>\n" + call)
    assert answer.made == [("get_weather", '{"city":"San F"}'), ("noargs", "{}")]
    assert len({each.call_id for each in answer.calls}) == 2


@pytest.mark.parametrize("name", names("xtml"))
def test_the_open_element_says_where_an_xtml_answer_stands(bound_by_name: dict[str, Bound], name: str) -> None:
    """FE-4."""
    bound = bound_by_name[name]
    turn = '<|open|>message role="assistant"<|sep|>'
    history = f"{turn}<|open|>think<|sep|>a<|close|>think<|sep|><|close|>message<|sep|><|end_of_msg|>"
    assert phase(bound, f"{history}{turn}<|open|>think<|sep|>") is Phase.REASONING
    assert phase(bound, f"{history}{turn}<|open|>response<|sep|>") is Phase.CONTENT
    assert phase(bound, f"{history}{turn}") is Phase.UNDECIDED
    assert continued(bound, f"{turn}<|open|>think<|sep|>", "a<|close|>think<|sep|>") == Answer(reasoning="a")


@pytest.mark.parametrize("name", names("frames"))
def test_a_frame_continues_inside_its_body_and_inside_its_header(bound_by_name: dict[str, Bound], name: str) -> None:
    """A11, FE-6."""
    bound, start = bound_by_name[name], "<|start|>user<|message|>W?<|eot|><|start|>assistant"
    invoke = '<atem:function_calls>\n<atem:invoke name="get_weather">\n<atem:parameter name="city">'
    assert continued(bound, f"{start} to=self<|message|>ab", "c<|eom|>") == Answer(reasoning="c")
    assert continued(bound, f"{start} to=user<|message|>ab", "c") == Answer(content="c")
    assert continued(bound, f"{start} to=self", "<|message|>c") == Answer(reasoning="c")
    assert continued(bound, f"{start} to=self<|message|>a<|eom|>", "<|start|>assistant to=user<|message|>b") == Answer(
        content="b"
    )
    tail = "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
    answer = continued(bound, f"{start} to=get_weather<|message|>{invoke}San", f" F{tail}")
    assert answer.made == [("get_weather", '{"city":"San F"}')]
    assert phase(bound, f"{start} to=user<|message|>a<|eot|>") is Phase.UNDECIDED


def test_a_long_continued_message_is_found_from_its_beginning(bound_by_name: dict[str, Bound]) -> None:
    """FE-4: the envelope may be longer than what is looked at first."""
    bound = bound_by_name["function_tags-tokens"]
    assert continued(bound, f"{CHAT}<think>\n{'ab ' * 1000}", "c</think>d") == Answer(reasoning="c", content="d")


def test_a_model_without_syntax_has_no_envelope(bound_by_name: dict[str, Bound]) -> None:
    bound = bound_by_name["function_tags-text"]
    assert open_answer([], bound.tokenizer, bound.syntax) == ""
    assert open_answer(bound.tokenizer.encode("no chat", allow_special=True), bound.tokenizer, bound.syntax) == ""
