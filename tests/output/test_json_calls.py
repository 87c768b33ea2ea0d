"""Calls that are JSON: orders, lists, what is mended and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.output.events import Ending
from helios.output.json_text import JsonScanner, Progress
from tests.output.answers import Answer
from tests.output.conftest import Bound


@pytest.fixture(params=["tokens", "text"])
def hermes(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"json_tags-{request.param}"]


def tagged(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', [("f", '{"a": 1}')]),
        ('{"arguments": {"a": 1}, "name": "f"}', [("f", '{"a": 1}')]),
        ('{"id": [{}], "name": "f", "x": -1.5e3, "parameters": {}}', [("f", "{}")]),
        ('{"name": "f"}', [("f", "{}")]),
        ('{"name":"f","arguments":null}', [("f", "{}")]),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', [("f", '{"a": 1}')]),
        ('{"name": "f", "arguments": {"a": "</tool_call> {[\\" \\\\"}}', [("f", '{"a": "</tool_call> {[\\" \\\\"}')]),
        ('{"name": "f\\u00e9", "arguments": {"a": "\\ud83d"}}', [("fé", '{"a": "\\ud83d"}')]),
        ('{"name": "f", "arguments": {"a": "x\ny"}}', [("f", '{"a": "x\\u000ay"}')]),
        ('{"name": "f\\ud83d", "arguments": "\\"\\\\ud83d\\ud83d\\""}', [("f\ufffd", '"\\ud83d\ufffd"')]),
        ('[{"name": "f"}, {"name": "g", "arguments": {}}]', [("f", "{}"), ("g", "{}")]),
        ("[]", []),
        ("[ ]", []),
    ],
)
def test_what_a_call_may_look_like(hermes: Bound, body: str, made: list[tuple[str, str]]) -> None:
    """T1, T3, T4, T5, T17."""
    answer = hermes.said(f"a\n\n{tagged(body)}\n")
    assert (answer.content, answer.made) == ("a", made)


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"name": 1}',
        '{"name": ""}',
        '{"a" 1}',
        "{,}",
        "[1]",
        '{"name": tru}',
        '[{"arguments": {}}]',
        "{'name': 'f'}",
    ],
)
def test_json_that_is_no_call_is_content(hermes: Bound, body: str) -> None:
    """T2: nothing that was generated is lost."""
    answer = hermes.said(f"a{tagged(body)}b")
    assert answer.calls == []
    assert answer.content.startswith("a<tool_call>\n" + body.rstrip("]"))
    assert answer.content.endswith("b")


@pytest.mark.parametrize(
    "rest", ["}", "]", '"b" 1}', "1, 2}", '"b": tru}', '"b": [1}}', '"b": "\\x"}', '"b": "\\u12x4"}']
)
def test_arguments_that_stop_being_json_make_no_complete_call(hermes: Bound, rest: str) -> None:
    """T8: what was given out stays open; what follows up to the closer is dropped."""
    answer = hermes.said(tagged('{"name": "f", "arguments": {"a": 1, ' + rest) + "c")
    assert [(call.name, call.is_complete) for call in answer.calls] == [("f", False)]
    assert answer.content == "c"


def test_arguments_that_are_a_text_of_no_json_make_no_complete_call(hermes: Bound) -> None:
    """T8."""
    answer = hermes.said(tagged('{"name": "f", "arguments": "a lot"}'))
    assert [(call.arguments, call.is_complete) for call in answer.calls] == [("a lot", False)]


def test_a_call_is_complete_with_its_arguments_even_if_it_is_cut_off_then(hermes: Bound) -> None:
    """T8: missing outer closers."""
    for ending in (Ending.EOS, Ending.LIMIT):
        assert hermes.said('<tool_call>{"name": "f", "arguments": {"a": 1}', ending=ending).made == [("f", '{"a": 1}')]
        cut_off = hermes.said('<tool_call>{"name": "f", "arguments": {"a": 1', ending=ending)
        assert [(call.arguments, call.is_complete) for call in cut_off.calls] == [('{"a": 1', False)]
        assert hermes.said('<tool_call>{"name": "f', ending=ending) == Answer()


def scan(text: str) -> tuple[Progress, int]:
    """How a text ends as one value, and how many characters were pushed."""
    scanner = JsonScanner()
    progress = Progress.MORE
    for count, character in enumerate(text, start=1):
        progress = scanner.push(character)
        if progress is not Progress.MORE:
            return progress, count
    return progress, len(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(value=_JSON, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_any_json_ends_exactly_where_it_ends(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    is_nested = text[0] in '{["'
    assert scan(text + ",") == ((Progress.DONE, len(text)) if is_nested else (Progress.DONE_BEFORE, len(text) + 1))


@given(text=st.text(st.sampled_from('{}[]:,"\\ -.0123eEtrufalsn\n'), max_size=12))
def test_what_is_accepted_is_json(text: str) -> None:
    """Against the standard library, which takes raw control characters in strings when it is not strict."""
    progress, count = scan(text + " ")
    if progress in (Progress.DONE, Progress.DONE_BEFORE):
        json.loads(text[: count - (progress is Progress.DONE_BEFORE)], strict=False)
    else:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text, strict=False)


def test_nesting_is_bounded() -> None:
    assert scan("[" * 200)[0] is Progress.MORE
    assert scan("[" * 201)[0] is Progress.BROKEN
