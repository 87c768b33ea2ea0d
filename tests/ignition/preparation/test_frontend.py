"""What a template says of its syntax, and the preamble that gives tools to a template without any."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from helios.contract.schema import contract_pb2 as pb
from helios.errors import CheckpointError
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.frontend import declare_frontend
from helios.ignition.preparation.tokenizer import TokenizerFacts, prepare_tokenizer
from helios.ignition.preparation.tool_preamble import with_tool_preamble
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation, Message, ToolCall
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

CHATML = (
    "\n  {% for message in messages %}\n{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}


def facts(template: str | None, **changes: object) -> TokenizerFacts:
    fields = {
        "vocabulary_size": 9,
        "bos_token": 1,
        "eos_token": 2,
        "eot_token": None,
        "end_tokens": (2,),
        "bos_text": "<s>",
    }
    return TokenizerFacts(**(fields | {"eos_text": "</s>", "adds_bos": False, "chat_template": template} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "tools", "reasoning"),
    [
        (None, pb.TOOL_SYNTAX_NONE, pb.REASONING_SYNTAX_NONE),
        ("{{ messages[0].content }}", pb.TOOL_SYNTAX_NONE, pb.REASONING_SYNTAX_NONE),
        (CHATML, pb.TOOL_SYNTAX_JSON_TAGS, pb.REASONING_SYNTAX_NONE),
        (CHATML + "{{ tools }}", pb.TOOL_SYNTAX_NONE, pb.REASONING_SYNTAX_NONE),
        (CHATML + "{{ tools }}<tool_call>", pb.TOOL_SYNTAX_JSON_TAGS, pb.REASONING_SYNTAX_NONE),
        (CHATML + "{{ tools }}<tool_call><function=", pb.TOOL_SYNTAX_FUNCTION_TAGS, pb.REASONING_SYNTAX_NONE),
        (CHATML + "{{ tools }}<tool_call><arg_key>", pb.TOOL_SYNTAX_ARGUMENT_TAGS, pb.REASONING_SYNTAX_NONE),
        (CHATML + "<think></think>", pb.TOOL_SYNTAX_JSON_TAGS, pb.REASONING_SYNTAX_THINK_TAGS),
        ("<|start_header_id|>{{ tools }}", pb.TOOL_SYNTAX_NONE, pb.REASONING_SYNTAX_NONE),
    ],
)
def test_a_template_tells_its_syntax(template: str | None, tools: int, reasoning: int) -> None:
    """FE-1, FE-2: syntax is data; what is not recognised is none."""
    frontend, _ = declare_frontend(facts(template))
    assert (frontend.tool_syntax, frontend.reasoning_syntax) == (tools, reasoning)
    assert frontend.HasField("tool_markers") == (tools != pb.TOOL_SYNTAX_NONE)
    assert frontend.HasField("reasoning_markers") == (reasoning != pb.REASONING_SYNTAX_NONE)
    assert frontend.HasField("assistant") == (
        frontend.HasField("tool_markers") or frontend.HasField("reasoning_markers")
    )
    if reasoning != pb.REASONING_SYNTAX_NONE:
        assert list(frontend.reasoning_markers.terminal_markers) == ["<tool_call>"]


def test_only_a_template_without_tools_gets_the_preamble() -> None:
    assert declare_frontend(facts(CHATML))[1].chat_template == with_tool_preamble(CHATML)
    for template in (None, "{{ messages }}", CHATML + "{{ tools }}<tool_call>"):
        assert declare_frontend(facts(template))[1].chat_template == template


def test_too_many_ends_are_refused() -> None:
    with pytest.raises(CheckpointError, match="17 end tokens"):
        declare_frontend(facts(None, end_tokens=tuple(range(17))))


def test_the_default_model_gets_tools(default_gguf: Path) -> None:
    """FE-8: the template is the core's, and says how calls look."""
    with open_gguf(default_gguf) as file:
        _, known = prepare_tokenizer(file)
    frontend, prepared = declare_frontend(known)
    assert frontend.tool_syntax == pb.TOOL_SYNTAX_JSON_TAGS
    assert (frontend.assistant.opener, frontend.assistant.message_end) == ("<|im_start|>assistant\n", "<|im_end|>")
    assert prepared.chat_template is not None
    assert prepared.chat_template.endswith(known.chat_template or "?")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "preamble.gguf"
    return tokenizer_of(vocabularies.byte_level(path, control=("<|im_end|>", "<|im_start|>")))


def rendered(tokenizer: Tokenizer, source: str, conversation: Conversation) -> str:
    template = ChatTemplate(
        source, ControlTokens(tokenizer), bos_text="", eos_text="", clock=lambda: datetime(2031, 2, 3)
    )
    return tokenizer.decode(template.encode(conversation))


def test_a_conversation_without_tools_is_rendered_as_before(tokenizer: Tokenizer) -> None:
    turns = (Message("system", "s"), Message("user", "a\n"), Message("assistant", " b"), Message("user", "c"))
    for messages in (turns, turns[1:], turns[1:2]):
        plain = rendered(tokenizer, CHATML, Conversation(messages))
        assert rendered(tokenizer, with_tool_preamble(CHATML), Conversation(messages)) == plain


def test_the_preamble_shows_tools_calls_and_results(tokenizer: Tokenizer) -> None:
    """Research syntax 2(g): one JSON object a call, results in a user's turn."""
    call = ToolCall("c1", "get_weather", {"city": "Zürich", "n": [1, None]})
    messages = (
        Message("user", "W?"),
        Message("assistant", "Checking.", tool_calls=(call, ToolCall("c2", "get_weather", {}))),
        Message("tool", "sunny", tool_call_id="c1"),
        Message("tool", "rain", tool_call_id="c2"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "snow", tool_call_id="c1"),
    )
    text = rendered(tokenizer, with_tool_preamble(CHATML), Conversation(messages, tools=(TOOL, TOOL)))
    head, _, rest = text.partition("<|im_start|>user\n")
    assert head.startswith("\n<|im_start|>system\n# Tools\n\nYou may call one or more functions")
    assert head.count('\n{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"') == 2
    assert head.endswith(
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
    )
    one = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "n": [1, null]}}\n</tool_call>'
    assert rest == (
        f"W?<|im_end|>\n<|im_start|>assistant\nChecking.\n{one}\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
        f"<|im_start|>assistant\n{one}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nsnow\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_keeps_its_place_before_the_tools(tokenizer: Tokenizer) -> None:
    asked = Conversation((Message("system", "Be brief."), Message("user", "W?")), tools=(TOOL,))
    text = rendered(tokenizer, with_tool_preamble(CHATML), asked)
    assert text.startswith("\n<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert text.count("<|im_start|>") == 3


def test_history_with_calls_is_shown_where_no_tools_are_offered(tokenizer: Tokenizer) -> None:
    messages = (
        Message("user", "W?"),
        Message("assistant", "", tool_calls=(ToolCall("c", "f", {}),)),
        Message("tool", "x"),
    )
    text = rendered(tokenizer, with_tool_preamble(CHATML), Conversation(messages))
    assert text.startswith("\n<|im_start|>user\nW?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n")
    assert "# Tools" not in text
