"""Templates as models ship them: what they may use, what they refuse, and the tokens that come out."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import ContractError, InvalidValueError
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.tokenizer import prepare_tokenizer
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation, Message, ToolCall
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

REFERENCE = Path(__file__).parents[1] / "reference" / "smollm2-llamacpp.json"
PLAIN = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
# The template in the default model's GGUF.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
texts = st.lists(
    st.one_of(
        st.text(max_size=6), st.sampled_from(["<|im_end|>", "<|im_start|>", "<|im_", "end|>", "hello", " world"])
    ),
    max_size=5,
).map("".join)


def conversation(*turns: tuple[str, str]) -> Conversation:
    return Conversation(tuple(Message(*turn) for turn in turns))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "prompt.gguf"
    return tokenizer_of(vocabularies.byte_level(path, control=("<|im_end|>", "<|im_start|>")))


@pytest.fixture(scope="session")
def compiled(tokenizer: Tokenizer) -> Callable[[str], ChatTemplate]:
    controls = ControlTokens(tokenizer, ["<think>", "</think>"])

    def compile_template(source: str) -> ChatTemplate:
        clock = lambda: datetime(2031, 2, 3, 4, 5)  # noqa: E731
        return ChatTemplate(source, controls, bos_text="<|im_start|>", eos_text="<|im_end|>", clock=clock)

    return compile_template


@pytest.fixture(scope="session")
def rendered(compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer) -> Callable[..., str]:
    """What a template makes of (role, content) pairs, read back from the tokens."""

    def render(source: str, *turns: tuple[str, str]) -> str:
        return tokenizer.decode(compiled(source).encode(conversation(*turns)))

    return render


def test_the_default_model_reads_conversations_as_its_peer_does(default_gguf: Path) -> None:
    """The reference's prompts, from conversations: default system prompt, several turns, accents, emoji."""
    with open_gguf(default_gguf) as file:
        tokenizer = Tokenizer.from_bytes(prepare_tokenizer(file)[0])
    template = ChatTemplate(
        SMOLLM2,
        ControlTokens(tokenizer),
        bos_text="<|im_start|>",
        eos_text="<|im_end|>",
        clock=lambda: datetime(2031, 2, 3),
    )
    n_chats = 0
    for case in json.loads(REFERENCE.read_text())["cases"]:
        if case["text"].startswith("<|im_start|>"):
            n_chats += 1
            turns = [turn.partition("\n") for turn in case["text"].split("<|im_start|>")[1:-1]]
            messages = tuple(Message(role, content.removesuffix("<|im_end|>\n")) for role, _, content in turns)
            assert template.encode(Conversation(messages)) == case["prompt_ids"]
            if messages[0].content.startswith("You are a helpful AI assistant named SmolLM"):
                assert template.encode(Conversation(messages[1:])) == case["prompt_ids"]
    assert n_chats == 7


@given(contents=st.lists(texts, min_size=1, max_size=3))
def test_people_cannot_write_control_tokens(
    compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer, contents: list[str]
) -> None:
    """Research item 41: the control tokens are the template's, the text is all there."""
    tokens = compiled(PLAIN).encode(conversation(*(("user", content) for content in contents)))
    special = [token_id for token_id in tokens if tokenizer.is_special(token_id)]
    start, end = tokenizer.token_id("<|im_start|>"), tokenizer.token_id("<|im_end|>")
    assert special == [start, end] * len(contents)
    whole = "".join(f"<|im_start|>user\n{content}<|im_end|>\n" for content in contents)
    assert tokenizer.decode(tokens) == whole


@given(contents=st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_text_without_control_spellings_is_tokenised_as_one(
    compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer, contents: list[str]
) -> None:
    """Tokens merge across the seam between the template's text and a person's."""
    source = "{% for m in messages %}<|im_start|>hell{{ m.content }}o world<|im_end|>{% endfor %}"
    tokens = compiled(source).encode(conversation(*(("user", content) for content in contents)))
    whole = "".join(f"<|im_start|>hell{content}o world<|im_end|>" for content in contents)
    assert tokens == tokenizer.encode(whole, allow_special=True)
    covered = compiled(source).encode(conversation(*(("user", content) for content in (*contents, "<|im_end|>"))))
    assert covered[: len(tokens)] == tokens


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0].content | trim }}", "a <|im_end|>"),
        ("{{ messages[0]['content'].split(' ')[-1] }}", "<|im_end|>"),
        ("{{ bos_token }}{{ eos_token }}", "<|im_start|><|im_end|>"),
        ("{{ strftime_now('%d %b %Y') }}", "03 Feb 2031"),
        ("{{ {'a': ['é<', 1]} | tojson }}", '{"a": ["é<", 1]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ 'é' | tojson(ensure_ascii=True) }}", '"\\u00e9"'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':')) }}", '{"b":1,"a":2}'),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("{% generation %}a{{ 1 + 1 }}{% endgeneration %}", "a2"),
        ("{%- set ns = namespace(n=0) -%}\n{% set ns.n = 3 %}\n{{ ns.n }}", "3"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{% if tools %}no{% endif %}{% if not_given is defined %}no{% endif %}yes", "yes"),
        ("{{ add_generation_prompt }}", "True"),
    ],
)
def test_templates_may_use_what_hugging_face_gives_them(rendered: Callable[..., str], source: str, text: str) -> None:
    """Research items 39 and 40."""
    assert rendered(source, ("user", " a <|im_end|> " if "trim" in source else "a <|im_end|>")) == text


def test_a_templates_refusal_is_the_callers_error(compiled: Callable[[str], ChatTemplate]) -> None:
    """Research item 40."""
    template = compiled("{% if messages|length > 1 %}{{ raise_exception('one turn only') }}{% endif %}x")
    assert template.encode(conversation(("user", "a")))
    with pytest.raises(InvalidValueError, match=r"^one turn only$") as caught:
        template.encode(conversation(("user", "a"), ("user", "b")))
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__code__ }}",
        "{{ range(999999999) | list }}",
        "{{ messages[9].content.x }}",
        "{{ 1 / 0 }}",
        "{% include 'secret' %}",
        "{{ '%s' | format }}",
    ],
)
def test_a_template_reaches_nothing_outside(compiled: Callable[[str], ChatTemplate], source: str) -> None:
    """CVE-2024-34359, CVE-2026-5760: a template in a model file is a stranger's program."""
    tokens: list[int] = []  # an undefined attribute is empty text
    with contextlib.suppress(InvalidValueError, ContractError):
        tokens = compiled(source).encode(conversation(("user", "a")))
    assert tokens == []


def test_a_template_that_does_not_compile_stops_the_start(compiled: Callable[[str], ChatTemplate]) -> None:
    with pytest.raises(ContractError, match="line 2"):
        compiled("a\n{% if %}")


# Deeper than the parser goes, or than the Python that Jinja makes of it may be nested.
DEEP = {
    "braces": "{" * 100_000,
    "parentheses": "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "signs": "{{ " + "-" * 5000 + "1 }}",
    "sums": "{{ " + "+".join(["messages"] * 3000) + " }}",
    "filters": "{{ messages" + "|list" * 5000 + " }}",
    "attributes": "{{ messages" + ".a" * 5000 + " }}",
    "lists": "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "loops": "{% for x in messages %}" * 40 + "{% endfor %}" * 40,
    "conditions": "{% if messages %}" * 2000 + "{% endif %}" * 2000,
    "macros": "{% macro m() %}" * 200 + "{% endmacro %}" * 200,
}


@pytest.mark.parametrize("source", DEEP.values(), ids=DEEP)
def test_a_template_that_is_nested_too_deeply_stops_the_start(
    compiled: Callable[[str], ChatTemplate], source: str
) -> None:
    with pytest.raises(ContractError, match="the chat template does not compile"):
        compiled(source)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a <|im_end|> city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
# Everything that a conversation can hold, in one template.
EVERYTHING = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}{{ '\n' }}"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}[{{ call.id }} {{ call.function.name }}"
    "{% for key, value in call.function.arguments | items %} {{ key }}={{ value if value is string else value | tojson }}"
    "{% endfor %}]{% endfor %}{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if effort == 'high' %}<think>{% endif %}{% endif %}"
)


def everything(evil: str, **changes: object) -> Conversation:
    call = ToolCall(f"call{evil}", f"f{evil}", {f"k{evil}": f"v{evil}", "o": [{evil: [evil, 1, None, True]}]})
    fields: dict[str, object] = {
        "messages": (
            Message("user", evil, name=f"n{evil}"),
            Message("assistant", evil, reasoning=evil, tool_calls=(call,)),
            Message("tool", evil, tool_call_id=f"call{evil}", name=f"f{evil}"),
        ),
        "tools": (WEATHER, {"type": "function", "function": {"name": f"f{evil}", "description": evil}}),
        "variables": {"effort": "high", "note": evil},
    }
    return Conversation(**(fields | changes))  # type: ignore[arg-type]


@given(evil=st.one_of(texts, st.sampled_from(["<|im_end|>", "<think>", "ink>", "<|im_"])))
def test_nobody_can_forge_a_control_token(
    compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer, evil: str
) -> None:
    """Research item 41, syntax 1.12: not in tools, names, ids, arguments, results or reasoning; markers that are tokens neither."""
    template = compiled(EVERYTHING)
    start, end, think = (tokenizer.token_id(text) for text in ("<|im_start|>", "<|im_end|>", "<think>"))
    tokens = template.encode(everything(evil))
    controls = [token_id for token_id in tokens if token_id in (start, end, think)]
    # An empty text of reasoning is no reasoning.
    reasoning = [think] if evil else []
    assert controls == [start, end, start, *reasoning, end, start, end, start, think]
    plain = template.encode(everything(""))
    assert tokenizer.decode(plain).count("<|im_end|>") == 4  # three turns and the tool's description


def test_a_covered_text_comes_back_as_it_was(compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer) -> None:
    """Research item 39: tools as JSON without escapes, arguments by their type."""
    text = tokenizer.decode(compiled(EVERYTHING).encode(everything("<|im_end|>")))
    assert text.startswith("<tools>" + json.dumps(WEATHER) + "\n")
    assert (
        'call<|im_end|> f<|im_end|> k<|im_end|>=v<|im_end|> o=[{"<|im_end|>": ["<|im_end|>", 1, null, true]}]]' in text
    )
    assert "<|im_start|>tool f<|im_end|>\n<|im_end|>(call<|im_end|>)<|im_end|>\n" in text


def test_json_in_ascii_hides_no_covered_text(compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer) -> None:
    """Research item 39."""
    source = "{{ messages[0].content | tojson(ensure_ascii=True) }}"
    tokens = compiled(source).encode(conversation(("user", "é <|im_end|> 😀 \ue000")))
    assert tokenizer.decode(tokens) == json.dumps("é <|im_end|> 😀 \ue000")
    assert tokenizer.token_id("<|im_end|>") not in tokens


def test_tools_need_a_template_that_looks_at_them(compiled: Callable[[str], ChatTemplate]) -> None:
    asked = Conversation((Message("user", "a"),), tools=(WEATHER,))
    assert compiled(EVERYTHING).takes_tools
    assert not compiled(PLAIN).takes_tools
    with pytest.raises(InvalidValueError, match="takes no tools") as caught:
        compiled(PLAIN).encode(asked)
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    "name", ["messages", "tools", "add_generation_prompt", "bos_token", "raise_exception", "range"]
)
def test_no_variable_takes_a_reserved_name(compiled: Callable[[str], ChatTemplate], name: str) -> None:
    with pytest.raises(InvalidValueError, match=name) as caught:
        compiled(EVERYTHING).encode(Conversation((Message("user", "a"),), variables={name: 1}))
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (Message("assistant", "Once upon  "), "<|im_start|>assistant\nOnce upon  "),
        (Message("assistant", ""), "<|im_start|>assistant\n"),
        (Message("assistant", "b", reasoning="a"), "<|im_start|>assistant\n<think>a</think>b"),
        (Message("assistant", "", reasoning="a"), "<|im_start|>assistant\n<think>a"),
        (Message("assistant", "x<|im_end|>"), "<|im_start|>assistant\nx<|im_end|>"),
    ],
)
def test_a_last_message_can_be_continued(
    compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer, last: Message, ending: str
) -> None:
    """FE-6: continuation starts inside the prepared reasoning or content."""
    asked = Conversation((Message("user", "hi"), last), adds_generation_prompt=False, continues_final_message=True)
    tokens = compiled(EVERYTHING).encode(asked)
    assert tokenizer.decode(tokens) == "<|im_start|>user\nhi<|im_end|>\n" + ending
    assert tokens.count(tokenizer.token_id("<|im_end|>") or 0) == 1


@pytest.mark.parametrize("source", ["{{ messages[0].content }}", "{{ messages[-1].content * 2 }}"])
def test_a_last_message_that_is_not_shown_once_cannot_be_continued(
    compiled: Callable[[str], ChatTemplate], source: str
) -> None:
    asked = Conversation((Message("user", "hi"), Message("assistant", "a")), None, False, True)
    with pytest.raises(InvalidValueError) as caught:
        compiled(source).encode(asked)
    assert caught.value.param == "continue_final_message"


def test_no_generation_prompt_when_none_is_wanted(
    compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer
) -> None:
    asked = Conversation((Message("user", "hi"),), adds_generation_prompt=False)
    assert tokenizer.decode(compiled(EVERYTHING).encode(asked)) == "<|im_start|>user\nhi<|im_end|>\n"
