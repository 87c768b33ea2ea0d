"""Forms of answers and the traps of the grammar library (research/syntax.md 7): each of them was seen without its remedy."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import numpy as np
import pytest

from helios.contract.frontend import Markers, ReasoningMarkers
from helios.errors import ConstraintError, InvalidValueError
from helios.prompt.grammar.constraint import GrammarConstraint
from helios.prompt.grammar.grammars import Grammars
from helios.prompt.grammar.opening import Opening
from helios.prompt.grammar.request import read_structured
from helios.scheduler.request import TokenConstraint
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import with_tokens
from tests.prompt.grammar.sampling import HERMES, allowed, anyone, drawn, frontend, refused_at, text_of

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": NAME, "strict": True}}


def started(grammars: Grammars, body: dict[str, Any], opening: Opening = Opening.ANSWER) -> GrammarConstraint:
    compiled = grammars.compile(read_structured(body), opening)
    assert compiled is not None
    return compiled.start()


def structured(**form: Any) -> dict[str, Any]:
    return {"structured_outputs": form}


def takes(constraint: GrammarConstraint, tokenizer: Tokenizer, text: str) -> bool:
    """Whether a text, as plain characters, is a whole answer."""
    return refused_at(constraint, tokenizer.encode(text, allow_special=False)) is None and constraint.is_complete


FORMS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"response_format": {"type": "json_object"}}, ['{"a": [1, null]}', "{}"], ["[]", "1", ' {"a": 1}', "{} "]),
    ({"response_format": {"type": "json_object", "schema": NAME}}, ['{"name": "x"}'], ["{}"]),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": NAME}}}, ['{"name": "x"}'], ["{}"]),
    (structured(json=json.dumps(NAME)), ['{"name": "x"}'], ["{}"]),
    (structured(json_object=True, json=None), ["{}"], ["1"]),
    (structured(regex=r"^(\d{2}|é+)$"), ["12", "éé"], ["1", "123", ""]),
    (structured(choice=["yes", "yes sir", "no\n", '"quoted"']), ["yes", "yes sir", "no\n", '"quoted"'], ["y", "no"]),
    (structured(grammar='start: "a" b+\nb: /[0-9]/ | "é"'), ["a1", "aé2"], ["a", "b"]),
    (structured(grammar='root ::= "a" num\nnum ::= [0-9]+ | "é"'), ["a12", "aé"], ["a", "a1é"]),
    (
        structured(grammar='start: "{" pair "}"\npair: ESCAPED ":" ESCAPED\nESCAPED: /"[a-z]*"/'),
        ['{"a":"b"}'],
        ['{"a"}'],
    ),
]


@pytest.mark.parametrize(("body", "good", "bad"), FORMS)
def test_an_answer_has_the_form_that_was_asked_for(
    body: dict[str, Any], good: list[str], bad: list[str], grammars: Grammars, tokenizer: Tokenizer
) -> None:
    """FE-7."""
    assert [text for text in good if not takes(started(grammars, body), tokenizer, text)] == []
    assert [text for text in bad if takes(started(grammars, body), tokenizer, text)] == []


def test_tags_in_free_text_hold_documents(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """Text may be anything up to a trigger; what follows it is one of the trigger's tags."""
    tags = [
        {"begin": "<f=look>", "schema": NAME, "end": "</f>"},
        {"begin": "<f=wait>", "schema": {"type": "null"}, "end": "</f>"},
        {"begin": "[[", "schema": {"type": "integer"}, "end": "]]"},
    ]
    body = structured(structural_tag=json.dumps({"structures": tags, "triggers": ["<f=", "[["]}))
    for text in ("free < [ text", 'a <f=look>{"name": "x"}</f> b [[7]] c', "<f=wait>null</f>", "[[1]][[2]]"):
        assert takes(started(grammars, body), tokenizer, text), text
    for text in ("<f=other>", "a [[x]]", "<f=look>null</f>", "[[1] ]", "[[<f=wait>null</f>"):
        assert not takes(started(grammars, body), tokenizer, text), text


def test_a_request_without_a_constraint_has_no_grammar(grammars: Grammars) -> None:
    loose = {"type": "function", "function": {"name": "look", "parameters": {"not": {}}}}
    for body in (
        {},
        {"tools": [loose]},
        {"tools": [TOOL], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
    ):
        assert grammars.compile(read_structured(body)) is None
    single = grammars.compile(read_structured({"tools": [loose], "parallel_tool_calls": False}))
    assert single is not None  # the schema of a tool that is not strict is not enforced under auto


def test_a_constraint_is_what_the_scheduler_takes(grammars: Grammars) -> None:
    constraint: TokenConstraint = started(grammars, structured(choice=["a"]))
    mask = constraint.mask()
    assert mask is not None
    assert mask.dtype == np.uint32


def test_every_end_is_allowed_exactly_when_the_answer_may_end(tokenizer: Tokenizer) -> None:
    """S6: all the ends of the model and no other; `drawn` compares at every token."""
    grammars = Grammars(tokenizer, frontend(eos_tokens=(2, 0)), tokenizer.vocabulary_size)
    for seed in range(5):
        tokens, is_complete = drawn(started(grammars, structured(regex="(ab){0,9}")), anyone(seed), (2, 0), n_most=50)
        assert is_complete
        assert set(text_of(tokenizer, tokens)) <= {"a", "b"}


def test_a_mask_is_as_wide_as_the_model(tokenizer: Tokenizer) -> None:
    """Rows of logits behind the tokenizer's vocabulary are never allowed."""
    wide = Grammars(tokenizer, frontend(), tokenizer.vocabulary_size + 100)
    constraint = started(wide, structured(regex="(.|\n)*"))
    assert len(constraint.mask()) == (tokenizer.vocabulary_size + 100 + 31) // 32
    assert allowed(constraint).max() < tokenizer.vocabulary_size
    assert not {token for token in allowed(constraint) if tokenizer.is_special(int(token))} - {2}


def test_a_mask_stays_the_same_row_and_is_filled_once_a_token(grammars: Grammars) -> None:
    """Nothing is allocated from step to step, and who asks twice is told the same."""
    constraint = started(grammars, structured(regex="a{5}"))
    rows = []
    for _ in range(3):
        before = constraint.mask().copy()
        assert (constraint.mask() == before).all()
        rows.append(constraint.mask())
        constraint.advance(int(allowed(constraint)[0]))
    assert all(row is rows[0] for row in rows)


def test_choices_of_one_request_do_not_share_their_place(grammars: Grammars, tokenizer: Tokenizer) -> None:
    compiled = grammars.compile(read_structured(structured(regex="[ab]c")))
    assert compiled is not None
    first, second = compiled.start(), compiled.start()
    assert takes(first, tokenizer, "ac")
    assert not second.is_complete
    assert takes(second, tokenizer, "bc")


def test_equal_requests_compile_once(tokenizer: Tokenizer) -> None:
    grammars = Grammars(tokenizer, frontend(), tokenizer.vocabulary_size)
    first = grammars.compile(read_structured(structured(regex="a+")))
    assert grammars.compile(read_structured(structured(regex="a+"))) is first
    for index in range(100):
        grammars.compile(read_structured(structured(choice=[str(index)])))
    assert grammars.compile(read_structured(structured(regex="a+"))) is not first


def test_a_mask_holds_every_token_that_the_grammar_takes(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """7.3-1: forced text offers all its spellings and not one: the mask allows what `advance` takes."""
    spelled = {tokenizer.token_bytes(int(token)) for token in allowed(started(grammars, structured(choice=["answer"])))}
    assert {b"a", b"an", b"ans", b"answer"} <= spelled


LITERALS = ["</think>", "<tool_call>", "<|im_end|>", "a<think>b"]


@pytest.mark.parametrize("place", ["const", "enum", "key", "choice", "tool"])
def test_literal_tags_are_spelled_and_never_their_tokens(
    place: str, tagged_grammars: Grammars, tagged_tokenizer: Tokenizer
) -> None:
    """7.3-2, S3, FE-3: literal tags in an answer remain answer text, though the vocabulary has tokens for them."""
    for literal in LITERALS:
        schema: dict[str, Any] = {
            "const": {"const": literal},
            "enum": {"enum": [literal, literal + "!"]},
            "key": {"properties": {literal: {"type": "null"}}, "required": [literal], "type": "object"},
        }.get(place, {})
        body = structured(json=schema) if schema else structured(choice=[literal])
        if place == "tool":
            parameters = {"type": "object", "properties": {"v": {"const": literal}}, "required": ["v"]}
            body = {
                "tools": [{"type": "function", "function": {"name": "t", "parameters": parameters}}],
                "tool_choice": "required",
            }
        specials = set(tagged_tokenizer.added_tokens.values()) - {2}
        calls = (
            {tagged_tokenizer.added_tokens[name] for name in ("<tool_call>", "</tool_call>")}
            if place == "tool"
            else set()
        )
        for seed in range(3):
            tokens, is_complete = drawn(started(tagged_grammars, body), anyone(seed), (2,), n_most=200)
            assert literal in text_of(tagged_tokenizer, tokens)
            assert not set(tokens) & (specials - calls)
            assert is_complete or place == "tool"


def test_every_tag_may_stand_in_a_string(tagged_grammars: Grammars, tagged_tokenizer: Tokenizer) -> None:
    """S2: split at each character, and where the tag is a token that token is not allowed."""
    for tag in ("</think>", "<tool_call>", "</tool_call>", "<|im_end|>"):
        constraint = started(tagged_grammars, structured(json={"type": "string"}))
        spelled = list(
            itertools.chain.from_iterable(tagged_tokenizer.encode(each, allow_special=False) for each in f'"x{tag}y"')
        )
        assert refused_at(constraint, spelled) is None
        assert constraint.is_complete
        constraint = started(tagged_grammars, structured(json={"type": "string"}))
        assert refused_at(constraint, tagged_tokenizer.encode('"x', allow_special=False)) is None
        assert tagged_tokenizer.added_tokens[tag] not in allowed(constraint)


def test_bytes_without_tokens_fail_the_request_and_never_look_like_its_end(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    """7.3-3, S9: a matcher in error offers the end of generation alone; that is an error, not an answer."""
    with pytest.raises(InvalidValueError, match="has no tokens"):
        grammars.compile(read_structured(structured(choice=["\U00040000"])))
    constraint = started(grammars, structured(grammar='start: "a" /\\x{40000}/'))
    constraint.advance(tokenizer.encode("a", allow_special=False)[0])
    with pytest.raises(ConstraintError):
        constraint.mask()
    with pytest.raises(ConstraintError):
        constraint.mask()


def test_a_token_outside_of_the_mask_fails_for_good(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """7.2: a failed matcher never recovers, so the constraint does not either."""
    constraint = started(grammars, structured(choice=["a"]))
    with pytest.raises(ConstraintError, match="does not allow the token"):
        constraint.advance(tokenizer.encode("b", allow_special=False)[0])
    with pytest.raises(ConstraintError):
        constraint.mask()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (structured(regex="(a"), "structured_outputs.regex"),
        (structured(regex="a(?=b)"), "structured_outputs.regex"),
        (structured(grammar="start: missing"), "structured_outputs.grammar"),
        (structured(grammar="no grammar at all"), "structured_outputs.grammar"),
        (structured(grammar='root ::= "a'), "structured_outputs.grammar"),
        (structured(json={"not": {}}), "structured_outputs.json"),
        (
            {"tools": [TOOL | {"function": {"name": "t", "parameters": {"not": {}}}}], "tool_choice": "required"},
            "tools[0].function.parameters",
        ),
    ],
)
def test_what_cannot_be_compiled_names_its_field(body: dict[str, Any], param: str, grammars: Grammars) -> None:
    """S7."""
    with pytest.raises(InvalidValueError) as caught:
        grammars.compile(read_structured(body))
    assert caught.value.param == param
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_blanks_in_a_document_are_bounded(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """7.3-6: a space, or a line break and its indentation; weak models loop on more."""
    pretty = json.dumps({"name": "x"}, indent=4)
    for text in ('{"name":"x"}', '{"name": "x"}', pretty, '{ "name" : "x" }', '{\n\t"name": "x"\n}'):
        assert takes(started(grammars, structured(json=NAME)), tokenizer, text), text
    for text in ('{  "name": "x"}', '{\n\n"name": "x"}', '{"name": \n' + " " * 60 + '"x"}', '{"name": "x"}\n'):
        assert not takes(started(grammars, structured(json=NAME)), tokenizer, text), text


def test_reasoning_may_come_first_where_the_prompt_left_it_open(
    thinking_grammars: Grammars, tokenizer: Tokenizer
) -> None:
    """S1: opened by the model, by the prompt, or over."""
    document, thought = '{"name": "x"}', 'so {"name" ... }\n</think>\n\n'
    cases = {
        Opening.EITHER: [document, "<think>\n" + thought + document],
        Opening.REASONING: [thought + document, "<think>\n" + thought + document],
        Opening.ANSWER: [document],
        Opening.PLAIN: [document],
    }
    for opening, text in itertools.product(cases, {text for texts in cases.values() for text in texts}):
        constraint = started(thinking_grammars, structured(json=NAME), opening)
        assert takes(constraint, tokenizer, text) == (text in cases[opening]), (opening, text)


def test_only_the_token_ends_reasoning_where_there_is_one(
    tagged_grammars: Grammars, tagged_tokenizer: Tokenizer
) -> None:
    """FE-3: the spelling of a delimiter that is a token is thought, the token ends it."""
    constraint = started(tagged_grammars, structured(json=NAME), Opening.REASONING)
    spelled = list(
        itertools.chain.from_iterable(tagged_tokenizer.encode(each, allow_special=False) for each in "Hm</think>")
    )
    assert refused_at(constraint, spelled) is None
    assert refused_at(constraint, tagged_tokenizer.encode(" and <tool", allow_special=False)) is None
    assert refused_at(constraint, tagged_tokenizer.encode("</think>", allow_special=True)) is None
    assert takes(constraint, tagged_tokenizer, '{"name": "x"}')


@pytest.mark.parametrize("has_tokens", [True, False])
def test_a_call_may_end_reasoning_where_the_syntax_says_so(has_tokens: bool, tokenizer: Tokenizer) -> None:
    """research 1-6: the opener of a call ends reasoning only as its declared terminal."""
    names = dict.fromkeys(("<think>", "</think>", "<tool_call>", "</tool_call>"), False) if has_tokens else {}
    own = with_tokens(tokenizer, names)
    pair = Markers("<think>", "</think>", 0, 1, 1, 2)
    call = '<tool_call>\n{"name": "look", "arguments": {"name": "x"}}\n</tool_call>'
    for terminals in ((), ("<tool_call>",)):
        markers = frontend(tool_markers=HERMES, reasoning_markers=ReasoningMarkers(pair, terminals))
        grammars = Grammars(own, markers, own.vocabulary_size)
        for text in ("Hm.\n</think>\n\n" + call, "Hm.\n" + call):
            constraint = started(grammars, {"tools": [TOOL], "tool_choice": "required"}, Opening.REASONING)
            refused = refused_at(constraint, own.encode(text, allow_special=True))
            assert (refused is None and constraint.is_complete) == (bool(terminals) or "</think>" in text)


def test_tools_of_a_model_without_calls_are_refused(tokenizer: Tokenizer) -> None:
    grammars = Grammars(tokenizer, frontend(), tokenizer.vocabulary_size)
    with pytest.raises(InvalidValueError, match="no syntax for tool calls"):
        grammars.compile(read_structured({"tools": [TOOL]}))
    endless = Grammars(tokenizer, frontend(eos_tokens=()), tokenizer.vocabulary_size)
    with pytest.raises(InvalidValueError, match="an end of generation"):
        endless.compile(read_structured(structured(regex="a")))


def test_what_takes_too_many_steps_is_refused_or_fails_alone(grammars: Grammars) -> None:
    """Compile and step limits: a hostile grammar costs its own request, in bounded time and memory."""
    body = structured(grammar="start: a\na: b b b b b\nb: c c c c c\nc: d d d d d\nd: /[a-z]{0,9}/ | a")
    with contextlib.suppress(InvalidValueError, ConstraintError):
        constraint = started(grammars, body)
        for _ in range(30):
            constraint.advance(int(allowed(constraint)[-1]))


def test_as_many_optional_properties_as_are_admitted_fit_a_row_of_the_parser(grammars: Grammars) -> None:
    """A row is bounded, and what outgrows it would fail at the first token."""
    properties = {f"p{index}": {"type": "null"} for index in range(500)}
    assert started(grammars, structured(json={"type": "object", "properties": properties})).mask().any()
