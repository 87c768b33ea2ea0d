"""Calls of every syntax, whatever tokens are chosen: the parser of answers reads them back as calls that fit the tools' schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from helios.contract.enums import ToolSyntax
from helios.errors import InvalidValueError
from helios.output.opening import open_answer
from helios.output.syntax import AnswerSyntax
from helios.output.text_stream import TextStream
from helios.prompt.grammar.grammars import Grammars
from helios.prompt.grammar.opening import Opening
from helios.prompt.grammar.request import read_structured
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import BAR, EXAMPLES, Answer, Example, read, with_tokens
from tests.prompt.grammar.sampling import Choice, anyone, drawn, longest, refused_at, strangest

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "ok": {"type": "boolean"},
        "n": {"type": ["string", "null"], "maxLength": 5},
        "o": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}, "maxItems": 2}}},
        "unit": {"enum": ["celsius", "degrees fahrenheit"]},
        "id": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "maxLength": 4}]},
        "on": {"type": "string", "format": "date"},
        "code": {"$ref": "#/$defs/code"},
    },
    "required": ["city", "days", "n", "o", "unit", "id", "code"],
    "$defs": {"code": {"type": "string", "pattern": "^[a-z]{2}-\\d$"}},
}
SCHEMAS = {"get_weather": WEATHER, "noargs": {"type": "object", "properties": {}}}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}},
    {"type": "function", "function": {"name": "noargs"}},
]


@dataclass(frozen=True)
class Model:
    """An example's syntax in a vocabulary, with its grammars and its parser."""

    example: Example
    tokenizer: Tokenizer
    grammars: Grammars
    syntax: AnswerSyntax

    @property
    def eos_tokens(self) -> tuple[int, ...]:
        return self.example.frontend.eos_tokens

    @property
    def has_own_turns(self) -> bool:
        """Elements and frames: an answer opens them itself."""
        return self.example.frontend.tool_syntax in (ToolSyntax.XTML, ToolSyntax.RECIPIENT_FRAMES)

    def drawn(self, body: dict[str, Any], opening: Opening, choose: Choice, seed: int) -> tuple[list[int], bool]:
        compiled = self.grammars.compile(read_structured(body), opening)
        assert compiled is not None
        return drawn(compiled.start(), choose, self.eos_tokens, n_most=500, seed=seed)

    def read(self, tokens: list[int], *, is_structured: bool = False) -> Answer:
        stream = TextStream(self.tokenizer, (), (), self.syntax.markup)
        text = "".join(map(stream.push, tokens)) + stream.finish()
        opening = open_answer(
            self.tokenizer.encode(self.example.prompt, allow_special=True), self.tokenizer, self.syntax
        )
        return read([text], self.syntax, tools=SCHEMAS, opening=opening, is_structured=is_structured)


def _models(tokenizer: Tokenizer) -> Iterator[tuple[str, Model]]:
    every_token = {name: is_special for example in EXAMPLES for name, is_special in example.tokens.items()}
    new = {name: is_special for name, is_special in every_token.items() if name not in tokenizer.added_tokens}
    for own, kind in ((with_tokens(tokenizer, new), "tokens"), (tokenizer, "text")):
        for example in EXAMPLES:
            if kind == "text" and example.name in ("xtml", "frames"):
                continue  # their control marks count only as tokens
            grammars = Grammars(own, example.frontend, own.vocabulary_size)
            yield f"{example.name}-{kind}", Model(example, own, grammars, AnswerSyntax(example.frontend, own))


NAMES = [f"{each.name}-tokens" for each in EXAMPLES] + [f"{each.name}-text" for each in EXAMPLES[:-2]]


@pytest.fixture(scope="module")
def models(tokenizer: Tokenizer) -> dict[str, Model]:
    return dict(_models(tokenizer))


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest, models: dict[str, Model]) -> Model:
    return models[request.param]


def check_calls(answer: Answer) -> None:
    for call in answer.calls:
        assert call.is_complete
        jsonschema.Draft202012Validator(SCHEMAS[call.name]).validate(json.loads(call.arguments))


def test_a_required_call_is_made_and_fits_its_schema(model: Model) -> None:
    """FE-7: tool_choice required, whatever the model would rather say."""
    opening = Opening.EITHER if model.has_own_turns else Opening.ANSWER
    n_complete = 0
    for seed in range(4):
        tokens, is_complete = model.drawn({"tools": TOOLS, "tool_choice": "required"}, opening, anyone(seed), seed)
        answer = model.read(tokens)
        if not is_complete:  # several calls, or reasoning, up to the limit
            continue
        n_complete += 1
        assert answer.calls
        assert not answer.content
        check_calls(answer)
    assert n_complete


@pytest.mark.parametrize("named", ["get_weather", "noargs"])
def test_a_named_tool_is_called_once_by_the_longest_and_strangest_tokens(model: Model, named: str) -> None:
    """FE-7: an adversary gives one call of the named tool, within the bounds of its schema."""
    body = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": named}}}
    opening = Opening.EITHER if model.has_own_turns else Opening.ANSWER
    for choose in (longest(model.tokenizer), strangest(model.tokenizer)):
        tokens, is_complete = model.drawn(body, opening, _hasty(model, choose), 0)
        assert is_complete
        answer = model.read(tokens)
        assert [call.name for call in answer.calls] == [named]
        check_calls(answer)


def _hasty(model: Model, choose: Choice) -> Choice:
    """`choose`, which starts a tool's frame first: reasoning has no bound."""
    if model.example.name != "frames":
        return choose
    ahead = iter(model.tokenizer.encode(" to=", allow_special=False))

    def first(ids: Any) -> int:
        token = next(ahead, None)
        spelled = [each for each in ids if model.tokenizer.token_bytes(int(each)) in (b"get", b"no")]
        return token if token is not None else int(spelled[0]) if spelled else choose(ids)

    return first


def test_auto_gives_words_or_calls_that_fit(model: Model) -> None:
    """FE-7: strict tools under tool_choice auto: once a call begins it is a call of the schema."""
    example = model.example
    compiled = model.grammars.compile(read_structured({"tools": TOOLS}), Opening.EITHER)
    assert compiled is not None
    tokens = model.tokenizer.encode(example.answer, allow_special=True)
    said = len(model.tokenizer.encode(example.answer.partition("Checking.")[0], allow_special=True))
    index = refused_at(compiled.start(), tokens)
    assert index is not None  # the example leaves out a required parameter
    assert index > said
    assert not model.read(tokens[:index]).made


def test_auto_takes_a_whole_answer_of_the_syntax(model: Model) -> None:
    """FE-7: reasoning, words and calls as the template writes them, token by token under the mask."""
    loose = [
        {"type": "function", "function": {"name": name, "strict": True, "parameters": {"type": "object", **schema}}}
        for name, schema in {
            "get_weather": {"properties": _PLAIN, "required": list(_PLAIN)},
            "noargs": {},
        }.items()
    ]
    compiled = model.grammars.compile(read_structured({"tools": loose}), Opening.EITHER)
    assert compiled is not None
    constraint = compiled.start()
    answer = model.example.answer.replace("True", "true").replace("None", "null")
    answer = answer.replace(f'">\n\n</{BAR}', f'">\n</{BAR}')  # an empty line that no grammar needs
    tokens = model.tokenizer.encode(answer, allow_special=True)
    index = refused_at(constraint, tokens)
    assert index is None, model.tokenizer.decode(tokens[: index + 1])
    assert constraint.is_complete


_PLAIN = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "ok": {"type": "boolean"},
    "n": {"type": ["string", "null"]},
    "o": {"type": "object"},
}


def test_one_call_is_all_without_parallel_calls(model: Model) -> None:
    """parallel_tool_calls false: exactly one."""
    body = {"tools": TOOLS[1:], "tool_choice": "required", "parallel_tool_calls": False}
    opening = Opening.EITHER if model.has_own_turns else Opening.ANSWER
    for seed in range(3):
        tokens, is_complete = model.drawn(body, opening, anyone(seed), seed)
        assert not is_complete or len(model.read(tokens).calls) == 1
    body["parallel_tool_calls"] = True
    answers = (model.read(model.drawn(body, opening, anyone(seed), seed)[0]) for seed in range(12))
    assert any(len(answer.made) > 1 for answer in answers)


def test_an_answer_with_a_schema_and_tools_is_a_document_or_calls(model: Model) -> None:
    """FE-6, S4: the schema binds the answer that the user sees, and the tools stay allowed."""
    schema = {"type": "object", "properties": {"k": {"enum": ["</think>", 1]}}, "required": ["k"]}
    body = {"tools": TOOLS[1:], "structured_outputs": {"json": schema}}
    seen = set()
    for seed in range(20):
        if len(seen) == 2:
            break
        tokens, is_complete = model.drawn(
            body, Opening.ANSWER if not model.has_own_turns else Opening.EITHER, anyone(seed), seed
        )
        if not is_complete:
            continue
        answer = model.read(tokens, is_structured=True)
        seen.add(bool(answer.calls))
        if answer.calls:
            check_calls(answer)
        else:
            assert json.loads(answer.content)["k"] in ("</think>", 1)
    assert seen == {True, False}


def test_reasoning_that_the_prompt_opened_comes_first(model: Model) -> None:
    """FE-3, S1: free text up to its end, then the document; nothing else, and no end before it."""
    schema = {"type": "object", "properties": {"k": {"type": "null"}}, "required": ["k"]}
    compiled = model.grammars.compile(read_structured({"structured_outputs": {"json": schema}}), Opening.REASONING)
    assert compiled is not None
    frontend = model.example.frontend
    if frontend.reasoning_markers is not None and frontend.reasoning_markers.reasoning is not None:
        end = frontend.reasoning_markers.reasoning.closer
    else:
        end = "<|eom|><|start|>assistant to=user<|message|>"
    opener = "<|open|>response<|sep|>" if model.example.name == "xtml" else ""
    constraint = compiled.start()
    text = 'Hm {"a": "}" ' + end + opener
    assert refused_at(constraint, model.tokenizer.encode(text, allow_special=True)) is None
    assert not constraint.is_complete
    assert refused_at(constraint, model.tokenizer.encode('{"k": null}', allow_special=True)) is None
    assert model.example.name == "xtml" or constraint.is_complete
    assert (
        refused_at(compiled.start(), [*model.tokenizer.encode("Hm", allow_special=True), model.eos_tokens[0]])
        is not None
    )


def test_a_schema_that_tags_cannot_carry_is_refused(models: dict[str, Model]) -> None:
    """What JSON carries whole, tags may not: refused with its name, not passed over."""
    cases = {
        "anyOf": {"anyOf": [{"type": "object"}, {"type": "object", "properties": {"a": {}}}]},
        "patternProperties": {"type": "object", "patternProperties": {"^a": {}}},
    }
    for keyword, parameters in cases.items():
        tool = {"type": "function", "function": {"name": "t", "parameters": parameters}}
        body = read_structured({"tools": [tool], "tool_choice": "required"})
        with pytest.raises(InvalidValueError, match=f"{keyword!r} at"):
            models["function_tags-tokens"].grammars.compile(body)
        assert models["json_tags-tokens"].grammars.compile(body) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a</parameter>b"]},
        {"type": "string", "pattern": "a^b"},
        {"type": "string", "pattern": "^a|b$"},
        {"minimum": 3},
    ],
)
def test_a_value_that_tags_cannot_carry_is_refused(schema: dict[str, Any], models: dict[str, Model]) -> None:
    parameters = {"type": "object", "properties": {"v": schema}}
    tool = {"type": "function", "function": {"name": "t", "parameters": parameters}}
    with pytest.raises(InvalidValueError) as caught:
        models["function_tags-text"].grammars.compile(read_structured({"tools": [tool], "tool_choice": "required"}))
    assert caught.value.param == "tools[0].function.parameters"


@pytest.mark.parametrize("name", ["function_tags-tokens", "argument_tags-text", "dsml-text", "frames-tokens"])
def test_json_between_tags_of_text_holds_no_closing_tag(name: str, models: dict[str, Model]) -> None:
    """Where closers are text, a closer in a JSON string would end the value; `<` and `/` themselves stay allowed."""
    string, anything = {"type": "string"}, {"type": "object"}
    shapes = {
        "typed": (
            {"type": "object", "properties": {"a": {"type": "array", "items": string}}, "required": ["a"]},
            '{"a": ["X"]}',
        ),
        "map": ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"X": 1}'),
        "any": (anything, '{"a": {"b": ["X"]}}'),
        "pattern": ({"type": "array", "items": {"type": "string", "pattern": "p"}}, '["pX"]'),
        "reference": ({"type": "array", "items": {"$ref": "#/$defs/t"}}, '["X"]'),
    }
    for schema, document in shapes.values():
        parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": {"t": string}}
        tool = {"type": "function", "function": {"name": "t", "parameters": parameters}}
        model = models[name]
        compiled = model.grammars.compile(read_structured({"tools": [tool], "tool_choice": "required"}), Opening.ANSWER)
        assert compiled is not None
        head = _HEADS[name.partition("-")[0]]
        for text, is_taken in (("< / <b> <<x", True), ("</", False), ("a<</b", False)):
            tokens = model.tokenizer.encode(head + document.replace("X", text), allow_special=True)
            assert (refused_at(compiled.start(), tokens) is None) == is_taken, (schema, text)


_HEADS = {
    "function_tags": "<tool_call>\n<function=t>\n<parameter=v>\n",
    "argument_tags": "<tool_call>t\n<arg_key>v</arg_key>\n<arg_value>",
    "dsml": f'<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="t">\n<{BAR}DSML{BAR}parameter name="v" string="false">',
    "frames": "<|eom|><|start|>assistant to=t<|message|>"
    '<atem:function_calls>\n<atem:invoke name="t">\n<atem:parameter name="v">',
}
