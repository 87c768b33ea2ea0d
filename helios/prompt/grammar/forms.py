"""The form of an answer's text as a grammar expression: a document, a pattern, choices, somebody's grammar, tags in free text.

It knows forms as `request.py` reads them and no envelope. A caller's own grammar keeps its names and its blanks to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llguidance import LLMatcher, grammar_from

from helios.errors import InvalidValueError
from helios.prompt.grammar.lark import ANY_TEXT, LarkText, any_of, first_line, pattern, quoted
from helios.prompt.grammar.request import AnswerForm, Form
from helios.prompt.grammar.schema import enforceable


def form_expression(lark: LarkText, answer: AnswerForm) -> str:
    """An expression for the whole of the answer's text."""
    return lark.rule(_FORMS[answer.form](lark, answer))


def _json_object(lark: LarkText, answer: AnswerForm) -> str:
    return lark.json({"type": "object"})


def _json_schema(lark: LarkText, answer: AnswerForm) -> str:
    return lark.json(enforceable(answer.definition, answer.param, lark.spelling.can_spell))


def _regex(lark: LarkText, answer: AnswerForm) -> str:
    return lark.terminal(pattern(answer.definition, answer.param))


def _choice(lark: LarkText, answer: AnswerForm) -> str:
    for text in answer.definition:
        if not lark.spelling.can_spell(text):
            raise InvalidValueError(
                f"{answer.param} has {text[:60]!r}, for which this model has no tokens", param=answer.param
            )
    return any_of([quoted(text) for text in dict.fromkeys(answer.definition)])


def _grammar(lark: LarkText, answer: AnswerForm) -> str:
    """Lark as llguidance has it, or GBNF."""
    try:
        text = lark_of(answer.definition)
    except ValueError as error:
        raise InvalidValueError(f"{answer.param} is no grammar: {error}"[:500], param=answer.param) from error
    problem = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(text))
    if problem:
        raise InvalidValueError(f"{answer.param} is no grammar: {first_line(problem)}", param=answer.param)
    return lark.nested(text)


def lark_of(text: str) -> str:
    """A caller's grammar as Lark. ValueError for GBNF that cannot be read."""
    return grammar_from("gbnf", text) if "::=" in text else text


def _structural_tag(lark: LarkText, answer: AnswerForm) -> str:
    """Free text in which each trigger begins one of its tags: begin, a document, end."""
    tags: list[Mapping[str, Any]] = answer.definition["structures"]
    triggers: list[str] = answer.definition["triggers"]
    options = []
    for trigger in triggers:
        others = [each for each in triggers if each != trigger]
        bodies = [
            f"{lark.markup(tag['begin'][len(trigger) :])} {_tag_document(lark, answer, tag)} {lark.markup(tag['end'])}"
            for tag in tags
            if _trigger_of(tag, triggers) == trigger
        ]
        if bodies:
            options.append(f"{lark.until(trigger, body=ANY_TEXT, exclude=others)} {any_of(bodies)}")
    segment = lark.rule(any_of(options))
    return f"{segment}* {lark.text(triggers)}"


def _tag_document(lark: LarkText, answer: AnswerForm, tag: Mapping[str, Any]) -> str:
    return lark.json(enforceable(tag["schema"], answer.param, lark.spelling.can_spell))


def _trigger_of(tag: Mapping[str, Any], triggers: list[str]) -> str | None:
    return next((trigger for trigger in triggers if tag["begin"].startswith(trigger)), None)


_FORMS: Mapping[Form, Callable[[LarkText, AnswerForm], str]] = {
    Form.JSON_OBJECT: _json_object,
    Form.JSON_SCHEMA: _json_schema,
    Form.REGEX: _regex,
    Form.CHOICE: _choice,
    Form.GRAMMAR: _grammar,
    Form.STRUCTURAL_TAG: _structural_tag,
}
