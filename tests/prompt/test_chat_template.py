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
from helios.prompt.chat_template import ChatTemplate, Message
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


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "prompt.gguf"
    return tokenizer_of(vocabularies.byte_level(path, control=("<|im_end|>", "<|im_start|>")))


@pytest.fixture(scope="session")
def compiled(tokenizer: Tokenizer) -> Callable[[str], ChatTemplate]:
    def compile_template(source: str) -> ChatTemplate:
        clock = lambda: datetime(2031, 2, 3, 4, 5)  # noqa: E731
        return ChatTemplate(source, tokenizer, bos_text="<|im_start|>", eos_text="<|im_end|>", clock=clock)

    return compile_template


@pytest.fixture(scope="session")
def rendered(compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer) -> Callable[..., str]:
    """What a template makes of (role, content) pairs, read back from the tokens."""

    def render(source: str, *turns: tuple[str, str]) -> str:
        return tokenizer.decode(compiled(source).encode([Message(*turn) for turn in turns]))

    return render


def test_the_default_model_reads_conversations_as_its_peer_does(default_gguf: Path) -> None:
    """The reference's prompts, from conversations: default system prompt, several turns, accents, emoji."""
    with open_gguf(default_gguf) as file:
        tokenizer = Tokenizer.from_bytes(prepare_tokenizer(file)[0])
    template = ChatTemplate(
        SMOLLM2, tokenizer, bos_text="<|im_start|>", eos_text="<|im_end|>", clock=lambda: datetime(2031, 2, 3)
    )
    n_chats = 0
    for case in json.loads(REFERENCE.read_text())["cases"]:
        if case["text"].startswith("<|im_start|>"):
            n_chats += 1
            turns = [turn.partition("\n") for turn in case["text"].split("<|im_start|>")[1:-1]]
            messages = [Message(role, content.removesuffix("<|im_end|>\n")) for role, _, content in turns]
            assert template.encode(messages) == case["prompt_ids"]
            if messages[0].content.startswith("You are a helpful AI assistant named SmolLM"):
                assert template.encode(messages[1:]) == case["prompt_ids"]
    assert n_chats == 7


@given(contents=st.lists(texts, min_size=1, max_size=3))
def test_people_cannot_write_control_tokens(
    compiled: Callable[[str], ChatTemplate], tokenizer: Tokenizer, contents: list[str]
) -> None:
    """Research item 41: the control tokens are the template's, the text is all there."""
    tokens = compiled(PLAIN).encode([Message("user", content) for content in contents])
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
    tokens = compiled(source).encode([Message("user", content) for content in contents])
    whole = "".join(f"<|im_start|>hell{content}o world<|im_end|>" for content in contents)
    assert tokens == tokenizer.encode(whole, allow_special=True)
    covered = compiled(source).encode([Message("user", content) for content in (*contents, "<|im_end|>")])
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
    assert template.encode([Message("user", "a")])
    with pytest.raises(InvalidValueError, match=r"^one turn only$") as caught:
        template.encode([Message("user", "a")] * 2)
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
    with contextlib.suppress(InvalidValueError):
        tokens = compiled(source).encode([Message("user", "a")])
    assert tokens == []


def test_a_template_that_does_not_compile_stops_the_start(compiled: Callable[[str], ChatTemplate]) -> None:
    with pytest.raises(ContractError, match="line 2"):
        compiled("a\n{% if %}")
