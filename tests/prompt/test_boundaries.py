"""Where prompts may be cut for others to go on from: by the core's rules, and only where the prompt really begins so (FE-4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.enums import MessageRole, ReasoningSyntax, RenderingConstraint, ToolSyntax
from helios.prompt.boundaries import PrefixBoundaries
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation, Message
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import CHAT, frontend
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

Rules = Mapping[MessageRole, RenderingConstraint]
SYSTEM, USER, ASSISTANT = MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT
NONE, CLOSED = RenderingConstraint.NONE, RenderingConstraint.CLOSED
WITHOUT_REASONING = RenderingConstraint.WITHOUT_REASONING

TURN = "<|im_start|>{{ message.role }}\n{{ message.reasoning or '' }}{{ message.content }}<|im_end|>\n"
OPENING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = f"{{% for message in messages %}}{TURN}{{% endfor %}}{OPENING}"
COUNTING = "{{ messages | length }}" + PLAIN
OPEN = PLAIN.replace("<|im_end|>", "{% if not loop.last %}<|im_end|>{% endif %}")
WANTS_USER = "{% if messages[-1].role != 'user' %}{{ raise_exception('no user') }}{% endif %}" + PLAIN

TALK = (
    Message("system", "be brief"),
    Message("user", "hi"),
    Message("assistant", "hello", reasoning="hm"),
    Message("user", "what now?"),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "boundaries.gguf"
    return tokenizer_of(vocabularies.byte_level(path, control=("<|im_end|>", "<|im_start|>")))


@pytest.fixture(scope="module")
def heads(tokenizer: Tokenizer) -> Callable[..., list[str]]:
    """The texts before the cuts of a conversation's prompt."""

    def heads_of(
        rules: Rules,
        source: str = PLAIN,
        messages: tuple[Message, ...] = TALK,
        *,
        end: str = "<|im_end|>",
        goes_on: bool = False,
    ) -> list[str]:
        talk = Conversation(messages, adds_generation_prompt=not goes_on, continues_final_message=goes_on)
        template = ChatTemplate(
            source, ControlTokens(tokenizer), bos_text="", eos_text="", clock=lambda: datetime(2031, 2, 3)
        )
        declared = dataclasses.replace(
            frontend(ToolSyntax.NONE, None, ReasoningSyntax.NONE, None, dataclasses.replace(CHAT, message_end=end)),
            prefix_boundaries=tuple(rules.items()),
        )
        tokens = template.encode(talk)
        cuts = PrefixBoundaries(declared, template, tokenizer).of(talk, tokens)
        assert cuts == tuple(sorted(set(cuts)))
        assert all(0 < cut < len(tokens) for cut in cuts)
        return [tokenizer.decode(tokens[:cut]) for cut in cuts]

    return heads_of


def turns(n_messages: int) -> str:
    return "".join(f"<|im_start|>{m.role}\n{m.reasoning or ''}{m.content}<|im_end|>\n" for m in TALK[:n_messages])


@pytest.mark.parametrize(
    ("rules", "n_messages"),
    [
        ({}, []),
        ({SYSTEM: NONE}, [1]),
        ({USER: NONE}, [2, 4]),
        ({SYSTEM: CLOSED, USER: CLOSED}, [1, 4]),
        ({ASSISTANT: CLOSED}, [3]),
        ({ASSISTANT: WITHOUT_REASONING}, []),
        ({USER: WITHOUT_REASONING, ASSISTANT: WITHOUT_REASONING}, [2, 4]),
        ({MessageRole.TOOL: NONE}, []),
    ],
)
def test_the_first_and_the_last_message_with_a_rule_are_boundaries(
    heads: Callable[..., list[str]], rules: Rules, n_messages: list[int]
) -> None:
    """FE-4: a role without a rule is none; nor is what later turns leave out."""
    assert heads(rules) == [turns(n) for n in n_messages]


@pytest.mark.parametrize("source", [COUNTING, WANTS_USER])
def test_a_prompt_that_does_not_begin_with_its_first_messages_alone_is_not_cut_there(
    heads: Callable[..., list[str]], source: str
) -> None:
    """How they are rendered depends on what follows, or the template does not take them alone."""
    assert len(heads({SYSTEM: NONE, USER: NONE}, PLAIN)) == 2
    assert len(heads({SYSTEM: NONE, USER: NONE}, source)) == 1
    assert len(heads({SYSTEM: NONE}, source)) == 0


def test_a_message_that_is_left_open_has_no_closed_boundary(heads: Callable[..., list[str]]) -> None:
    assert len(heads({SYSTEM: NONE, USER: NONE}, OPEN)) == 2
    assert heads({SYSTEM: CLOSED, USER: CLOSED}, OPEN) == []


@pytest.mark.parametrize("end", ["", "<|im_start|>"])
def test_a_message_whose_end_is_not_seen_is_not_closed(heads: Callable[..., list[str]], end: str) -> None:
    assert heads({SYSTEM: CLOSED, USER: CLOSED}, end=end) == []
    assert heads({SYSTEM: NONE, USER: NONE}, end=end) == [turns(1), turns(4)]


def test_a_message_that_is_continued_is_no_boundary(heads: Callable[..., list[str]]) -> None:
    messages = (*TALK, Message("assistant", "now"))
    assert heads({SYSTEM: CLOSED, ASSISTANT: CLOSED}, messages=messages, goes_on=True) == [turns(1)]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.text(max_size=8))
def test_the_next_prompt_of_a_conversation_begins_with_what_is_before_the_last_cut(
    heads: Callable[..., list[str]], contents: list[str], answer: str
) -> None:
    """Whatever people write, markers included."""
    first = tuple(Message("user", content) for content in contents)
    *_, before = heads({USER: CLOSED}, messages=first)
    *_, after = heads({USER: CLOSED}, messages=(*first, Message("assistant", answer), Message("user", "and?")))
    assert after.startswith(before)
